package pools

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
	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// Manager carries out the actions of bufpool.Pools, the state machine of the session's
// pools. It passes actions that concern the queue pair of a data channel to the sender or
// receiver of that channel. Its own goroutine carries out all others, in order. A ticker
// sends ticks to the pools, with which they find idle pools, and checks which channels
// lack credits.
type Manager struct {
	c        *core.Session
	o        Options
	control  *control.Sends
	requests *control.Requests
	queued   chan struct{} // wakes the manager's goroutine: queue is not empty
	needs    chan struct{} // wakes it: see WakeForNeeds
	interval time.Duration // between two ticks
	beat     atomic.Pointer[ticker.Task]
	Resting  atomic.Bool // beat rests: see WakeTicks

	mu      sync.Mutex // guards the fields up to queue
	pools   *bufpool.Pools
	gone    chan struct{}    // closed when the last pool has ended; nil before the session ends
	actions []bufpool.Action // actions of the current event
	queue   []bufpool.Action // actions for the manager's goroutine

	extraPools *rate.Limiter // pools lent on request
	pace       *rate.Limiter // cost of the peer's flushes, in elements
	Held       atomic.Uint64 // flushes of the peer that were answered late because of pace

	channels []*Channel
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
	if mode.Lossy() {
		return sentAfter / 2
	}
	return min(250*time.Millisecond, idle/4)
}

// New makes a pool manager without channels, which AddChannel adds. Its goroutine is Run.
func New(c *core.Session, o Options, control *control.Sends, requests *control.Requests) *Manager {
	m := &Manager{
		c: c, o: o, control: control, requests: requests, queued: make(chan struct{}, 1), needs: make(chan struct{}, 1),
		// The burst is the largest number of pools that there can be.
		extraPools: rate.NewLimiter(extraPoolRate, o.Channels*c.MaxPools),
		pace:       rate.NewLimiter(costRate, costBurst),
		interval:   poolInterval(c.Mode, o.Idle),
	}
	m.pools = bufpool.NewPools(bufpool.Config{
		Channels: o.Channels, MaxPools: c.MaxPools, PeerPools: o.PeerPools,
		MaxElements: MaxChannelElements, KeptPools: MaxPools,
		OneTouch: o.OneTouch, Invalidates: o.Windows && o.Invalidation, KeySend: o.Windows && o.KeySend,
		PeerOneTouch: o.PeerOneTouch && !c.Mode.Sends(),
		IdleTicks:    int(o.Idle / m.interval),
		PatienceMin:  patienceMin, PatienceMax: patienceMax,
	})
	return m
}

// AddChannel adds the next data channel. The sizes of its first pools are those of first. It has at most
// slots send slots of slotSize bytes.
func (m *Manager) AddChannel(first []Config, slots, slotSize int) (ch *Channel, err error) {
	ch = &Channel{Sender: &Sending{}, Receiver: &Receiving{}, number: len(m.channels) + 1, first: first}
	if ch.Sender.Slots, err = newSlots(m.c, slots, slotSize); err != nil {
		return nil, err
	}
	if ch.Sender.Queue.Event, err = m.c.NewEvent(); err != nil {
		return nil, err
	}
	ch.Sender.Credits.init(ch.Sender.Queue.Event)
	if ch.Receiver.Queue.Event, err = m.c.NewEvent(); err != nil {
		return nil, err
	}
	m.channels = append(m.channels, ch)
	return ch, nil
}

// Notify passes an event to the pools, and their actions to the goroutines that carry them
// out. It never waits. An error means that the peer has broken the protocol.
func (m *Manager) Notify(e bufpool.Event) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.actions, err = m.pools.Step(&e, m.actions[:0]); err != nil {
		return err
	}
	if e.Kind != bufpool.Tick {
		m.WakeTicks()
	}
	queued := len(m.queue)
	for i := range m.actions {
		m.pass(&m.actions[i])
	}
	if len(m.queue) > queued {
		wake.Up(m.queued)
	}
	if m.gone != nil && m.pools.Gone() {
		close(m.gone) // the remaining messages about the pools are in the senders' queues
		m.gone = nil
	}
	return nil
}

// WakeTicks makes the beat tick again, because a pool or a sender's need for credits has
// changed. The manager's goroutine does it, so that a sender does not take the ticker's
// lock, which all sessions share.
func (m *Manager) WakeTicks() {
	if m.Resting.Load() && m.Resting.Swap(false) {
		wake.Up(m.needs)
	}
}

// End ends all pools, and returns a channel that is closed when they have ended.
func (m *Manager) End() (<-chan struct{}, error) {
	gone := make(chan struct{})
	m.mu.Lock()
	m.gone = gone
	m.mu.Unlock()
	return gone, m.Notify(bufpool.Event{Kind: bufpool.Ending})
}

