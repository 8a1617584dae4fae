package messaging

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/protocol"
)

// keeper looks after the number of pools, in a goroutine of its own: as target
// it lends more when the peer asks for them and takes them back, as initiator
// it asks for more and gives them back.
type keeper struct {
	c        *Conn
	gets     chan protocol.BufferRecvPoolGet // the peer's
	replied  chan struct{}                   // the answer to the flush that is out
	quiet    chan *grantedPool               // out of use, to be given back
	answered chan struct{}                   // the peer has handled a BufferRecvPoolGet
	chores   chan func() error
	hurry    chan struct{} // a frame fits no pool

	owesReply atomic.Bool   // the peer waits for a BufferPoolFlushReply
	awaits    atomic.Uint64 // transaction of the flush that is out; 0: none
	granted   atomic.Uint64 // pools lent on request
	refused   atomic.Uint64 // requests not granted

	grants *rate.Limiter // pools that may be made on request

	flushing    func() error // what the reply to the flush means; nil: none is out
	giving      bool         // a pool is on its way out of use, to be given back
	taking      bool         // a pool is being taken back, and not gone yet
	transaction uint64
	asking      bool      // a BufferRecvPoolGet may not be handled yet
	asked       time.Time // last
	patience    time.Duration
	lent        uint64   // pools that the peer had lent by then
	hungers     []hunger // by channel
}

// hunger is what the keeper remembers of a channel, of its sender above all.
type hunger struct {
	noCredit uint64 // its counter at the last look
	held     uint64 // its channel's receiver's counter when the peer last asked for a pool
	starving int    // looks in a row that found it asleep without credit
}

const (
	// shortages is how often, from one look to the next, a sender has to be
	// without a credit for more memory to be worth while.
	shortages = 16
	// sentAfter is how long a sender on an unreliable channel has no credit
	// before it suspects that messages were lost.
	sentAfter = 50 * time.Millisecond
	// Pauses between requests for more pools: the shorter one while they are
	// granted, and otherwise longer and longer ones.
	patienceMin = 100 * time.Millisecond
	patienceMax = 5 * time.Second
	// grantRate is how many pools are lent on request in a second in the long run:
	// no peer asks as often that keeps these pauses. Each is memory that the kernel
	// maps, pins and gives back, while it holds up the other sessions' too.
	grantRate = rate.Limit(2 / (float64(patienceMin) / float64(time.Second)))
)

func newKeeper(c *Conn) *keeper {
	return &keeper{
		c:        c,
		gets:     make(chan protocol.BufferRecvPoolGet, 2),
		replied:  make(chan struct{}, 1),
		quiet:    make(chan *grantedPool, 1),
		answered: make(chan struct{}, 1),
		chores:   make(chan func() error, 2*c.cfg.Queues*c.cfg.MaxPools+2),
		hurry:    make(chan struct{}, 1),
		patience: patienceMin,
		hungers:  make([]hunger, c.cfg.Queues),
		// At once at most as many as there can be.
		grants: rate.NewLimiter(grantRate, c.cfg.Queues*c.cfg.MaxPools),
	}
}

// interval is how often the keeper looks around.
func (k *keeper) interval() time.Duration {
	if k.c.cfg.Mode == protocol.ModeSendUC {
		return sentAfter / 2
	}
	return min(250*time.Millisecond, k.c.cfg.PoolIdle/4)
}

// run is the keeper's goroutine.
func (k *keeper) run() error {
	every := k.interval()
	tick := time.NewTicker(every)
	defer tick.Stop()
	idle := int(k.c.cfg.PoolIdle / every)
	for {
		var err error
		select {
		case <-k.c.done:
			return nil
		case g := <-k.gets:
			err = k.grant(g)
		case <-k.replied:
			err = k.flushing()
			k.flushing = nil
		case g := <-k.quiet:
			err = k.give(g)
		case <-k.answered:
			k.asking = false
		case do := <-k.chores:
			err = do()
		case <-k.hurry:
			err = k.askForLarger()
		case <-tick.C:
			err = k.look(idle)
		}
		if err != nil {
			return err
		}
	}
}

// nudge asks the keeper to ask for a pool. Never waits.
func (k *keeper) nudge() {
	select {
	case k.hurry <- struct{}{}:
	default:
	}
}

