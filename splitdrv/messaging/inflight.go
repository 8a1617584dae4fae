package messaging

import (
	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
)

// inFlight are the work requests of a send queue that have not completed, in the
// order of posting, and their sequence numbers, which are cumulative and compared
// by difference. It is the sender's goroutine's.
type inFlight struct {
	posted     uint32 // or gathered to be
	completed  uint32
	signaled   uint32 // the last one that asked for a completion
	unsignaled int    // frames since then
	flights    flights
}

func newInFlight(depth int) inFlight { return inFlight{flights: flights{ring: make([]flight, depth)}} }

// signal makes the latest work request one that asks for a completion.
func (q *inFlight) signal(wr *fabric.SendWR) {
	wr.Flags |= fabric.Signaled
	q.signaled, q.unsignaled = q.posted, 0
}

// flight is a frame on its way, or a work request that is none.
type flight struct {
	seq      uint32          // of the work request
	slot     uint32          // noSlot if it holds none
	pool     *bufpool.Remote // nil for a frame that is not the first of its transfer
	elem     uint16
	length   uint32 // of the transfer
	owes     bool   // is to be indicated on the control channel when it has completed
	callback bool   // of a work request that is no transfer: somebody hears when it has completed
}

const noSlot = ^uint32(0)

// flights is a ring of them.
type flights struct {
	ring  []flight
	first int
	n     int
}

func (f *flights) len() int { return f.n }

func (f *flights) push(x flight) {
	i := f.first + f.n
	if i >= len(f.ring) {
		i -= len(f.ring)
	}
	f.ring[i] = x
	f.n++
}

// oldest is the one posted first; there must be one.
func (f *flights) oldest() *flight { return &f.ring[f.first] }

// newest is the one posted last; there must be one.
func (f *flights) newest() *flight {
	i := f.first + f.n - 1
	if i >= len(f.ring) {
		i -= len(f.ring)
	}
	return &f.ring[i]
}

func (f *flights) pop() {
	if f.first++; f.first == len(f.ring) {
		f.first = 0
	}
	f.n--
}
