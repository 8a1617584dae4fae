package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// dialled is the result of dial: an authenticated connection to an I/O unit, or an error.
type dialled struct {
	addr   string
	client *session.Client
	took   time.Duration
	heard  func() // called after each answer while the session is opened; may be nil
	err    error
}

// opener dials I/O units and opens sessions with them. Any goroutine may use it.
type opener struct {
	cfg      *Config
	units    *discovery.Directory
	dev      *netdev
	sessions *sessions
	retired  *retired
	direct   *direct.Connections
	paths    pathMTUs
	reservations
}

// openStandby opens a session on standby with an I/O unit, which the caller has reserved.
func (o *opener) openStandby(ctx context.Context, addr string) (*attachment, error) {
	d := o.dial(ctx, addr, nil)
	if d.err != nil {
		return nil, d.err
	}
	return o.open(ctx, d, true)
}

// dial connects to an I/O unit and authenticates it. answered, which may be nil, is signaled
// when the machine has answered.
func (o *opener) dial(ctx context.Context, addr string, answered chan<- struct{}) dialled {
	began := time.Now()
	c, err := session.Dial(ctx, addr, session.ClientConfig{
		Security: o.cfg.Security, PeerTimeout: o.cfg.Messaging.PeerTimeout, HandshakeTimeout: o.cfg.HandshakeTimeout,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := o.units.Dial(ctx, network, addr, o.cfg.Dialer.DialContext)
			if err == nil {
				wake.Up(answered)
			}
			return c, err
		},
	})
	return dialled{addr: addr, client: c, took: time.Since(began), err: err}
}

// attach opens a session, which is to be used, with an I/O unit that was dialled. If the I/O
// unit may refuse the administrator's MAC address, attach gives that up and tries again.
func (o *opener) attach(ctx context.Context, d dialled) (*attachment, error) {
	a, err := o.open(ctx, d, false)
	if err != nil && o.dev.giveUpMAC(err) {
		heard := d.heard
		if d = o.dial(ctx, d.addr, nil); d.err != nil {
			return nil, d.err
		}
		d.heard = heard
		a, err = o.open(ctx, d, false)
	}
	return a, err
}

// open opens a session until both sides are ready. It takes over the connection of d.
func (o *opener) open(ctx context.Context, d dialled, standby bool) (*attachment, error) {
	a := &attachment{addr: d.addr, client: d.client}
	a.drain.changed = make(chan struct{}, 1)
	err := o.establish(ctx, a, d, standby)
	if err == nil {
		return a, nil
	}
	if a.conn != nil {
		err = errors.Join(err, a.conn.Close())
	}
	a.client.Close()
	if !standby {
		o.dev.setPhase(mirror.NoSession)
	}
	return nil, err
}

// establish goes through the stages of opening a session. Their functions follow in this
// order. If a stage fails on this side, the I/O unit is told.
func (o *opener) establish(ctx context.Context, a *attachment, d dialled, standby bool) error {
	mac, err := o.mac(standby)
	if err != nil {
		return err
	}
	watch := stopwatch{last: time.Now(), stages: []uplink.Stage{{Name: "connect and authenticate", Took: d.took}},
		onLap: d.heard}
	if a.welcome, err = a.client.Hello(ctx, o.hello(standby, mac)); err != nil {
		return err
	}
	watch.lap("hello")
	if standby && !a.welcome.Grants(protocol.FeatureStandby) {
		return a.fail(uplink.ErrNoStandby)
	}
	if o.cfg.Encrypt == seal.Required && a.welcome.Cipher == "" {
		return errors.Join(errPlain, a.client.Bye(session.CodeEncryption, errPlain.Error()))
	}
	o.listen(a)
	if a.conn, err = o.channels(a); err != nil {
		return a.fail(err)
	}
	watch.lap("make queue pairs")
	if err := a.accept(ctx); err != nil {
		return err
	}
	watch.lap("accept")
	if err := a.connect(); err != nil {
		return a.fail(err)
	}
	watch.lap("connect queue pairs")
	if err := a.client.Ready(ctx); err != nil {
		return err
	}
	watch.lap("ready")
	if err := a.cross(ctx); err != nil {
		return a.fail(o.smaller(a, err))
	}
	watch.lap("cross the fabric")
	a.stages = watch.stages
	return nil
}

