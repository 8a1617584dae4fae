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

// poolManager carries out what the session's pools say is to be done: see
// bufpool.Pools, where the life of a pool is. What concerns a data channel is handed
// to the channel's sender or receiver; the rest is done, in order, by a goroutine of
// its own. A ticker tells the pools when it is time to look for idle ones and which
// channels lack credits.
type poolManager struct {
	c        *shared
	control  *controlSends
	requests *requests
	kick     chan struct{} // there is something in queue
	short    chan struct{} // a frame fits no pool, or a sender wants more slots
	beat     atomic.Pointer[ticker.Task]
	resting  atomic.Bool // the beat is: see stir

	mu      sync.Mutex // guards what follows
	pools   *bufpool.Pools
	gone    chan struct{}    // closed when there is no pool any more, at the end
	actions []bufpool.Action // of the event in hand
	queue   []bufpool.Action // the manager's

	extraPools *rate.Limiter // pools that may be lent on request
	pace       *rate.Limiter // of what pools of the peer's cost
	held       atomic.Uint64 // flushes of the peer's that were answered later, because there were too many

	channels []poolChannel
}

const (
	// Pauses between requests for more pools.
	patienceMin = 100 * time.Millisecond
	patienceMax = 5 * time.Second
	// extraPoolRate is how many pools are lent on request in a second in the long run:
	// no peer asks as often that keeps these pauses. Each is memory that the kernel
	// maps, pins and gives back, while it holds up the other sessions' too.
	extraPoolRate = rate.Limit(2 / (float64(patienceMin) / float64(time.Second)))
	// sentAfter is how long a sender on an unreliable channel has no credit
	// before it suspects that messages were lost.
	sentAfter = 50 * time.Millisecond
	// What the peer may have its pools cost, in elements: as many at once as a data
	// channel has, and that in a second in the long run. Each pool costs poolCost
	// besides. A peer that lends pools on request, and takes them back when they are
	// not used, comes nowhere near it.
	costBurst = MaxChannelElements
	costRate  = MaxChannelElements
	poolCost  = 256
)

// interval is how often the manager looks around.
func poolInterval(cfg *Config) time.Duration {
	if cfg.Mode == protocol.ModeSendUC {
		return sentAfter / 2
	}
	return min(250*time.Millisecond, cfg.PoolIdle/4)
}

// poolChannel is what the pool manager knows of a channel, and what it remembers:
// whether its sender lacks credits.
type poolChannel struct {
	number   int
	sender   *queue[sqRequest]
	receiver *queue[rxEvent]
	credits  *credits
	slots    *sendSlots
	sequence *atomic.Uint64 // send modes: of the next message
	tx       *txCounters
	rx       *rxCounters

	noCredit uint64 // the sender's counter at the last look
	held     uint64 // the receiver's counter when the peer last asked for a pool
	looks    int    // in a row that found the sender asleep without credit
}

func newPoolManager(c *shared, control *controlSends, requests *requests) *poolManager {
	cfg := &c.cfg
	m := &poolManager{
		c: c, control: control, requests: requests, kick: make(chan struct{}, 1), short: make(chan struct{}, 1),
		// At once at most as many as there can be.
		extraPools: rate.NewLimiter(extraPoolRate, cfg.Queues*cfg.MaxPools),
		pace:       rate.NewLimiter(costRate, costBurst),
	}
	m.pools = bufpool.NewPools(bufpool.Config{
		Channels: cfg.Queues, MaxPools: cfg.MaxPools, PeerPools: cfg.PeerPools,
		MaxElements: MaxChannelElements, KeptPools: MaxPools,
		OneTouch: cfg.Protection == ProtectOneTouch, Invalidates: cfg.invalidates(),
		KeySend:      cfg.sendsKeys(),
		PeerOneTouch: cfg.OneTouch && !cfg.Mode.Sends(),
		IdleTicks:    int(cfg.PoolIdle / poolInterval(cfg)),
		PatienceMin:  patienceMin, PatienceMax: patienceMax,
	})
	return m
}

// notify has the pools hear of an event, and hands on what is to be done. It never
// waits. An error is the peer's fault.
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
		close(m.gone) // what is left to be sent about them is in the senders' queues
		m.gone = nil
	}
	return nil
}

// stir ends the rest of the looks, because something has changed that they decide on. The
// manager's goroutine does that: a sender does not take the ticker's lock, which is that of
// all sessions.
func (m *poolManager) stir() {
	if m.resting.Load() && m.resting.Swap(false) {
		raise(m.short)
	}
}

// end has all pools go, and returns what is closed when they are gone.
func (m *poolManager) end() (<-chan struct{}, error) {
	gone := make(chan struct{})
	m.mu.Lock()
	m.gone = gone
	m.mu.Unlock()
	return gone, m.notify(bufpool.Event{Kind: bufpool.Ending})
}

