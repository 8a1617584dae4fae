package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// attachment is a container's connection to a network, as defined by the CNI specification.
type attachment struct{ network, container, ifname string }

// ownerPrefix is the first part of the owner of this plugin's cards.
const ownerPrefix = "cni"

// owner returns the owner of the card, which the agent records. No part contains a slash: the
// specification does not allow it.
func (a attachment) owner() string {
	return strings.Join([]string{ownerPrefix, a.network, a.container, a.ifname}, "/")
}

// attachmentOwning is the reverse of owner. ok is false for cards that this plugin has not made.
func attachmentOwning(owner string) (a attachment, ok bool) {
	part := strings.Split(owner, "/")
	if len(part) != 4 || part[0] != ownerPrefix {
		return attachment{}, false
	}
	return attachment{part[1], part[2], part[3]}, true
}

// shown is the number of bytes of a container's identifier in names and messages. Runtimes show
// the same number.
const shown = 12

func (a attachment) short() string { return a.container[:min(len(a.container), shown)] }

// card returns the name of the card, which is the same in each request about the attachment. Its
// length is limited, whatever the lengths of the parts of the attachment. It shows an
// administrator which container it is.
func (a attachment) card() string {
	return fmt.Sprintf("%s-%s-%s", ownerPrefix, a.short(), a.hash(8))
}

// trunk returns the name of the card's netdevice if the interface is a VLAN device on it.
func (a attachment) trunk() string { return "sn-" + a.hash(6) }

// hash returns that many bytes of a hash of the attachment, in hexadecimal digits.
func (a attachment) hash(bytes int) string {
	sum := sha256.Sum256([]byte(a.owner()))
	return hex.EncodeToString(sum[:bytes])
}

func (a attachment) String() string {
	return fmt.Sprintf("network %s: %s of container %s", a.network, a.ifname, a.short())
}