// post has the keeper do something. It never waits: there is room for the end
// of every pool, in two steps.
func (k *keeper) post(do func() error) { k.chores <- do }

// look is what the keeper does from time to time.
func (k *keeper) look(idle int) error {
	if k.c.cfg.Mode == protocol.ModeSendUC {
		k.rescue()
	}
	if k.c.cfg.Mode.Sends() {
		return nil
	}
	if err := k.takeBack(2 * idle); err != nil {
		return err
	}
	k.giveBack(idle)
	for i, ch := range k.c.channels {
		n := ch.tx.count.noCredit.Load()
		hungry := n-k.hungers[i].noCredit >= shortages
		k.hungers[i].noCredit = n
		if hungry {
			if err := k.ask(ch); err != nil {
				return err
			}
		}
	}
	return nil
}

// rescue tells the peer how much was sent on channels that may lose messages,
// when the credits of all of them are gone.
func (k *keeper) rescue() {
	for i, ch := range k.c.channels {
		// Before it is seen asleep, when nothing that has a number is not posted.
		next := ch.tx.sequence.Load()
		h, n := &k.hungers[i], ch.tx.count.noCredit.Load()
		if !ch.tx.hungry.Load() || n != h.noCredit {
			h.noCredit, h.starving = n, 0
			continue
		}
		if h.starving++; h.starving != int(sentAfter/k.interval()) {
			continue
		}
		h.starving = 0
		sent := protocol.Sent{Channel: uint32(ch.number), Next: next}
		k.c.background.Go(func() {
			// How it is answered does not matter: it is asked again.
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = k.c.Request(ctx, protocol.CfgSent, protocol.AppendSent(nil, sent))
		})
	}
}

// askForLarger asks for pools for senders with a frame that fits none.
func (k *keeper) askForLarger() error {
	for _, ch := range k.c.channels {
		if !ch.tx.fitsNowhere(int(ch.tx.short.Load())) {
			continue
		}
		if err := k.ask(ch); err != nil {
			return err
		}
	}
	return nil
}

// ask asks the peer for another pool for a sender that lacks one, unless it has
// been asked a moment ago.
func (k *keeper) ask(ch *channel) error {
	if k.asking {
		return nil
	}
	if n := k.c.borrowed.lent.Load(); n != k.lent {
		k.lent, k.patience = n, patienceMin // the last one was granted
	}
	if time.Since(k.asked) < k.patience {
		return nil
	}
	size := int(ch.tx.short.Swap(0))
	if size == 0 {
		return nil
	}
	get, ok := k.wanted(ch.tx, size)
	if !ok {
		return nil
	}
	k.asking = true
	k.asked = time.Now()
	k.patience = min(2*k.patience, patienceMax)
	k.c.borrowed.asked.Add(1)
	// What comes with other elements is one of the first pools: those with a key
	// for each element take their time. The one that was asked for may come after
	// another one has been; then it goes back when the peer wants it to.
	ch.tx.asked.Store(int64(lentSize(get.ElementSize)))
	if err := k.c.control.send(func(dst []byte) []byte { return protocol.AppendBufferRecvPoolGet(dst, get) }); err != nil {
		return err
	}
	k.c.background.Go(func() {
		// The reply to a later request says that this one has been handled,
		// whatever the reply is.
		_, err := k.c.Request(context.Background(), protocol.CfgKeepAlive, nil)
		if status := (*StatusError)(nil); err == nil || errors.As(err, &status) {
			k.answered <- struct{}{} // has room: one is out at a time
		}
	})
	return nil
}

// wanted is the request for a pool of elements of at least size bytes: another
// one like the smallest that fits, or like the largest if none does.
func (k *keeper) wanted(s *sender, size int) (protocol.BufferRecvPoolGet, bool) {
	grants := *s.grants.Load()
	if len(grants) == 0 || len(grants) >= k.c.cfg.PeerPools {
		return protocol.BufferRecvPoolGet{}, false
	}
	like := grants[len(grants)-1]
	for _, g := range grants {
		if g.ElementSize() >= size {
			like = g
			break
		}
	}
	return protocol.BufferRecvPoolGet{
		ElementSize: uint32(max(like.ElementSize(), size)), Elements: uint32(like.Len()), Channel: uint32(s.ch.number),
	}, true
}

