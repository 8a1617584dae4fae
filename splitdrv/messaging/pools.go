package messaging

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
)

// poolManager carries out the actions of bufpool.Pools, the state machine of the session's
// pools. It passes actions that concern the queue pair of a data channel to the sender or
// receiver of that channel. Its own goroutine carries out all others, in order. A ticker
// sends ticks to the pools, with which they find idle pools, and checks which channels
// lack credits.
type poolManager struct {
	c        *shared
	o        poolOptions
	control  *controlSends
	requests *requests
	kick     chan struct{} // signals that queue is not empty
	short    chan struct{} // signals that a frame fits no pool, or that a sender needs more slots
	interval time.Duration // between two ticks
	beat     atomic.Pointer[ticker.Task]
	resting  atomic.Bool // beat rests: see stir

	mu      sync.Mutex // guards the fields up to queue
	pools   *bufpool.Pools
	gone    chan struct{}    // closed when the last pool has ended; nil before the session ends
	actions []bufpool.Action // actions of the current event
	queue   []bufpool.Action // actions for the manager's goroutine

	extraPools *rate.Limiter // pools lent on request
	pace       *rate.Limiter // cost of the peer's flushes, in elements
	held       atomic.Uint64 // flushes of the peer that were answered late because of pace

	channels []poolChannel
}

const (
	// Pauses between requests for more pools.
	patienceMin = 100 * time.Millisecond
	patienceMax = 5 * time.Second
	// extraPoolRate is how many pools a second are lent on request in the long run. A peer
	// that keeps the pauses above asks less often. The kernel maps, pins and frees memory
	// for each pool, and delays other sessions meanwhile.
	extraPoolRate = rate.Limit(2 / (float64(patienceMin) / float64(time.Second)))
	// sentAfter is how long a sender on an unreliable channel has no credit
	// before it suspects that messages were lost.
	sentAfter = 50 * time.Millisecond
	// The cost that the peer's flushes may cause, in elements: at once as many as a data
	// channel has, and as many a second in the long run. Each pool costs another poolCost.
	// A peer that lends pools on request and takes idle ones back needs far less.
	costBurst = MaxChannelElements
	costRate  = MaxChannelElements
	poolCost  = 256
)

// poolInterval is the time between two ticks.
func poolInterval(mode protocol.Mode, idle time.Duration) time.Duration {
	if mode == protocol.ModeSendUC {
		return sentAfter / 2
	}
	return min(250*time.Millisecond, idle/4)
}

// poolChannel has the parts of a data channel that the pool manager uses, and what it
// needs to detect that the sender lacks credits.
type poolChannel struct {
	number   int
	pools    []PoolConfig // first pools
	sender   *queue[sqRequest]
	receiver *queue[rxEvent]
	credits  *credits
	slots    *sendSlots
	sequence *atomic.Uint64 // send modes: sequence number of the next message
	tx       *txCounters
	rx       *rxCounters

	noCredit uint64 // value of TxNoCredit at the last tick
	held     uint64 // value of RxThrottled when the peer last asked for a pool
	looks    int    // ticks in a row at which the sender slept without credit
}

func newPoolManager(c *shared, o poolOptions, control *controlSends, requests *requests) *poolManager {
	m := &poolManager{
		c: c, o: o, control: control, requests: requests, kick: make(chan struct{}, 1), short: make(chan struct{}, 1),
		// The burst is the largest number of pools that there can be.
		extraPools: rate.NewLimiter(extraPoolRate, o.Channels*c.maxPools),
		pace:       rate.NewLimiter(costRate, costBurst),
		interval:   poolInterval(c.mode, o.Idle),
	}
	m.pools = bufpool.NewPools(bufpool.Config{
		Channels: o.Channels, MaxPools: c.maxPools, PeerPools: o.PeerPools,
		MaxElements: MaxChannelElements, KeptPools: MaxPools,
		OneTouch: o.OneTouch, Invalidates: o.Windows && o.Invalidation, KeySend: o.Windows && o.KeySend,
		PeerOneTouch: o.PeerOneTouch && !c.mode.Sends(),
		IdleTicks:    int(o.Idle / m.interval),
		PatienceMin:  patienceMin, PatienceMax: patienceMax,
	})
	return m
}

