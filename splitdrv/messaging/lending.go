package messaging

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
)

// lentPool is one pool of this side with a region of its own, so that every
// device bounds the peer to what it was lent. Its loan belongs to the receiver
// of its channel.
type lentPool struct {
	ref     uint32
	ch      *channel
	arena   *bufpool.Arena
	regions []fabric.Region
	loan    *bufpool.Loan
	extra   bool // lent on request, and so to go back when it is not used
	idle    int  // the keeper's: looks without use
	state   poolState

	windows  []fabric.Window // around it; none with protection region
	keys     []uint32        // theirs, once they are bound: the sender's, who binds them
	touch    bool            // there is one around each element
	retiring *retirement     // the receiver's: of a one-touch pool that is to go when nothing of it is consumed

	// The receiver's: it uses the pool no more; its window is invalid, by a
	// message of the peer's; and what follows when it is, if that is waited for.
	forgotten   bool
	invalidated bool
	awaited     *retirement
}

// poolState says how far a pool's flush has got. It is guarded by lending.mu.
type poolState uint8

const (
	poolMade     poolState = iota // the peer does not know of it yet
	poolLent                      // or about to be, before the session begins
	poolFlushing                  // the peer is asked to stop using it
	poolRetiring                  // the peer has stopped; the receiver takes what has come
)

// lending is the target's part: the pools that this side lends.
type lending struct {
	c     *Conn
	taken atomic.Uint64 // pools that came back

	telling sync.Mutex // held while the keys of a pool are told, and it is offered

	mu    sync.Mutex
	pools map[uint32]*lentPool // by reference, until they are deregistered
}

// make makes a pool for a channel. Nobody knows of it yet.
func (l *lending) make(ch *channel, p PoolConfig, first bool) (*lentPool, error) {
	cfg := &l.c.cfg
	ref, ok := l.freeRef(ch)
	if !ok {
		return nil, fmt.Errorf("%d pools are lent on data channel %d already", cfg.MaxPools, ch.number)
	}
	arena, err := l.c.memory.get(p.bytes(), first)
	if err != nil {
		return nil, err
	}
	lent := arena.Bytes()[:p.ElementSize*p.Elements]
	if cfg.Mode.Sends() {
		lent = nil // the elements are receives
	}
	pool := &lentPool{ref: ref, ch: ch, arena: arena, extra: !first, loan: bufpool.NewLoan(lent, p.ElementSize, p.Elements)}
	if err := l.register(pool); err != nil {
		err = fmt.Errorf("register a pool of %d elements of %d bytes: %w", p.Elements, p.ElementSize, err)
		if !first {
			err = errors.Join(err, pool.deregister(), l.c.memory.put(arena))
		}
		return nil, err
	}
	if first {
		pool.state = poolLent
	}
	l.mu.Lock()
	l.pools[ref] = pool
	l.mu.Unlock()
	return pool, nil
}

// freeRef finds a reference for another pool of a channel: a receiver finds the
// pool of an indication by its difference to the channel's first one.
func (l *lending) freeRef(ch *channel) (uint32, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.c.firstRef(ch.number)
	for ref := first; ref < first+uint32(l.c.cfg.MaxPools); ref++ {
		if l.pools[ref] == nil {
			return ref, true
		}
	}
	return 0, false
}

// firstRef is the lowest reference of the pools lent on a data channel.
func (c *Conn) firstRef(channel int) uint32 { return uint32((channel - 1) * c.cfg.MaxPools) }

// offered records that the peer knows of a pool. It may be giving it back
// already.
func (l *lending) offered(p *lentPool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state == poolMade {
		p.state = poolLent
	}
}

// extras lists the pools of a channel that are lent on request and not on their way
// back.
func (l *lending) extras(ch *channel) []*lentPool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pools []*lentPool
	for _, p := range l.pools {
		if p.ch == ch && p.extra && p.state == poolLent {
			pools = append(pools, p)
		}
	}
	slices.SortFunc(pools, func(a, b *lentPool) int { return int(a.ref) - int(b.ref) })
	return pools
}

// count is how many pools are lent on a channel, those on their way back
// included.
func (l *lending) count(ch *channel) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, p := range l.pools {
		if p.ch == ch {
			n++
		}
	}
	return n
}

// flushing records that the peer is being asked to stop using p, and reports
// whether there is a need to: it may be giving p back just now.
func (l *lending) flushing(p *lentPool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.state != poolLent {
		return false
	}
	p.state = poolFlushing
	return true
}

// retire begins the end of pools that the peer has stopped using: their
// receivers take what was written to them, and forget them. Afterwards the
// keeper deregisters them and does what then says, which may be to tell the peer:
// when it hears that, what it writes there is refused. Only windows end
// afterwards, because it may be the peer that ends them. Pools whose end has
// begun already are passed over.
func (l *lending) retire(pools []*lentPool, then func() error) {
	l.mu.Lock()
	pools = slices.DeleteFunc(slices.Clone(pools), func(p *lentPool) bool { return p.state == poolRetiring })
	for _, p := range pools {
		p.state = poolRetiring
	}
	l.mu.Unlock()
	end := func() error {
		l.c.keeper.post(func() error {
			for _, p := range pools {
				if len(p.windows) > 0 {
					continue
				}
				if err := l.dispose(p); err != nil {
					return err
				}
			}
			if err := then(); err != nil {
				return err
			}
			for _, p := range pools {
				if len(p.windows) > 0 {
					l.withdraw(p)
				}
			}
			return nil
		})
		return nil
	}
	if len(pools) == 0 {
		_ = end() // never fails: it only posts
		return
	}
	job := &retirement{then: end}
	job.left.Store(int32(len(pools)))
	for _, p := range pools {
		p.ch.rx.mail.put(letter{kind: letterRetire, pool: p, job: job})
	}
}

// retirement is what follows when the last one of several workers is done with
// pools.
type retirement struct {
	left atomic.Int32
	then func() error
}

func (r *retirement) done() error {
	if r.left.Add(-1) == 0 {
		return r.then()
	}
	return nil
}

// dispose deregisters a pool that nobody uses any more.
func (l *lending) dispose(p *lentPool) error {
	if err := p.deregister(); err != nil {
		return fmt.Errorf("deregister pool %d: %w", p.ref, err)
	}
	if err := l.c.memory.put(p.arena); err != nil {
		return err
	}
	l.mu.Lock()
	delete(l.pools, p.ref)
	l.mu.Unlock()
	l.taken.Add(1)
	return nil
}

// find returns the pools with references, which the peer has named.
func (l *lending) find(refs []uint32) ([]*lentPool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pools []*lentPool
	for _, ref := range refs {
		p := l.pools[ref]
		if p == nil || p.state == poolRetiring || slices.Contains(pools, p) {
			return nil, controlViolation(ErrPool, "flush of pool %d", ref)
		}
		pools = append(pools, p)
	}
	return pools, nil
}
