package messaging

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
)

// grantState says how far a pool of the peer's has got. It is guarded by
// borrowing.mu.
type grantState uint8

const (
	grantInUse  grantState = iota
	grantIdle              // this side is about to give it back
	grantGiven             // this side has asked the peer to take it
	grantClosed            // the peer has taken it back; it may be lent again
)

// borrowing is the initiator's part: the pools that the peer lends.
type borrowing struct {
	c     *Conn
	given atomic.Uint64 // pools given back
	asked atomic.Uint64 // BufferRecvPoolGets sent
	lent  atomic.Uint64 // pools that the peer has lent so far
	held  atomic.Uint64 // flushes of the peer's that were answered later, because there were too many
	pace  *rate.Limiter // of what pools of the peer's cost; the control handler's

	mu     sync.Mutex
	pools  map[uint32]*grantedPool // by reference, also after they went back: see forget
	told   told                    // keys of the pool that it lends next
	away   *grantedPool            // the peer is asked to take it
	closed uint64                  // pools that were closed
}

// add takes a pool that the peer lends.
func (b *borrowing) add(p protocol.Pool) error {
	c := b.c
	err := p.Valid()
	if c.cfg.Mode.Sends() {
		err = p.ValidSend()
	}
	if err != nil {
		return controlViolation(err, "BufferRecvPool")
	}
	if int(p.Channel()) > len(c.channels) {
		return controlViolation(ErrNoChannel, "pool %d for data channel %d of %d", p.Ref, p.Channel(), len(c.channels))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.pools[p.Ref]; old != nil && old.state != grantClosed {
		return controlViolation(ErrPoolTwice, "pool %d", p.Ref)
	}
	s := c.channels[p.Channel()-1].tx
	if n := b.count(s) + 1; n > c.cfg.PeerPools {
		return controlViolation(ErrTooManyPools, "pool %d is number %d of data channel %d, %d are agreed", p.Ref, n, p.Channel(), c.cfg.PeerPools)
	}
	if n := b.elements(s) + int(p.Elements); n > MaxChannelElements {
		return controlViolation(ErrTooManyElements, "pool %d brings data channel %d to %d elements", p.Ref, p.Channel(), n)
	}
	var keys []uint32
	if c.cfg.OneTouch && p.RKey == 0 && !c.cfg.Mode.Sends() {
		if keys = b.told.take(&p); keys == nil {
			return controlViolation(ErrKeys, "pool %d of %d elements", p.Ref, p.Elements)
		}
	}
	books := b.forget(s)
	if old := b.pools[p.Ref]; books == nil && old != nil && old.left.Load() {
		books = old
	}
	order := bufpool.LatestFirst
	if c.cfg.Mode.Sends() {
		order = bufpool.InOrder
	}
	g := &grantedPool{
		ref: p.Ref, sender: s, extra: s.asked.Load() == int64(p.ElementSize),
		invalidate: c.cfg.Invalidation && p.Invalidate(),
	}
	g.keep(books, &p, order)
	g.SetKeys(keys)
	b.pools[p.Ref] = g
	b.lent.Add(1)
	s.grant(g)
	return nil
}

// keep makes the books of a pool of the peer's, in the memory of those of another
// one, if that is large enough: nobody uses these any more. There may be none.
func (g *grantedPool) keep(books *grantedPool, p *protocol.Pool, order bufpool.Order) {
	n := int(p.Elements)
	if books == nil || n > cap(books.frames) {
		g.Grant = bufpool.NewGrant(p.Addr, p.RKey, int(p.ElementSize), n, order)
		g.namedIn, g.frames = make([]atomic.Uint64, n), make([]uint8, n)
		return
	}
	g.Grant = books.Renew(p.Addr, p.RKey, int(p.ElementSize), n, order)
	g.namedIn, g.frames = books.namedIn[:n], books.frames[:n]
	for i := range g.namedIn {
		g.namedIn[i].Store(0)
	}
}

// What the peer may have its pools cost, in elements: as many at once as a data
// channel has, and that in a second in the long run. Each pool costs poolCost
// besides. A peer that lends pools on request, and takes them back when they are
// not used, comes nowhere near it.
const (
	lendingBurst = MaxChannelElements
	lendingRate  = MaxChannelElements
	poolCost     = 256
)

// cost takes what pools of the peer's cost that it takes back, and returns how long
// it takes until that may have been spent. The control handler's.
func (b *borrowing) cost(pools []*grantedPool, now time.Time) (wait time.Duration) {
	n := 0
	for _, g := range pools {
		n += poolCost + g.Len()
	}
	for n > 0 {
		some := min(n, lendingBurst)
		n -= some
		wait = b.pace.ReserveN(now, some).DelayFrom(now)
	}
	return wait
}

// count is how many of the peer's pools a sender has, those on their way back
// included. The caller holds the lock.
func (b *borrowing) count(s *sender) int {
	n := 0
	for _, g := range b.pools {
		if g.sender == s && g.state != grantClosed {
			n++
		}
	}
	return n
}

// elements is how many elements those pools have. The caller holds the lock.
func (b *borrowing) elements(s *sender) int {
	n := 0
	for _, g := range b.pools {
		if g.sender == s && g.state != grantClosed {
			n += g.Len()
		}
	}
	return n
}

// forget forgets pools of a sender's that the peer took back long ago. They are
// kept at all because updates of them may still be on their way; a peer that
// never uses a reference again must not make us keep more and more. One of them
// that nobody uses any more is returned, nil if there is none. The caller holds
// the lock.
func (b *borrowing) forget(s *sender) (unused *grantedPool) {
	for {
		var oldest *grantedPool
		pools, elements := 0, 0
		for _, g := range b.pools {
			if g.sender != s || g.state != grantClosed {
				continue
			}
			pools++
			elements += g.Len()
			if oldest == nil || g.closed < oldest.closed {
				oldest = g
			}
		}
		if pools <= MaxPools && elements <= MaxChannelElements {
			return unused
		}
		delete(b.pools, oldest.ref)
		if oldest.left.Load() {
			unused = oldest
		}
	}
}

// find returns the pool with a reference that the peer has named.
func (b *borrowing) find(ref uint32) *grantedPool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pools[ref]
}