// notify passes an event to the pools, and their actions to the goroutines that carry them
// out. It never waits. An error means that the peer has broken the protocol.
func (m *poolManager) notify(e bufpool.Event) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.actions, err = m.pools.Step(&e, m.actions[:0]); err != nil {
		return err
	}
	if e.Kind != bufpool.Tick {
		m.stir()
	}
	queued := len(m.queue)
	for i := range m.actions {
		m.hand(&m.actions[i])
	}
	if len(m.queue) > queued {
		raise(m.kick)
	}
	if m.gone != nil && m.pools.Gone() {
		close(m.gone) // the remaining messages about the pools are in the senders' queues
		m.gone = nil
	}
	return nil
}

// stir makes the beat tick again, because a pool or a sender's need for credits has
// changed. The manager's goroutine does it, so that a sender does not take the ticker's
// lock, which all sessions share.
func (m *poolManager) stir() {
	if m.resting.Load() && m.resting.Swap(false) {
		raise(m.short)
	}
}

// end ends all pools, and returns a channel that is closed when they have ended.
func (m *poolManager) end() (<-chan struct{}, error) {
	gone := make(chan struct{})
	m.mu.Lock()
	m.gone = gone
	m.mu.Unlock()
	return gone, m.notify(bufpool.Event{Kind: bufpool.Ending})
}

// hand passes an action to the goroutine that carries it out. The caller holds the lock,
// which keeps the actions in order.
func (m *poolManager) hand(a *bufpool.Action) {
	switch l, r := a.Local, a.Remote; a.Do {
	case bufpool.Adopt:
		m.channels[l.Channel-1].receiver.put(rxEvent{kind: rxAdopt, pool: l})
	case bufpool.Drain:
		m.channels[l.Channel-1].receiver.put(rxEvent{kind: rxDrain, pool: l})
	case bufpool.Bind:
		m.channels[l.Channel-1].sender.put(sqRequest{kind: sqBind, lent: l})
	case bufpool.BindSend:
		m.channels[l.Channel-1].sender.put(sqRequest{kind: sqBindSend, lent: l})
	case bufpool.Unbind:
		m.channels[l.Channel-1].sender.put(sqRequest{kind: sqUnbind, lent: l})
	case bufpool.Use:
		credits := m.channels[r.Channel-1].credits
		credits.add(r)
		credits.came()
	case bufpool.Stop:
		ch := &m.channels[r.Channel-1]
		ch.credits.remove(r)
		ch.sender.put(sqRequest{kind: sqDrain, pool: r, last: a.Last})
	case bufpool.Invalidate:
		m.channels[r.Channel-1].sender.put(sqRequest{kind: sqInvalidate, pool: r})
	default:
		m.queue = append(m.queue, *a)
	}
}

// work carries out the queued actions.
func (m *poolManager) work() error {
	m.mu.Lock()
	queue := m.queue
	m.queue = nil
	m.mu.Unlock()
	for len(queue) > 0 {
		n := 1
		if queue[0].Do == bufpool.Offer { // offers in a row share a message
			for n < min(len(queue), protocol.MaxPoolsPerMessage) && queue[n].Do == bufpool.Offer {
				n++
			}
		}
		if err := m.do(queue[:n]); err != nil {
			return err
		}
		queue = queue[n:]
	}
	return nil
}

// do carries out an action, or several offers.
func (m *poolManager) do(actions []bufpool.Action) error {
	a, control := &actions[0], m.control
	switch a.Do {
	case bufpool.Make:
		return m.lend(a)
	case bufpool.SendKeys:
		// The requests wait for replies, which the manager's goroutine must not do.
		m.c.inBackground(func() error {
			if err := m.sendKeys(a.Local); err != nil {
				return err
			}
			return m.notify(bufpool.Event{Kind: bufpool.KeysSent, Local: a.Local})
		})
		return nil
	case bufpool.Offer:
		pools := make([]protocol.Pool, 0, len(actions))
		for i := range actions {
			pools = append(pools, m.exposed(actions[i].Local))
		}
		return control.send(func(dst []byte) []byte { return protocol.AppendBufferRecvPool(dst, 0, pools...) })
	case bufpool.Ask:
		return m.ask(a)
	case bufpool.Request:
		return control.send(func(dst []byte) []byte {
			return protocol.AppendBufferPoolFlushRequest(dst, a.Transaction, a.Refs...)
		})
	case bufpool.Reply:
		return m.reply(a)
	default:
		return m.deregister(a.Local)
	}
}