// raise has who waits for a channel of capacity one look.
func raise(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hand hands an action to who has to carry it out. The caller holds the lock, which
// keeps the order.
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

// work carries out what is queued.
func (m *poolManager) work() error {
	m.mu.Lock()
	queue := m.queue
	m.queue = nil
	m.mu.Unlock()
	for len(queue) > 0 {
		n := 1
		if queue[0].Do == bufpool.Offer { // with those behind it, in one message
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
		// By requests, for whose replies no worker waits.
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
			pools = append(pools, m.c.cfg.exposed(actions[i].Local))
		}
		return control.send(func(dst []byte) []byte { return protocol.AppendBufferRecvPool(dst, 0, pools...) })
	case bufpool.Ask:
		return m.ask(a)
	case bufpool.Request:
		return control.send(func(dst []byte) []byte {
			return protocol.AppendBufferPoolFlushRequest(dst, a.Transaction, a.Ref)
		})
	case bufpool.Reply:
		return m.reply(a)
	default:
		return m.deregister(a.Local)
	}
}

// remote is the peer's pool with a reference, or the latest that had it; nil if
// there is none.
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

// first makes one of the first pools of a channel. It is adopted and offered later.
func (m *poolManager) first(channel int, p PoolConfig) (*bufpool.Local, error) {
	m.mu.Lock()
	l := m.pools.First(channel)
	m.mu.Unlock()
	return l, m.register(l, p, true)
}

// lend makes the pool that the peer has asked for, as far as the bounds allow it.
func (m *poolManager) lend(a *bufpool.Action) error {
	failed := bufpool.Event{Kind: bufpool.Failed, Local: a.Local}
	ch := &m.channels[a.Channel-1]
	before := ch.held
	if ch.held = ch.rx.RxThrottled.Load(); ch.held != before {
		// It has no credit because its frames are held back. With more memory
		// they would only wait longer.
		return m.notify(failed)
	}
	largest := 0
	for _, p := range m.c.cfg.channel(ch.number).Pools {
		largest = max(largest, p.bytes())
	}
	// Not more memory than the largest of the first pools has.
	p := PoolConfig{ElementSize: bufpool.LentSize(a.Size)}
	p.Elements = min(a.Elements, extraElements, max(largest/p.ElementSize, 1))
	if p.ElementSize > MaxElementSize || !m.extraPools.AllowN(m.c.cfg.now(), 1) || m.register(a.Local, p, false) != nil {
		// No memory, or not allowed: the peer carries on with what it has.
		return m.notify(failed)
	}
	return m.notify(bufpool.Event{Kind: bufpool.Registered, Local: a.Local})
}

// register gives a pool its memory and makes it known to the device, with the windows
// that protect it, which are not bound yet.
func (m *poolManager) register(l *bufpool.Local, p PoolConfig, first bool) (err error) {
	cfg := &m.c.cfg
	if l.Arena, err = m.c.memory.get(p.bytes(), first); err != nil {
		return err
	}
	mem := l.Arena.Bytes()[:p.ElementSize*p.Elements]
	access := fabric.LocalWrite | fabric.RemoteWrite
	windows, regions := 0, 1
	switch {
	case cfg.Mode.Sends():
		mem = nil                  // the elements are receives
		access = fabric.LocalWrite // written through the receive queue alone
	case cfg.Protection == ProtectWindow:
		// Without a key that the peer could use beside that of the window.
		access, windows = fabric.LocalWrite|fabric.WindowBind, 1
	case cfg.Protection == ProtectOneTouch:
		access, windows, l.OneTouch = fabric.LocalWrite|fabric.WindowBind, p.Elements, true
		if !cfg.Device.Limits().WindowBounds {
			regions = windows // so that something bounds each window
		}
	}
	if windows == 0 && !cfg.StrictOrdering {
		// Elements are looked at when a completion, or an indication, names them.
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

// deregister ends a pool that nobody uses any more.
func (m *poolManager) deregister(l *bufpool.Local) error {
	if err := l.Deregister(); err != nil {
		return fmt.Errorf("deregister pool %d: %w", l.Ref, err)
	}
	if err := m.c.memory.put(l.Arena); err != nil {
		return err
	}
	return m.notify(bufpool.Event{Kind: bufpool.Deregistered, Local: l})
}

// sendKeys sends the peer the keys of a one-touch pool's elements, before it is lent.
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
		// The reply to a later request says that this one has been handled,
		// whatever the reply is.
		_, err := m.requests.request(context.Background(), protocol.CfgKeepAlive, nil)
		if status := (*StatusError)(nil); err != nil && !errors.As(err, &status) {
			return err
		}
		return m.notify(bufpool.Event{Kind: bufpool.Answered})
	})
	return nil
}

// reply answers the peer's flush, when what its pools cost may have been spent.
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

// hearKeys hears the keys of a pool that the peer is about to lend.
func (m *poolManager) hearKeys(data []byte) protocol.CfgStatus {
	if !m.c.cfg.OneTouch || m.c.cfg.Mode.Sends() {
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

// nudge tells the manager that a frame fits no pool, or that a sender wants more slots.
// It never waits.
func (m *poolManager) nudge() { raise(m.short) }
