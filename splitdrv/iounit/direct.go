package iounit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/pairs"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

const (
	// directWrite is the time for a host to read a message, before its session ends.
	directWrite = 2 * time.Second
	// directPeriod is the interval at which flows are evaluated while there are any.
	directPeriod = 100 * time.Millisecond
	// directQueue is the number of messages that can wait for a host for each connection that
	// it may have: offer, connect, start, end and ended, and those of the next connection.
	directQueue = 8
)

// errUnread ends the session of a host that does not read messages about direct connections.
var errUnread = fmt.Errorf("%w: it does not read what it is told about direct connections", session.ErrPeerGone)

// directing carries out the actions of pairs. Any goroutine may call its methods, whichever
// locks it holds. The methods do not wait for a host: each host has a queue of messages, and
// a goroutine that sends them. A nil *directing, of an I/O unit without direct connections,
// does nothing.
type directing struct {
	after  int // packets per second from which two hosts get a connection
	queue  int // most messages that wait for a host
	policy *atomic.Pointer[policy.Policy]
	flows  *guard.Traffic

	mu       sync.Mutex // guards the fields below
	pairs    *pairs.Pairs
	sessions map[pairs.Host]*directed
	of       map[*host]*directed // the same sessions by host
	latest   pairs.Host
	slots    []bool // slots in use by sessions
	timer    *time.Timer
	armed    time.Time // when timer fires; zero: never
	closed   bool      // the hosts keep their connections
}

// directed is the state of a session for direct connections.
type directed struct {
	host  *host
	id    pairs.Host
	queue chan *session.Direct
	seen  *guard.Samples

	// guarded by directing.mu:

	facts    pairs.Facts
	platform protocol.Platform
	willing  bool
	open     bool // the session is established
	may      *policy.Host
	known    []string
	port     portFacts
	told     bool // port is set
}

// portFacts has the settings of a host's LAN interface.
type portFacts struct {
	macs     []protocol.MAC
	vlans    protocol.VLANSet
	mtu      int
	offloads vnet.Offloads
	up, link bool
	promisc  bool // the host gets frames for other stations
}

func newDirecting(cfg Config, policy *atomic.Pointer[policy.Policy]) *directing {
	d := &directing{
		after: cfg.DirectAfter, queue: directQueue * cfg.DirectPeers, policy: policy,
		flows:    guard.NewTraffic(),
		sessions: make(map[pairs.Host]*directed), of: make(map[*host]*directed), slots: make([]bool, cfg.MaxHosts),
		pairs: pairs.New(pairs.Config{
			After: cfg.DirectAfter, Peers: cfg.DirectPeers, Answer: cfg.DirectAnswer, Grace: cfg.DirectGrace,
			Rest: cfg.DirectRest,
			NewID: func() session.DirectID {
				var b [8]byte
				rand.Read(b[:]) // never fails
				return session.DirectID(binary.BigEndian.Uint64(b[:]))
			},
			Secret: func() (s session.DirectSecret) {
				rand.Read(s[:]) // never fails
				return s
			},
		}),
	}
	d.timer = time.AfterFunc(time.Hour, d.tick)
	d.timer.Stop()
	return d
}

func (d *directing) sampler(h *host) guard.Sampler {
	if d == nil {
		return guard.Sampler{}
	}
	return d.flows.Sampler(&h.seen)
}

// aboutChannels are the features that a direct connection has if both hosts have them.
var aboutChannels = []string{
	protocol.FeaturePack, protocol.FeatureWindow, protocol.FeatureKeySend, protocol.FeatureOneTouch,
	protocol.FeaturePathMTU,
}

// join adds a session that is about to be established. From now on the host may send
// messages, if it is willing.
func (d *directing) join(h *host, willing, encrypted bool) {
	if d == nil {
		return
	}
	x := &directed{
		host: h, willing: willing, queue: make(chan *session.Direct, d.queue), platform: h.s.PeerPlatform(),
	}
	x.facts = pairs.Facts{Name: h.hello.Name, Key: h.owner, Platform: x.platform, Pools: h.hello.Pools,
		Ciphers: h.hello.Ciphers, Encrypted: encrypted}
	for _, f := range aboutChannels {
		if h.hello.Offers(f) {
			x.facts.Features = append(x.facts.Features, f)
		}
	}
	d.enter(x)
	if willing {
		h.s.HandleDirect(func(m *session.Direct) { d.heard(x, m) })
	}
}

// enter assigns an identifier and a slot to a session.
func (d *directing) enter(x *directed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slot := slices.Index(d.slots, false)
	if slot < 0 { // the slot of a session that has just left is still in use
		slot = len(d.slots)
		d.slots = append(d.slots, false)
	}
	d.slots[slot] = true
	d.latest++
	x.id, x.seen = d.latest, guard.NewSamples(slot)
	d.sessions[x.id], d.of[x.host] = x, x
	x.host.seen.Store(x.seen)
	x.judge(d.policy.Load())
	d.refresh(x)
}

// leave removes a session. Its host gets no more messages.
func (d *directing) leave(h *host) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.of[h]
	if x == nil {
		return
	}
	delete(d.sessions, x.id)
	delete(d.of, h)
	d.slots[x.seen.Slot] = false
	d.do(d.pairs.Leave(time.Now(), x.id))
	d.publish()
}

// close makes the hosts keep their connections, for another I/O unit.
func (d *directing) close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// established records that a session is established, with its transfer mode.
func (d *directing) established(h *host, mode protocol.Mode) {
	d.change(h, func(x *directed) { x.open, x.facts.Mode = true, mode })
}

// changed records the settings of a host's LAN interface.
func (d *directing) changed(h *host, port portFacts) {
	d.change(h, func(x *directed) { x.port, x.told = port, true })
}