// smaller returns err, of a session that could not be used over the fabric. If the I/O unit's first
// packet arrived, which is small, it lowers the path MTU of the next attempt and says so.
func (o *opener) smaller(a *attachment, err error) error {
	s := a.conn.Stats()
	if !a.welcome.Grants(protocol.FeaturePathMTU) || s.ControlReceived == 0 {
		return err
	}
	if next := o.paths.lost(a.addr, s.PathMTU, time.Now()); next != 0 {
		return fmt.Errorf("packets of the path MTU, %d bytes, do not get through, the next attempt uses %d: %w", s.PathMTU, next, err)
	}
	return err
}

// errPlain ends a session that the I/O unit does not encrypt.
var errPlain = fmt.Errorf("%w: this host requires it, and the I/O unit has an old version", seal.ErrDisagree)

// fail tells the I/O unit why the session is not opened.
func (a *attachment) fail(err error) error {
	return errors.Join(err, a.client.Bye(session.CodeFailed, err.Error()))
}

// mac returns the MAC address to request.
func (o *opener) mac(standby bool) (protocol.MAC, error) {
	if standby {
		return o.dev.shown.Load().agreed.MAC, nil
	}
	return o.dev.open()
}

// hello returns the hello, with the identity and the requests of this host.
func (o *opener) hello(standby bool, mac protocol.MAC) session.Hello {
	return session.Hello{
		Features: o.features(standby), Ciphers: o.cfg.ciphers(), Encrypt: o.cfg.Encrypt == seal.Required,
		Name: o.cfg.Name, Software: o.cfg.Software, Modes: o.cfg.Modes,
		Queues: len(o.cfg.Netdev.Ports()), Pools: o.cfg.lends(),
		MaxMTU: o.cfg.MaxMTU, Offloads: o.cfg.Offloads, MAC: mac,
	}
}

// features returns the optional features of the protocol that this host supports.
func (o *opener) features(standby bool) []string {
	var words []string
	for _, f := range []struct {
		word   string
		wanted bool
	}{
		{protocol.FeaturePack, !o.cfg.Messaging.NoPack},
		{protocol.FeatureLatencyQueue, o.dev.wantsLatency()},
		{protocol.FeatureWindow, device.WindowsOf(o.cfg.Device).Work}, // the device can invalidate the peer's windows
		{protocol.FeatureOneTouch, true},
		{protocol.FeatureKeySend, true},
		{protocol.FeatureBind, true},
		{protocol.FeaturePathMTU, true},
		{protocol.FeatureRenew, true},
		{protocol.FeatureDrain, true},
		{protocol.FeatureStandby, standby},
		{protocol.FeatureDirect, o.cfg.Direct.On},
	} {
		if f.wanted {
			words = append(words, f.word)
		}
	}
	return words
}

// directSend is the time-out for sending a message about direct connections to the I/O unit.
const directSend = time.Second

// listen registers the handlers of messages that the I/O unit may send at any time.
func (o *opener) listen(a *attachment) {
	directs := a.welcome.Grants(protocol.FeatureDirect)
	a.direct = direct.Session{
		Directs: directs, Encrypted: a.welcome.Cipher != "", Platform: a.client.Platform(),
		StillTrusted: a.client.StillTrusted,
		Send: func(m *session.Direct) error {
			if !directs {
				return ErrNoSession
			}
			return a.client.SendDirect(m, directSend)
		},
	}
	if directs {
		a.client.HandleDirect(func(m *session.Direct) { o.direct.Heard(&a.direct, m) })
	}
	if a.welcome.Grants(protocol.FeatureDrain) {
		a.client.HandleDrain(a.drain.ask)
	}
}

