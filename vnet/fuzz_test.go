package vnet

import (
	"encoding/json"
	"slices"
	"testing"
)

// FuzzOutgoingHead checks frames by their beginning. If the beginning passes, the whole frame has
// to pass, whatever the bytes of the rest are, and also if these change later.
func FuzzOutgoingHead(f *testing.F) {
	f.Add(make([]byte, 256), make([]byte, 1000))
	tcp := slices.Concat([]byte{1, 1, 0, 0, 100, 0, 34, 0, 16, 0}, make([]byte, 12), []byte{8, 0, 0x45}, make([]byte, 8),
		[]byte{6}, make([]byte, 22), []byte{0x50}, make([]byte, 7))
	f.Add(tcp, make([]byte, 3000))
	f.Fuzz(func(t *testing.T, head, rest []byte) {
		if !OutgoingHead(head, len(head)+len(rest)) {
			return
		}
		frame := slices.Concat(head, rest)
		for range 2 {
			if passed, err := Outgoing(frame); err != nil || len(passed) != len(frame) {
				t.Fatalf("%d bytes pass by the first %d, and do not by all: %v", len(frame), len(head), err)
			}
			for i := range rest {
				frame[len(head)+i] ^= 0xff
			}
		}
	})
}

// FuzzOffloads fuzzes the parsers of lists of offloads, as text and as JSON.
func FuzzOffloads(f *testing.F) {
	for _, s := range []string{"", "none", "all", "csum,tso", "csum, TSO4,uso", "tso4", `["csum","tso4","later"]`, `null`,
		`[]`, `["csum",1]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if o, err := ParseOffloads(s); err == nil {
			if again, err := ParseOffloads(o.String()); err != nil || again != o || o.Closure() != o {
				t.Errorf("%q are %v, and those %v, %v", s, o, again, err)
			}
		}
		var o, again Offloads
		if json.Unmarshal([]byte(s), &o) != nil {
			return
		}
		b, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(b, &again)
		}
		if err != nil || again != o || o&^AllOffloads != 0 {
			t.Errorf("%q are %v, encoded %s, and that %v, %v", s, o, b, again, err)
		}
	})
}