// govern applies another policy to a session.
func (d *directing) govern(h *host, p *policy.Policy) {
	d.change(h, func(x *directed) { x.judge(p) })
}

func (d *directing) change(h *host, how func(*directed)) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.of[h]; x != nil {
		how(x)
		d.refresh(x)
	}
}

// judge sets the host's permissions to those of a policy.
func (x *directed) judge(p *policy.Policy) {
	x.may, x.known, x.facts.Shown = x.host.by(p), nil, x.host.shown()
	if id := x.host.peer(); !id.Insecure {
		x.known = append(x.known, id.Fingerprint.String())
		if id.Name != "" {
			x.known = append(x.known, id.Name)
		}
	}
}

// refresh passes the facts about a host to pairs. The caller holds d.mu.
func (d *directing) refresh(x *directed) {
	f := &x.facts
	f.MACs, f.VLANs, f.MTU, f.Offloads = x.port.macs, x.port.vlans, x.port.mtu, x.port.offloads
	f.Promisc, f.Known, f.Only, f.No = x.port.promisc, x.known, x.may.DirectWith, x.why()
	f.Modes = nil
	for _, m := range x.host.hello.Modes {
		if m.Known() && slices.Contains(x.may.Modes, m) {
			f.Modes = append(f.Modes, m)
		}
	}
	d.do(d.pairs.Set(time.Now(), x.id, *f))
	d.publish()
}

// publish publishes the addresses by which frames are sampled. The caller holds d.mu.
func (d *directing) publish() {
	n := 0
	var macs []protocol.MAC
	var slots []int
	for _, x := range d.sessions {
		if d.pairs.WhyNot(x.id) != "" {
			continue
		}
		n++
		x.seen.Fit(len(d.slots))
		for _, m := range x.port.macs {
			macs, slots = append(macs, m), append(slots, x.seen.Slot)
		}
	}
	if n < 2 {
		macs, slots = nil, nil
	}
	d.flows.Between(d.after, macs, slots)
}

// why returns why a host has no direct connections, or "" if it may have some.
func (x *directed) why() pairs.Cause {
	may := x.may
	switch {
	case !x.willing:
		return pairs.Unwilling
	case !x.host.bound:
		return pairs.Unbound
	case x.platform == 0:
		return pairs.Platform
	case may.NoDirect:
		return pairs.Policy
	case may.MaxTxRate > 0 || may.MaxRxRate > 0 || may.MaxTxPPS > 0 || may.MaxRxPPS > 0:
		return pairs.Rate
	case may.IPs != nil:
		return pairs.IPs
	case may.TaggedOnly:
		return pairs.Untagged
	case may.SingleTag:
		return pairs.NestedTags
	case may.Share != "":
		return pairs.Shared
	case !x.open || !x.told:
		return pairs.Opening
	case len(x.port.macs) > session.MaxDirectAddresses:
		return pairs.Addresses
	case !x.port.up:
		return pairs.Down
	case !x.port.link:
		return pairs.LinkDown
	default:
		return ""
	}
}

// heard handles a message of a host.
func (d *directing) heard(x *directed, m *session.Direct) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions[x.id] == x {
		d.do(d.pairs.Heard(time.Now(), x.id, m))
	}
}

func (d *directing) tick() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = time.Time{}
	d.do(d.pairs.Tick(time.Now()))
}

// do carries out actions. The caller holds d.mu.
func (d *directing) do(actions []pairs.Action) {
	for _, act := range actions {
		x := d.sessions[act.To]
		switch {
		case x == nil || d.closed:
		case act.Broken != nil:
			x.host.cancel(act.Broken)
		default:
			select {
			case x.queue <- act.Message:
			default:
				x.host.cancel(errUnread)
			}
		}
	}
	if w := d.pairs.Wake(); !w.IsZero() && !w.Equal(d.armed) {
		d.armed = w
		d.timer.Reset(time.Until(w))
	}
}

// send sends the messages for a host, until done is closed.
func (d *directing) send(h *host, done <-chan struct{}) {
	if d == nil {
		return
	}
	d.mu.Lock()
	x := d.of[h]
	d.mu.Unlock()
	if x == nil {
		return
	}
	for {
		select {
		case <-done:
			return
		case m := <-x.queue:
			if err := h.s.SendDirect(m, directWrite); err != nil {
				h.cancel(fmt.Errorf("tell the host about direct connections: %w", err))
				return
			}
		}
	}
}

// run evaluates the flows between hosts while there are any, until ctx is done.
func (d *directing) run(ctx context.Context) {
	if d == nil {
		return
	}
	defer d.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.flows.Began:
		}
		d.watch(ctx)
	}
}

// watch evaluates flows until there are none.
func (d *directing) watch(ctx context.Context) {
	tick := time.NewTicker(directPeriod)
	defer tick.Stop()
	from := time.Now()
	for idle := 0; idle < 2; idle++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if idle == 1 {
			d.flows.Watched.Store(false) // later samples wake run again
		}
		now := time.Now()
		if d.flowed(from, now) {
			d.flows.Watched.Store(true)
			idle = -1
		}
		from = now
	}
}

// flowed passes the sampled traffic to pairs, and reports whether there was any.
func (d *directing) flowed(from, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []pairs.Flow
	for _, x := range d.sessions {
		if !x.seen.News() {
			continue
		}
		for _, y := range d.sessions {
			if n := x.seen.Take(y.seen.Slot); n > 0 {
				all = append(all, pairs.Flow{From: x.id, To: y.id, Packets: n})
			}
		}
	}
	slices.SortFunc(all, func(x, y pairs.Flow) int {
		return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To))
	})
	d.do(d.pairs.Traffic(from, now, all))
	return len(all) > 0
}
