package directed

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// TestDirectedInvalid expects a request that the owner could not decode to be refused before it is
// sent, because the owner would end the link.
func TestDirectedInvalid(t *testing.T) {
	r := newFixture(t, inMemory)
	_, m := r.memory(r.toOwner, 64, protocol.DirectedRead)
	good := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	for name, c := range map[string]struct {
		request Request
		want    error
	}{
		"no operation":       {Request{0, tapeDevice, 0, good}, protocol.ErrFunction},
		"beyond all devices": {Request{protocol.DirectedRead, tapeDevice, 1<<63 - 1, good}, protocol.ErrOverflow},
		"nothing":            {Request{protocol.DirectedRead, tapeDevice, 0, nil}, protocol.ErrElement},
		"too much data": {Request{protocol.DirectedWrite, tapeDevice, 0, []protocol.ListElement{
			{Data: make([]byte, 2*protocol.MaxListSequence), EndOfBuffer: true}}}, protocol.ErrSize},
		"an element of no bytes": {Request{protocol.DirectedRead, tapeDevice, 0, []protocol.ListElement{
			{Fragment: m.Fragment(0, 0), EndOfBuffer: true}}}, protocol.ErrSize},
		"a buffer without an end": {Request{protocol.DirectedRead, tapeDevice, 0, []protocol.ListElement{
			{Fragment: m.Fragment(0, 64)}}}, protocol.ErrCount},
	} {
		if err := r.toOwner.Do(t.Context(), c.request); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := r.requester.Err(); err != nil {
			t.Fatalf("%s: the link ends: %v", name, err)
		}
	}
	r.status(r.toOwner.Do(t.Context(), Request{protocol.DirectedRead, tapeDevice, 0, good}), protocol.DirectedOK)
}
