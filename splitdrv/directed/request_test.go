package directed

import (
	"errors"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// TestDirectedInvalid expects a request that the owner could not decode to be refused before it is
// sent, because the owner would end the link.
func TestDirectedInvalid(t *testing.T) {
	r := newFixture(t, inMemory)
	_, m := r.memory(r.toOwner, 64, Result)
	good := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	for name, c := range map[string]struct {
		request Request
		want    error
	}{
		"no operation":       {one(0, tapeDevice, 0, good), protocol.ErrFunction},
		"beyond all devices": {one(protocol.DirectedRead, tapeDevice, 1<<63-1, good), protocol.ErrOverflow},
		"nothing":            {one(protocol.DirectedRead, tapeDevice, 0, nil), protocol.ErrCount},
		"too much data": {one(protocol.DirectedWrite, tapeDevice, 0, []protocol.ListElement{
			{Data: make([]byte, 2*protocol.MaxListSequence), EndOfBuffer: true}}), protocol.ErrSize},
		"an element of no bytes": {one(protocol.DirectedRead, tapeDevice, 0, []protocol.ListElement{
			{Fragment: m.Fragment(0, 0), EndOfBuffer: true}}), protocol.ErrSize},
		"no transaction": {Request{Device: tapeDevice}, protocol.ErrCount},
		"data for results": {one(protocol.DirectedRead, tapeDevice, 0, []protocol.ListElement{
			{Data: []byte("x"), EndOfBuffer: true}}), protocol.ErrElement},
		"a read with source data": {Request{tapeDevice, []Transaction{
			{Operation: protocol.DirectedRead, Source: good, Results: good}}}, protocol.ErrCount},
		"a large exchange": {Request{tapeDevice, []Transaction{
			{Operation: protocol.DirectedExchange, Results: buffer(m, 0, protocol.MaxDirectedExchange+1)}}}, protocol.ErrSize},
		"a transaction too many": {Request{tapeDevice, make([]Transaction, protocol.MaxDirectedTransactions+1)},
			protocol.ErrCount},
		"more transactions than the message can have": {Request{tapeDevice, slices.Repeat([]Transaction{
			{Operation: protocol.DirectedRead, Results: good}}, 200)}, protocol.ErrLong},
		"a buffer that ends in that of the next transaction": {Request{tapeDevice, []Transaction{
			{Operation: protocol.DirectedWrite, Source: []protocol.ListElement{good[0], {Data: []byte("x")}}},
			{Operation: protocol.DirectedRead, Results: good}}}, protocol.ErrSize},
		"a buffer without an end": {one(protocol.DirectedRead, tapeDevice, 0, []protocol.ListElement{
			{Fragment: m.Fragment(0, 64)}}), protocol.ErrCount},
	} {
		if err := r.toOwner.Do(t.Context(), c.request); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err := r.requester.Err(); err != nil {
			t.Fatalf("%s: the link ends: %v", name, err)
		}
	}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, good)), protocol.DirectedOK)
}
