package session

import (
	"net/netip"
	"testing"

	"github.com/splitnic/splitnic/splitdrv/session/internal/identity"
)

func machineNo(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
}

func keyNo(n int) Fingerprint { return Fingerprint{byte(n >> 8), byte(n)} }

// withKey returns c with a peer that has shown a key.
func withKey(c *Conn, n int) *Conn {
	c.verdict.Store(&identity.Verdict{ID: Identity{Fingerprint: keyNo(n)}})
	return c
}

// TestKnownOfKey authenticates one key at very many machines. It must displace only machines of its
// own, and none that another key has as well.
func TestKnownOfKey(t *testing.T) {
	k := newKnownMachines()
	for n := range 100 {
		k.add(keyNo(1+n), machineNo(n))
	}
	for n := range 2 * maxKnown {
		k.add(keyNo(0), machineNo(n))
	}
	for n := range 100 {
		if !k.has(machineNo(n)) {
			t.Fatalf("machine %d is forgotten", n)
		}
	}
	last := 2*maxKnown - 1
	if !k.has(machineNo(last)) || k.has(machineNo(last-maxKnownOfKey)) || len(k.of[keyNo(0)]) != maxKnownOfKey {
		t.Errorf("%d machines of the key are known", len(k.of[keyNo(0)]))
	}
	if k.all != 100+maxKnownOfKey || len(k.keys) != k.all {
		t.Errorf("%d machines are counted, %d known", k.all, len(k.keys))
	}
}

// TestKnownOfAll authenticates many keys, each at a few machines. Those seen last must be known.
func TestKnownOfAll(t *testing.T) {
	k := newKnownMachines()
	const each = 4
	for n := range maxKnown + each {
		if n == maxKnown-1 {
			k.add(keyNo(0), machineNo(0)) // again
		}
		k.add(keyNo(n/each), machineNo(n))
	}
	if k.all != maxKnown || len(k.keys) != maxKnown {
		t.Errorf("%d machines are counted, %d known", k.all, len(k.keys))
	}
	if !k.has(machineNo(0)) || k.has(machineNo(1)) || k.has(machineNo(each)) || !k.has(machineNo(each+1)) {
		t.Error("others are forgotten than those that were not seen for longest")
	}
	if _, is := k.of[keyNo(maxKnown/each)]; !is {
		t.Error("the last key is not known")
	}
}