// exposed returns the description of a local pool for the peer.
func (m *poolManager) exposed(l *bufpool.Local) protocol.Pool {
	o := protocol.Pool{
		Ref: l.Ref, Elements: uint32(l.Elements.Len()), ElementSize: uint32(l.Elements.ElementSize()),
		Context: protocol.PoolContext(uint16(l.Channel), 0),
	}
	switch {
	case m.c.mode.Sends():
	case m.o.OneTouch:
		o.Addr = l.Regions[0].Addr() // its keys were sent before
	case m.o.Windows:
		o.Addr = l.Regions[0].Addr()
		own := uint64(0)
		if m.o.Invalidation {
			own |= protocol.PoolInvalidate
		}
		if l.KeyFollows(m.o.KeySend) {
			own |= protocol.PoolKeyFollows
		} else {
			o.RKey = l.Keys[0]
		}
		o.Context = protocol.PoolContext(uint16(l.Channel), own)
	default:
		o.RKey, o.Addr = l.Regions[0].RKey(), l.Regions[0].Addr()
	}
	return o
}

// remote returns the remote pool with a reference, or the last one that had it. It is nil
// if there was none.
func (m *poolManager) remote(ref uint32) *bufpool.Remote {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools.Remote(ref)
}

func (m *poolManager) count() bufpool.Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools.Count()
}

// first creates and registers one of the first pools of a channel. It is adopted and
// offered later.
func (m *poolManager) first(channel int, p PoolConfig) (*bufpool.Local, error) {
	m.mu.Lock()
	l := m.pools.First(channel)
	m.mu.Unlock()
	return l, m.register(l, p, true)
}

// lend creates the pool that the peer has asked for, within the limits.
func (m *poolManager) lend(a *bufpool.Action) error {
	failed := bufpool.Event{Kind: bufpool.Failed, Local: a.Local}
	ch := &m.channels[a.Channel-1]
	before := ch.held
	if ch.held = ch.rx.RxThrottled.Load(); ch.held != before {
		// The peer lacks credits because the port holds its frames back. With more
		// memory they would only wait longer.
		return m.notify(failed)
	}
	largest := 0
	for _, p := range ch.pools {
		largest = max(largest, p.bytes())
	}
	// The pool gets no more memory than the largest of the first pools.
	p := PoolConfig{ElementSize: bufpool.LentSize(a.Size)}
	p.Elements = min(a.Elements, extraElements, max(largest/p.ElementSize, 1))
	if p.ElementSize > MaxElementSize || !m.extraPools.AllowN(m.o.Now(), 1) || m.register(a.Local, p, false) != nil {
		// There is no memory for it, or it is not allowed. The peer uses its other pools.
		return m.notify(failed)
	}
	return m.notify(bufpool.Event{Kind: bufpool.Registered, Local: a.Local})
}

// register allocates and registers the memory of a pool, and creates its windows, which
// are bound later.
func (m *poolManager) register(l *bufpool.Local, p PoolConfig, first bool) (err error) {
	if l.Arena, err = m.c.memory.get(p.bytes(), first); err != nil {
		return err
	}
	mem := l.Arena.Bytes()[:p.ElementSize*p.Elements]
	access := fabric.LocalWrite | fabric.RemoteWrite
	windows, regions := 0, 1
	switch {
	case m.c.mode.Sends():
		mem = nil                  // the elements are receive buffers
		access = fabric.LocalWrite // only receives write to them
	case m.o.Windows:
		// No remote access: the window's key must be the only one that the peer can use.
		access, windows = fabric.LocalWrite|fabric.WindowBind, 1
	case m.o.OneTouch:
		access, windows, l.OneTouch = fabric.LocalWrite|fabric.WindowBind, p.Elements, true
		if !m.o.WindowBounds {
			regions = windows // the regions bound what the windows do not
		}
	}
	if windows == 0 && !m.o.StrictOrdering && !p.indicated(m.c.mode) {
		// An element is read only after its completion. An indication comes on another queue pair,
		// and says nothing about the order in which the data becomes visible.
		access |= fabric.Relaxed
	}
	l.Elements = bufpool.NewElements(mem, p.ElementSize, p.Elements)
	if err = l.Register(m.c.domain, access, regions, windows); err != nil {
		err = fmt.Errorf("register a pool of %d elements of %d bytes: %w", p.Elements, p.ElementSize, err)
		if !first {
			err = errors.Join(err, l.Deregister(), m.c.memory.put(l.Arena))
		}
	}
	return err
}