// channels creates the channels of a session.
func (o *opener) channels(a *attachment) (*messaging.Conn, error) {
	w := &a.welcome
	cfg := o.cfg.messaging(w.Mode)
	cfg.Queues, cfg.MTU, cfg.PeerPools = w.Queues, w.MTU, w.Pools
	cfg.LatencyQueue = w.Grants(protocol.FeatureLatencyQueue)
	cfg.NoPack = !w.Grants(protocol.FeaturePack)
	cfg.Invalidation = w.Grants(protocol.FeatureWindow)
	cfg.OneTouch = w.Grants(protocol.FeatureOneTouch)
	cfg.KeySend = w.Grants(protocol.FeatureKeySend)
	bind, err := a.binding()
	if err != nil {
		return nil, err
	}
	cfg.Bind, cfg.OnHears = bind, a.client.Vouch
	if cfg.Keys, err = a.keys(); err != nil {
		return nil, err
	}
	if err := o.cfg.KeyLog.Add(w.Session, cfg.Keys); err != nil {
		o.cfg.Log.Warn("the secret of the session was not logged", "error", err)
	}
	cfg.ProvePath = bind != nil && w.Grants(protocol.FeaturePathMTU)
	cfg.PathMTU = o.paths.limit(a.addr, time.Now())
	cfg.OnRequest = func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
		return o.dev.onRequest(a, t, data)
	}
	cfg.Pace = func(protocol.CfgType, []byte) time.Duration { return o.dev.paced(a) }
	cfg.Capture = func(queue int) *capture.Path {
		name := fmt.Sprintf("uplink queue %d", queue)
		if cfg.LatencyQueue && queue == cfg.Queues-1 {
			name = "uplink latency queue"
		}
		return o.cfg.captures.Path(name, fmt.Sprintf("through I/O unit %s at %s, mode %s", w.Name, a.addr, w.Mode))
	}
	a.change = o.sessions.configureHandlers(&cfg)
	conn, err := messaging.New(cfg)
	if errors.Is(err, syscall.ENOMEM) && o.retired.wait() {
		// The memory of the last session is free now.
		conn, err = messaging.New(cfg)
	}
	return conn, err
}

// accept sends the addresses of the queue pairs to the I/O unit.
func (a *attachment) accept(ctx context.Context) error {
	return a.client.Accept(ctx, session.Accept{
		ControlReceives: a.conn.ControlReceives(), Channels: session.Channels(a.conn.Addresses()),
	})
}

// connect connects the queue pairs to those of the I/O unit.
func (a *attachment) connect() error {
	return a.conn.Connect(session.Addresses(a.welcome.Channels), a.welcome.ControlReceives)
}

// cross starts the control channel, and waits for an answer over it.
func (a *attachment) cross(ctx context.Context) error {
	if err := a.conn.StartControl(); err != nil {
		return err
	}
	return a.reaches(ctx)
}

// reservations has an entry for each I/O unit with which a goroutine opens a session on standby,
// because an I/O unit has at most one such session of a host. Any goroutine may use it.
type reservations struct {
	mu    sync.Mutex
	units map[string]chan struct{} // by address; closed when the reservation is over
}

// reserve waits until no other goroutine has reserved an I/O unit, and reserves it until release
// is called.
func (r *reservations) reserve(ctx context.Context, addr string) (release func(), err error) {
	for {
		r.mu.Lock()
		busy := r.units[addr]
		if busy == nil {
			over := make(chan struct{})
			r.units[addr] = over
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.units, addr)
				r.mu.Unlock()
				close(over)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// pathMTUMemory is for how long sessions with an I/O unit use a path MTU below the port's, after
// larger packets did not get through.
const pathMTUMemory = time.Hour

// smallestPathMTU is the smallest path MTU of InfiniBand and RoCE, in bytes.
const smallestPathMTU = 256

// pathMTUs remembers the I/O units to which packets of the port's MTU do not get through: a switch
// on the way drops them. Each attempt in which they do not, and smaller packets do, halves the path
// MTU of the next one; below the smallest one it begins again. Any goroutine may use it.
type pathMTUs struct {
	mu sync.Mutex
	of map[string]pathMTU // by address of the I/O unit
}

type pathMTU struct {
	bytes int
	since time.Time
}

// limit returns the largest path MTU to use with an I/O unit; 0: the port's.
func (p *pathMTUs) limit(addr string, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.of[addr]
	if ok && now.Sub(m.since) >= pathMTUMemory {
		delete(p.of, addr)
		return 0
	}
	return m.bytes
}

// lost records that packets of the given path MTU do not get through, and
// returns the path MTU of the next attempt; 0: the port's.
func (p *pathMTUs) lost(addr string, mtu int, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := mtu / 2
	if next < smallestPathMTU {
		delete(p.of, addr)
		return 0
	}
	if p.of == nil {
		p.of = make(map[string]pathMTU)
	}
	p.of[addr] = pathMTU{next, now}
	return next
}
