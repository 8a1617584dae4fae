package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// attachment is a container's connection to a network, as the CNI specification has it.
type attachment struct{ network, container, ifname string }

// ownerPrefix is what the owners of this plugin's cards begin with.
const ownerPrefix = "cni"

// owner is what the agent notes of the card. No part has a slash: the specification does
// not allow them.
func (a attachment) owner() string {
	return strings.Join([]string{ownerPrefix, a.network, a.container, a.ifname}, "/")
}

// attachmentOwning is the reverse of owner. Cards that others have made are not ok.
func attachmentOwning(owner string) (a attachment, ok bool) {
	part := strings.Split(owner, "/")
	if len(part) != 4 || part[0] != ownerPrefix {
		return attachment{}, false
	}
	return attachment{part[1], part[2], part[3]}, true
}

// shown is how much of a container's identifier people are shown, as runtimes do.
const shown = 12

func (a attachment) short() string { return a.container[:min(len(a.container), shown)] }

// card is the name of the card: the same one in each request about the attachment, and of
// another length than that of what it is made of. People know the container by it.
func (a attachment) card() string {
	return fmt.Sprintf("%s-%s-%s", ownerPrefix, a.short(), a.hash(8))
}

// trunk is the name of the card's netdevice if the interface is a VLAN device on it.
func (a attachment) trunk() string { return "sn-" + a.hash(6) }

// hash is that many bytes in hexadecimal digits.
func (a attachment) hash(bytes int) string {
	sum := sha256.Sum256([]byte(a.owner()))
	return hex.EncodeToString(sum[:bytes])
}

func (a attachment) String() string {
	return fmt.Sprintf("network %s: %s of container %s", a.network, a.ifname, a.short())
}