// deregister deregisters and frees a pool that has ended.
func (m *poolManager) deregister(l *bufpool.Local) error {
	if err := l.Deregister(); err != nil {
		return fmt.Errorf("deregister pool %d: %w", l.Ref, err)
	}
	if err := m.c.memory.put(l.Arena); err != nil {
		return err
	}
	return m.notify(bufpool.Event{Kind: bufpool.Deregistered, Local: l})
}

// sendKeys sends the keys of the elements of a one-touch pool to the peer, before the pool
// is lent.
func (m *poolManager) sendKeys(l *bufpool.Local) error {
	for first := 0; first < len(l.Keys); first += protocol.MaxPoolKeys {
		some := l.Keys[first:min(first+protocol.MaxPoolKeys, len(l.Keys))]
		data := protocol.AppendPoolKeys(nil, l.Ref, uint32(first), some)
		if _, err := m.requests.request(context.Background(), protocol.CfgPoolKeys, data); err != nil {
			return fmt.Errorf("send the keys of pool %d: %w", l.Ref, err)
		}
	}
	return nil
}

// ask asks the peer for another pool.
func (m *poolManager) ask(a *bufpool.Action) error {
	m.channels[a.Channel-1].credits.short.Store(0)
	if err := m.control.send(func(dst []byte) []byte {
		return protocol.AppendBufferRecvPoolGet(dst, protocol.BufferRecvPoolGet{
			ElementSize: uint32(a.Size), Elements: uint32(a.Elements), Channel: uint32(a.Channel),
		})
	}); err != nil {
		return err
	}
	m.c.inBackground(func() error {
		// BufferRecvPoolGet has no reply. The reply to a later request, whatever it says,
		// shows that the peer has handled it.
		_, err := m.requests.request(context.Background(), protocol.CfgKeepAlive, nil)
		if status := (*StatusError)(nil); err != nil && !errors.As(err, &status) {
			return err
		}
		return m.notify(bufpool.Event{Kind: bufpool.Answered})
	})
	return nil
}

// reply answers the peer's flush, as soon as pace allows the cost of its pools.
func (m *poolManager) reply(a *bufpool.Action) error {
	wait, now := time.Duration(0), time.Now()
	for n := a.Pools*poolCost + a.Elements; n > 0; {
		some := min(n, costBurst)
		n -= some
		wait = m.pace.ReserveN(now, some).DelayFrom(now)
	}
	reply := func() error {
		if err := m.notify(bufpool.Event{Kind: bufpool.Replying}); err != nil {
			return err
		}
		return m.control.send(func(dst []byte) []byte { return protocol.AppendBufferPoolFlushReply(dst, a.Transaction) })
	}
	if wait <= 0 {
		return reply()
	}
	m.held.Add(1)
	m.c.inBackground(func() error {
		if !m.c.sleep(wait) {
			return net.ErrClosed
		}
		return reply()
	})
	return nil
}

// hearKeys handles a request with keys of a one-touch pool that the peer is about to lend.
func (m *poolManager) hearKeys(data []byte) protocol.CfgStatus {
	if !m.o.PeerOneTouch || m.c.mode.Sends() {
		return protocol.CfgUnsupported
	}
	k, err := protocol.DecodePoolKeys(data)
	if err != nil {
		return protocol.CfgInvalid
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools.HearKeys(k) != nil {
		return protocol.CfgInvalid
	}
	return protocol.CfgOK
}

// nudge signals that a frame fits no pool, or that a sender needs more slots. It never
// waits.
func (m *poolManager) nudge() { raise(m.short) }