// grant lends the pool that the peer asks for, as far as the bounds allow it.
func (k *keeper) grant(g protocol.BufferRecvPoolGet) error {
	l := &k.c.lending
	ch := k.c.channels[g.Channel-1]
	h := &k.hungers[g.Channel-1]
	before := h.held
	if h.held = ch.rx.count.held.Load(); h.held != before {
		// It has no credit because its frames are held back. With more memory
		// they would only wait longer.
		k.refused.Add(1)
		return nil
	}
	largest := 0
	for _, p := range k.c.cfg.channel(ch.number).Pools {
		largest = max(largest, p.bytes())
	}
	// Not more memory than the largest of the first pools has.
	p := PoolConfig{ElementSize: lentSize(g.ElementSize)}
	p.Elements = min(int(g.Elements), extraElements, max(largest/p.ElementSize, 1))
	if p.ElementSize > MaxElementSize || l.count(ch) >= k.c.cfg.MaxPools || !k.grants.AllowN(k.c.cfg.now(), 1) {
		k.refused.Add(1)
		return nil
	}
	pool, err := l.make(ch, p, false)
	if err != nil {
		// No memory, or not allowed: the peer carries on with what it has.
		k.refused.Add(1)
		return nil
	}
	k.granted.Add(1)
	job := &retirement{then: func() error {
		pools := []*lentPool{pool}
		return l.expose(pools, func() error { return k.c.offer(pools) })
	}}
	job.left.Store(1)
	ch.rx.mail.put(letter{kind: letterAdopt, pool: pool, job: job})
	return nil
}

// lentSize is the size of the elements that are lent if the peer asks for
// elements of that size; over MaxElementSize if none are.
func lentSize(asked uint32) int { return roundUp(int(min(asked, MaxElementSize+1)), 64) }

// takeBack takes back a pool that was lent on request and is not used any
// more, or whose memory a new session needs.
func (k *keeper) takeBack(idle int) error {
	tight := k.c.cfg.Budget != nil && k.c.cfg.Budget.tight()
	for _, ch := range k.c.channels {
		for _, p := range k.c.lending.extras(ch) {
			if p.idle++; p.loan.Used() {
				p.idle = 0
			}
			if (p.idle < idle && !tight) || k.flushing != nil || k.taking || !k.c.lending.flushing(p) {
				continue
			}
			// One after the other: the update that acknowledges what was
			// indicated before the pool goes has to be on its way before the
			// next flush, whose reply says that it has been received.
			k.taking = true
			err := k.flush(p.ref, func() error {
				k.c.lending.retire([]*lentPool{p}, func() error {
					k.taking = false
					return nil
				})
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// flush asks the peer about a pool; then follows the reply.
func (k *keeper) flush(ref uint32, then func() error) error {
	return k.c.control.flush(k.begin(then), ref)
}

// begin is what comes before a flush goes out. It returns its transaction.
func (k *keeper) begin(then func() error) uint64 {
	k.transaction++
	k.flushing = then
	k.awaits.Store(k.transaction)
	return k.transaction
}

// giveBack begins to give back a pool of the peer's that came on request and is
// not used any more.
func (k *keeper) giveBack(idle int) {
	for _, ch := range k.c.channels {
		for _, g := range *ch.tx.grants.Load() {
			if g.idle++; g.used.Swap(false) {
				g.idle = 0
			}
			if !g.extra || g.idle < idle || k.giving {
				continue
			}
			job := &retirement{then: func() error {
				k.quiet <- g // has room: one is on its way at a time
				return nil
			}}
			job.left.Store(1)
			k.giving = k.c.borrowed.giveBack(g, job)
		}
	}
}

// give gives back a pool that its sender has stopped using.
func (k *keeper) give(g *grantedPool) error {
	if k.flushing != nil {
		// Another flush is out; its reply comes back to this one.
		then := k.flushing
		k.flushing = func() error { return errors.Join(then(), k.again(g)) }
		return nil
	}
	k.giving = false
	return k.c.borrowed.take(g, func() uint64 {
		return k.begin(func() error { return nil }) // the control handler has done it
	})
}

// again puts a pool back in line to be given.
func (k *keeper) again(g *grantedPool) error {
	k.quiet <- g
	return nil
}