// pass passes an action to the goroutine that carries it out. The caller holds the lock,
// which keeps the actions in order.
func (m *Manager) pass(act *bufpool.Action) {
	switch act.Do {
	case bufpool.Adopt, bufpool.Drain:
		m.channels[act.Local.Channel-1].Receiver.Queue.Put(core.RxEvent{Do: act.Do, Local: act.Local})
	case bufpool.Bind, bufpool.BindSend, bufpool.Unbind:
		m.channels[act.Local.Channel-1].Sender.Queue.Put(*act)
	case bufpool.Use:
		sender := m.channels[act.Remote.Channel-1].Sender
		sender.add(act.Remote)
		sender.Credits.Wake()
	case bufpool.Stop, bufpool.Invalidate:
		ch := m.channels[act.Remote.Channel-1]
		if act.Do == bufpool.Stop {
			ch.Sender.remove(act.Remote)
		}
		ch.Sender.Queue.Put(*act)
	case bufpool.Make, bufpool.SendKeys, bufpool.Offer, bufpool.Ask, bufpool.Request, bufpool.Reply, bufpool.Deregister:
		m.queue = append(m.queue, *act)
	case bufpool.Consume, bufpool.Revoke, bufpool.Rebind: // not actions of Pools
	}
}

// work carries out the queued actions.
func (m *Manager) work() error {
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
func (m *Manager) do(actions []bufpool.Action) error {
	act, control := &actions[0], m.control
	switch act.Do {
	case bufpool.Make:
		return m.lend(act)
	case bufpool.SendKeys:
		// The requests wait for replies, which the manager's goroutine must not do.
		m.c.InBackground(func() error {
			if err := m.sendKeys(act.Local); err != nil {
				return err
			}
			return m.Notify(act.Done())
		})
		return nil
	case bufpool.Offer:
		pools := make([]protocol.Pool, 0, len(actions))
		for i := range actions {
			pools = append(pools, m.exposed(actions[i].Local))
		}
		return control.Send(func(dst []byte) []byte { return protocol.AppendBufferRecvPool(dst, 0, pools...) })
	case bufpool.Ask:
		return m.ask(act)
	case bufpool.Request:
		return control.Send(func(dst []byte) []byte {
			return protocol.AppendBufferPoolFlushRequest(dst, act.Transaction, act.Refs...)
		})
	case bufpool.Reply:
		return m.reply(act)
	case bufpool.Deregister:
		return m.deregister(act)
	default:
		return nil // the actions of others, which pass has passed on
	}
}

func (m *Manager) exposed(l *bufpool.Local) protocol.Pool {
	o := protocol.Pool{
		Ref: l.Ref, Elements: uint32(l.Elements.Len()), ElementSize: uint32(l.Elements.ElementSize()),
		Context: protocol.PoolContext(uint16(l.Channel), 0),
	}
	switch {
	case m.c.Mode.Sends():
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

// Remote returns the remote pool with a reference, or the last one that had it. It is nil
// if there was none.
func (m *Manager) Remote(ref uint32) *bufpool.Remote {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools.Remote(ref)
}

// Count returns how many pools were asked for, lent and returned.
func (m *Manager) Count() bufpool.Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pools.Count()
}

// First creates and registers one of the first pools of a channel. It is adopted and
// offered later.
func (m *Manager) First(channel int, p Config) (*bufpool.Local, error) {
	m.mu.Lock()
	l := m.pools.First(channel)
	m.mu.Unlock()
	return l, m.register(l, p, true)
}

// lend creates the pool that the peer has asked for, within the limits.
func (m *Manager) lend(act *bufpool.Action) error {
	failed := bufpool.Event{Kind: bufpool.Failed, Local: act.Local}
	ch := m.channels[act.Channel-1]
	before := ch.held
	if ch.held = ch.Receiver.Count.RxThrottled.Load(); ch.held != before {
		// The peer lacks credits because the port holds its frames back. With more
		// memory they would only wait longer.
		return m.Notify(failed)
	}
	largest := 0
	for _, p := range ch.first {
		largest = max(largest, p.Bytes())
	}
	// The pool gets no more memory than the largest of the first pools.
	p := Config{ElementSize: bufpool.LentSize(act.Size)}
	p.Elements = min(act.Elements, ExtraElements, max(largest/p.ElementSize, 1))
	if p.ElementSize > MaxElementSize || !m.extraPools.AllowN(m.o.Now(), 1) || m.register(act.Local, p, false) != nil {
		// There is no memory for it, or it is not allowed. The peer uses its other pools.
		return m.Notify(failed)
	}
	return m.Notify(act.Done())
}

// register allocates and registers the memory of a pool, and creates its windows, which
// are bound later.
func (m *Manager) register(l *bufpool.Local, p Config, first bool) (err error) {
	indicated := p.Indicated(m.c.Mode, l.Ref)
	if indicated {
		what := fmt.Sprintf("pool %d of %d elements of %d bytes in mode %s", l.Ref, p.Elements, p.ElementSize, m.c.Mode)
		if err := device.Late(m.c.Device, what, "use another mode, or a smaller MTU"); err != nil {
			return err
		}
	}
	if l.Arena, err = m.c.Memory.Get(p.Bytes(), first); err != nil {
		return err
	}
	mem := l.Arena.Bytes()[:p.ElementSize*p.Elements]
	access := fabric.LocalWrite | fabric.RemoteWrite
	windows, regions := 0, 1
	switch {
	case m.c.Mode.Sends():
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
	if windows == 0 && !m.o.StrictOrdering && !indicated {
		// An element is read only after its completion. An indication comes on another queue pair,
		// and says nothing about the order in which the data becomes visible.
		access |= fabric.Relaxed
	}
	l.Elements = bufpool.NewElements(mem, p.ElementSize, p.Elements)
	if err = l.Register(m.c.Domain, access, regions, windows); err != nil {
		err = fmt.Errorf("register a pool of %d elements of %d bytes: %w", p.Elements, p.ElementSize, err)
		if !first {
			err = errors.Join(err, l.Deregister(), m.c.Memory.Put(l.Arena))
		}
	}
	return err
}

// deregister deregisters and frees a pool that has ended.
func (m *Manager) deregister(act *bufpool.Action) error {
	l := act.Local
	if err := l.Deregister(); err != nil {
		return fmt.Errorf("deregister pool %d: %w", l.Ref, err)
	}
	if err := m.c.Memory.Put(l.Arena); err != nil {
		return err
	}
	return m.Notify(act.Done())
}

// sendKeys sends the keys of the elements of a one-touch pool to the peer, before the pool
// is lent.
func (m *Manager) sendKeys(l *bufpool.Local) error {
	for first := 0; first < len(l.Keys); first += protocol.MaxPoolKeys {
		some := l.Keys[first:min(first+protocol.MaxPoolKeys, len(l.Keys))]
		data := protocol.AppendPoolKeys(nil, l.Ref, uint32(first), some)
		if _, err := m.requests.Request(context.Background(), protocol.CfgPoolKeys, data); err != nil {
			return fmt.Errorf("send the keys of pool %d: %w", l.Ref, err)
		}
	}
	return nil
}

// ask asks the peer for another pool.
func (m *Manager) ask(act *bufpool.Action) error {
	m.channels[act.Channel-1].Sender.Lacking.Store(0)
	if err := m.control.Send(func(dst []byte) []byte {
		return protocol.AppendBufferRecvPoolGet(dst, protocol.BufferRecvPoolGet{
			ElementSize: uint32(act.Size), Elements: uint32(act.Elements), Channel: uint32(act.Channel),
		})
	}); err != nil {
		return err
	}
	m.c.InBackground(func() error {
		// BufferRecvPoolGet has no reply. The reply to a later request shows that the peer has
		// handled it.
		if err := m.requests.KeepAlive(context.Background()); err != nil {
			return err
		}
		return m.Notify(act.Done())
	})
	return nil
}

// reply answers the peer's flush, as soon as pace allows the cost of its pools.
func (m *Manager) reply(act *bufpool.Action) error {
	wait, now := time.Duration(0), time.Now()
	for n := act.Pools*poolCost + act.Elements; n > 0; {
		some := min(n, costBurst)
		n -= some
		wait = m.pace.ReserveN(now, some).DelayFrom(now)
	}
	reply := func() error {
		if err := m.Notify(act.Done()); err != nil {
			return err
		}
		return m.control.Send(func(dst []byte) []byte { return protocol.AppendBufferPoolFlushReply(dst, act.Transaction) })
	}
	if wait <= 0 {
		return reply()
	}
	m.Held.Add(1)
	m.c.InBackground(func() error {
		if !m.c.Sleep(wait) {
			return net.ErrClosed
		}
		return reply()
	})
	return nil
}

// HearKeys handles a request with keys of a one-touch pool that the peer is about to lend.
func (m *Manager) HearKeys(data []byte) protocol.CfgStatus {
	if !m.o.PeerOneTouch || m.c.Mode.Sends() {
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

// WakeForNeeds wakes the manager's goroutine because a frame fits no pool, or a sender needs more slots. It
// never waits.
func (m *Manager) WakeForNeeds() { wake.Up(m.needs) }
