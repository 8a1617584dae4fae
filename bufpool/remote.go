package bufpool

import (
	"errors"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

// remoteState is the state of a remote pool: see Pools.
type remoteState uint8

const (
	remoteInUse    remoteState = iota
	remoteStopping             // this side is about to give it back
	remoteFlushing             // this side has asked the peer to take it
	remoteClosed               // the peer has taken it back; it may be lent again
)

// Remote is a pool that the peer lends.
type Remote struct {
	*Credits
	Ref        uint32
	Channel    int
	Invalidate bool // its key is that of a window, which this side has to invalidate
	KeyFollows bool // its key arrives in a message; nothing can be written to it before

	// Used by the sender of the channel.
	pending     int     // transfers that have not completed or whose indication is pending
	last        uint32  // sequence number of the last work request
	frames      []uint8 // by element: number of frames of its last transfer
	invalidated bool    // the message that invalidates its window is posted
	namedIn     []atomic.Uint64

	// Used by Pools only.
	lent    protocol.Pool
	order   Order
	state   remoteState
	extra   bool // this side has asked for it
	idle    int  // ticks without use
	stopped bool // the sender has stopped using it
	keyless bool // its key has not arrived
	closed  uint64
}

// NewRemote returns the pool of an event Lent. It can be used after Step has accepted it.
func NewRemote(lent protocol.Pool, order Order) *Remote {
	return &Remote{Ref: lent.Ref, Channel: int(lent.Channel()), lent: lent, order: order}
}

// Extra reports whether this side has asked for the pool.
func (r *Remote) Extra() bool { return r.extra }

// The following methods are for the sender of the channel.

// Sent records that the transfer with a sequence number is about to be posted.
func (r *Remote) Sent(seq uint32) {
	r.pending++
	r.last = seq
}

// Carries records how many frames the last transfer to an element has.
func (r *Remote) Carries(elem uint16, frames int) { r.frames[elem] = uint8(frames) }

// Done records that a transfer has completed and is indicated.
func (r *Remote) Done() { r.pending-- }

// Idle reports whether all transfers are Done. last is the sequence number of the last one.
func (r *Remote) Idle() (idle bool, last uint32) { return r.pending == 0, r.last }

// Uncertain returns how many frames are in elements that were not returned.
func (r *Remote) Uncertain() (n uint64) {
	for elem := range r.Outstanding() {
		n += uint64(r.frames[elem])
	}
	return n
}

// ToInvalidate reports whether the message that invalidates the window of the pool is still to be
// posted. Invalidating records that it is: it must not be posted twice.
func (r *Remote) ToInvalidate() bool { return r.Invalidate && !r.invalidated }

// Invalidating records that the message that invalidates the window is about to be posted.
func (r *Remote) Invalidating() { r.invalidated = true }

// keep allocates the credits of the pool. books, which may be nil, is a pool that is not
// used any more, whose memory is used if it is large enough.
func (r *Remote) keep(books *Remote, keys []uint32) {
	n := int(r.lent.Elements)
	if books == nil || n > cap(books.frames) {
		books = &Remote{Credits: new(Credits), namedIn: make([]atomic.Uint64, n), frames: make([]uint8, n)}
	}
	r.Credits = books.renew(r.lent.Addr, r.lent.RKey, int(r.lent.ElementSize), n, r.order)
	r.namedIn, r.frames = books.namedIn[:n], books.frames[:n]
	for i := range r.namedIn {
		r.namedIn[i].Store(0)
	}
	r.Credits.keys = keys
}

// Name records the number of the message that indicates an element.
func (r *Remote) Name(elem uint32, message uint64) { r.namedIn[elem].Store(message) }

// NamedIn returns the number of the last message that has indicated an element. It can be of
// an earlier use of the element.
func (r *Remote) NamedIn(elem uint16) uint64 { return r.namedIn[elem].Load() }

// ErrKeys is wrapped when the peer lends a one-touch pool and has not sent the keys of its
// elements before.
var ErrKeys = errors.New("pool without the keys of its elements")

// peerKeys has the keys of a one-touch pool that the peer is about to lend. There is only
// one such pool at a time, which bounds the memory if the peer never lends it.
type peerKeys struct {
	ref  uint32
	keys []uint32
}

var errKeys = errors.New("keys out of order")

// complete returns the keys of a pool that is lent, or nil if not all of them have arrived.
func (t *peerKeys) complete(l *protocol.Pool) []uint32 {
	keys := t.keys
	if t.ref != l.Ref || uint64(len(keys)) != uint64(l.Elements) {
		return nil
	}
	*t = peerKeys{}
	return keys
}