// close stops the use of pools that the peer takes back, and returns them. job
// follows when their senders are done.
func (b *borrowing) close(refs []uint32, job *retirement) ([]*grantedPool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var pools []*grantedPool
	for _, ref := range refs {
		g := b.pools[ref]
		if g == nil || g.state == grantClosed || slices.Contains(pools, g) {
			return nil, controlViolation(ErrPool, "flush of pool %d", ref)
		}
		pools = append(pools, g)
	}
	for _, g := range pools {
		b.shut(g)
		g.sender.revoke(g)
		g.sender.mail.put(errand{kind: errandLast, pool: g, job: job})
	}
	return pools, nil
}

// giveBack begins to give a pool back, and reports whether it was in use. job
// follows when its sender is done.
func (b *borrowing) giveBack(g *grantedPool, job *retirement) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.state != grantInUse {
		return false
	}
	g.state = grantIdle
	g.sender.revoke(g)
	g.sender.mail.put(errand{kind: errandRelease, pool: g, job: job})
	return true
}

// take asks the peer to take a pool that this side has stopped using, unless the
// peer has taken it back itself. begin says under which transaction.
func (b *borrowing) take(g *grantedPool, begin func() uint64) error {
	// With the lock of the send queue held, so that the answer to a request of
	// the peer's about the same pool goes out either before or after. Not the
	// other way round: while send waits for a slot the control handler, which
	// frees them, must be able to lock b.
	return b.c.control.send(func(dst []byte) []byte {
		b.mu.Lock()
		defer b.mu.Unlock()
		if g.state != grantIdle {
			return nil
		}
		g.state = grantGiven
		b.away = g
		b.given.Add(1)
		return protocol.AppendBufferPoolFlushRequest(dst, begin(), g.ref|protocol.FlushGiveBack)
	})
}

// taken hears that the peer has taken what it was asked to take, if anything:
// it may lend the reference again with its very next message.
func (b *borrowing) taken() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away != nil {
		b.shut(b.away)
		if b.away.invalidate {
			// Only now, so that the peer knows what it is about when it comes.
			b.away.sender.mail.put(errand{kind: errandInvalidate, pool: b.away})
		}
		b.away = nil
	}
}

// shut marks a pool as one of the peer's own again. The caller holds the lock.
func (b *borrowing) shut(g *grantedPool) {
	if g.state != grantClosed {
		g.state = grantClosed
		b.closed++
		g.closed = b.closed
	}
}

// grant adds a pool to those that the sender uses.
func (s *sender) grant(g *grantedPool) {
	s.granting.Lock()
	grants := append(slices.Clone(*s.grants.Load()), g)
	slices.SortStableFunc(grants, func(a, b *grantedPool) int { return cmp.Compare(a.ElementSize(), b.ElementSize()) })
	s.grants.Store(&grants)
	s.granting.Unlock()
	s.credited()
}

// revoke takes a pool from those that the sender uses. It may be using it at
// this very moment.
func (s *sender) revoke(g *grantedPool) {
	s.granting.Lock()
	defer s.granting.Unlock()
	grants := slices.DeleteFunc(slices.Clone(*s.grants.Load()), func(o *grantedPool) bool { return o == g })
	s.grants.Store(&grants)
}
