package directed

import (
	"slices"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

func TestDirectedHostileList(t *testing.T)     { testHostileList(t, inMemory) }
func TestRDMADirectedHostileList(t *testing.T) { testHostileList(t, onSoftRoCE) }

// A list continues in the requester's memory, where the owner does not see it, in ways that violate
// the protocol. The I/O unit refuses each list, moves no data, and accepts the next request.
func testHostileList(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	mem, m := r.memory(r.toOwner, 1<<16, Source)
	list := []protocol.ListElement{{Data: []byte("not to be written"), EndOfBuffer: true}}
	attributes := protocol.AttributesOf(slices.Repeat(list, 100))
	// sequence writes a sequence of the list, which continues at chain, to the memory.
	sequence := func(at int, chain protocol.Fragment) {
		clear(mem)
		copy(mem[at:], protocol.AppendListSequence(nil, nil, []protocol.Fragment{chain}, list))
	}
	size := len(protocol.AppendListSequence(nil, nil, make([]protocol.Fragment, 1), list))
	for _, c := range []struct {
		name  string
		chain func() protocol.Fragment // returns the chain of the sequence in the request
		want  protocol.DirectedStatus
	}{
		{"in a circle", func() protocol.Fragment {
			chain := m.Fragment(0, size)
			sequence(0, chain)
			return chain
		}, protocol.DirectedInvalid},
		{"without end", func() protocol.Fragment {
			for i := range mem[:len(mem)-size] {
				if i%size == 0 {
					chain := m.Fragment(i+size, size)
					copy(mem[i:], protocol.AppendListSequence(nil, nil, []protocol.Fragment{chain}, list))
				}
			}
			return m.Fragment(0, size)
		}, protocol.DirectedInvalid},
		{"no list", func() protocol.Fragment {
			pattern(mem, 5)
			return m.Fragment(0, size)
		}, protocol.DirectedInvalid},
		{"in a third unit's memory", func() protocol.Fragment {
			chain := m.Fragment(0, size)
			chain.Platform = platforms[unitSide]
			return chain
		}, protocol.DirectedPlatform},
		{"in a third unit's memory, further on", func() protocol.Fragment {
			chain := m.Fragment(4096, size)
			chain.Platform = platforms[unitSide]
			sequence(0, chain)
			return m.Fragment(0, size)
		}, protocol.DirectedPlatform},
		{"beyond the memory", func() protocol.Fragment {
			chain := m.Fragment(0, size)
			chain.Addr += uint64(len(mem)) - 16
			return chain
		}, protocol.DirectedAccess},
		{"under a key that is none", func() protocol.Fragment {
			chain := m.Fragment(0, size)
			chain.Handle ^= 0x5a00
			return chain
		}, protocol.DirectedAccess},
	} {
		chain := c.chain()
		q := chained(protocol.DirectedWrite, attributes, []protocol.Fragment{chain}, list)
		if s := r.raw(r.toOwner, q); s != c.want {
			t.Errorf("%s: %v, want %v", c.name, s, c.want)
		}
		if r.drive.writes != 0 {
			t.Fatalf("%s: %d writes to the I/O device", c.name, r.drive.writes)
		}
	}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 0, list)), protocol.DirectedOK)
	if !r.drive.holds(0, list[0].Data) {
		t.Error("the I/O device is not what the list has")
	}
}
