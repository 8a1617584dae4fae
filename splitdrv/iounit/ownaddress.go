package iounit

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// madeAddresses is how many addresses are derived or generated for a host until one is free.
const madeAddresses = 8

// ownAddresses returns the addresses that are derived from a host's identity, the first choice
// first. They are the same each time and at every I/O unit, so that the host keeps its DHCP
// lease, and those of one identity are few: a host must not find an address of somebody else by
// trying. Therefore they depend on the name under which its key is trusted, or on the key if it
// has none; and on the name that the host has chosen, by which the netdevices of one key differ,
// only by one of slots. If it is that of another netdevice of the key, the next one follows.
//
// Without keys, names are not authenticated, and the address only depends on the name.
func ownAddresses(id session.Identity, name string) (macs [madeAddresses]protocol.MAC) {
	of := id.Name
	if of == "" {
		of = id.Fingerprint.String()
	}
	if id.Insecure {
		of = "/" + name
	}
	sum := sha256.Sum256([]byte(name))
	slot := binary.BigEndian.Uint16(sum[:])
	for i := range macs {
		macs[i] = derived(fmt.Sprintf("splitnic MAC address %d of %s", slot, of))
		slot++ // the first one follows the last one
	}
	return macs
}

// derived derives a locally administered unicast address from a text.
func derived(from string) protocol.MAC {
	sum := sha256.Sum256([]byte(from))
	return localMAC(protocol.MAC(sum[:6]))
}

func randomMAC() (mac protocol.MAC) {
	rand.Read(mac[:]) // never fails
	return localMAC(mac)
}

// localMAC makes an address locally administered, and unicast.
func localMAC(mac protocol.MAC) protocol.MAC {
	mac[0] = mac[0]&^1 | 2
	return mac
}
