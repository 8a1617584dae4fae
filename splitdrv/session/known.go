package session

import (
	"net/netip"
)

const (
	// maxKnown is the largest number of known machines that are remembered, counted once for
	// each of their keys.
	maxKnown = 4096
	// maxKnownOfKey is the largest number of them with one key. A key that comes from many
	// addresses only displaces its own.
	maxKnownOfKey = 64
)

// knownMachines has the machines from which peers were authenticated before.
type knownMachines struct {
	of   map[Fingerprint]map[netip.Prefix]uint64 // by key; the value of seen when they were last seen
	keys map[netip.Prefix]int                    // number of keys with which a machine is in of
	all  int                                     // number of machines in of
	seen uint64                                  // counter of authenticated connections
}

func newKnownMachines() *knownMachines {
	return &knownMachines{of: make(map[Fingerprint]map[netip.Prefix]uint64), keys: make(map[netip.Prefix]int)}
}

func (k *knownMachines) has(machine netip.Prefix) bool { return k.keys[machine] > 0 }

// add makes a machine known, because a peer with this key was authenticated there. If there are
// too many of the key, or of all keys, the one that was not seen for longest is removed.
func (k *knownMachines) add(key Fingerprint, machine netip.Prefix) {
	k.seen++
	mine := k.of[key]
	if mine == nil {
		mine = make(map[netip.Prefix]uint64)
		k.of[key] = mine
	}
	if _, is := mine[machine]; !is {
		k.keys[machine]++
		k.all++
	}
	mine[machine] = k.seen
	switch {
	case len(mine) > maxKnownOfKey:
		k.remove(key, oldest(mine))
	case k.all > maxKnown:
		first, least := key, k.seen
		for other, machines := range k.of {
			if at := machines[oldest(machines)]; at < least {
				first, least = other, at
			}
		}
		k.remove(first, oldest(k.of[first]))
	}
}

// oldest returns the machine that was not seen for longest.
func oldest(machines map[netip.Prefix]uint64) (first netip.Prefix) {
	for machine, at := range machines {
		if least, is := machines[first]; !is || at < least {
			first = machine
		}
	}
	return first
}

func (k *knownMachines) remove(key Fingerprint, machine netip.Prefix) {
	delete(k.of[key], machine)
	if len(k.of[key]) == 0 {
		delete(k.of, key)
	}
	if k.keys[machine]--; k.keys[machine] == 0 {
		delete(k.keys, machine)
	}
	k.all--
}
