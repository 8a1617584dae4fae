package bufpool

import (
	"errors"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

// remoteState says how far a remote pool has got: see Pools.
type remoteState uint8

const (
	remoteInUse    remoteState = iota
	remoteStopping             // this side is about to give it back
	remoteGiven                // this side has asked the peer to take it
	remoteClosed               // the peer has taken it back; it may be lent again
)

// Remote is a pool of the peer's.
type Remote struct {
	*Credits
	Ref        uint32
	Channel    int
	Invalidate bool // its key is that of a window, which this side is to invalidate
	KeyFollows bool // its key comes by a message: until then nothing can be written to it

	// The sender's of its channel.
	Pending     int     // transfers that have not completed, or are not indicated yet
	Last        uint32  // sequence number of the last work request
	Frames      []uint8 // by element: how many it carried last
	Invalidated bool    // the message that does it is posted
	namedIn     []atomic.Uint64

	// The pools' own.
	lent    protocol.Pool
	order   Order
	state   remoteState
	extra   bool // this side had asked for it
	idle    int  // ticks without use
	stopped bool // the sender uses it no more
	keyless bool // its key has not come
	closed  uint64
}

// NewRemote makes what Pools take when the peer lends a pool. It can be used when
// they have it.
func NewRemote(lent protocol.Pool, order Order) *Remote {
	return &Remote{Ref: lent.Ref, Channel: int(lent.Channel()), lent: lent, order: order}
}

// Extra reports whether this side had asked for the pool.
func (r *Remote) Extra() bool { return r.extra }

// keep makes the books of the pool, in the memory of another one's, if that is large
// enough: nobody uses these any more. There may be none.
func (r *Remote) keep(books *Remote, keys []uint32) {
	n := int(r.lent.Elements)
	if books == nil || n > cap(books.Frames) {
		books = &Remote{Credits: new(Credits), namedIn: make([]atomic.Uint64, n), Frames: make([]uint8, n)}
	}
	r.Credits = books.renew(r.lent.Addr, r.lent.RKey, int(r.lent.ElementSize), n, r.order)
	r.namedIn, r.Frames = books.namedIn[:n], books.Frames[:n]
	for i := range r.namedIn {
		r.namedIn[i].Store(0)
	}
	r.setKeys(keys)
}

// Name records that an element is indicated by the message with that number.
func (r *Remote) Name(elem uint32, message uint64) { r.namedIn[elem].Store(message) }

// NamedIn is the number of the message that indicated an element last, or of one
// before the last use of the element.
func (r *Remote) NamedIn(elem uint16) uint64 { return r.namedIn[elem].Load() }

// ErrKeys is wrapped when the peer lends a one-touch pool without having sent the keys
// of its elements.
var ErrKeys = errors.New("pool without the keys of its elements")

// peerKeys are keys that the peer has sent of a pool that it is about to lend. There is
// one such pool at a time, so that a peer that never lends it does not make us keep
// more and more.
type peerKeys struct {
	ref  uint32
	keys []uint32
}

var errKeys = errors.New("keys out of order")

// take returns the keys of a pool that is lent, nil if they have not all come.
func (t *peerKeys) take(l *protocol.Pool) []uint32 {
	keys := t.keys
	if t.ref != l.Ref || uint64(len(keys)) != uint64(l.Elements) {
		return nil
	}
	*t = peerKeys{}
	return keys
}
