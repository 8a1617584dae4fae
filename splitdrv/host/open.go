package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// dialled is an I/O unit that answers and is the right one, or why not.
type dialled struct {
	addr   string
	client *session.Client
	took   time.Duration
	heard  func() // called when there was an answer in opening the session; may be nil
	err    error
}

// opener dials I/O units and opens sessions with them, for several goroutines.
type opener struct {
	cfg      *Config
	units    *discovery.Directory
	dev      *netdev
	sessions *sessions
	retired  *retired
	direct   *direct
}

// dial connects to an I/O unit and authenticates it. answered, which may be nil, is
// told when its machine has answered, if there is room.
func (o *opener) dial(ctx context.Context, addr string, answered chan<- struct{}) dialled {
	began := time.Now()
	c, err := session.Dial(ctx, addr, session.ClientConfig{
		Security: o.cfg.Security, PeerTimeout: o.cfg.Messaging.PeerTimeout, HandshakeTimeout: o.cfg.HandshakeTimeout,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := o.units.Dial(ctx, network, addr, o.cfg.Dialer.DialContext)
			if err == nil {
				signal(answered)
			}
			return c, err
		},
	})
	return dialled{addr: addr, client: c, took: time.Since(began), err: err}
}

// attach opens a session for use with an I/O unit that was dialled. A MAC address that
// the I/O unit refuses is given up if it can be.
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

// open makes a session, over a connection that it takes over, up to the point
// where both sides are ready.
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

// establish goes through the stages of a session that is opened, of which the functions
// follow in this order. The I/O unit hears of what fails here.
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
		return a.fail(err)
	}
	watch.lap("cross the fabric")
	a.stages = watch.stages
	return nil
}

// fail tells the I/O unit why a session is not opened after all.
func (a *attachment) fail(err error) error {
	return errors.Join(err, a.client.Bye(session.CodeFailed, err.Error()))
}

// mac is the address to ask for.
func (o *opener) mac(standby bool) (protocol.MAC, error) {
	if standby {
		return o.dev.shown.Load().agreed.MAC, nil
	}
	return o.dev.open()
}

// hello is who this host is and what it wants.
func (o *opener) hello(standby bool, mac protocol.MAC) session.Hello {
	return session.Hello{
		Features: o.features(standby),
		Name:     o.cfg.Name, Software: o.cfg.Software, Modes: o.cfg.Modes,
		Queues: len(o.cfg.Netdev.Ports()), Pools: o.cfg.lends(),
		MaxMTU: o.cfg.MaxMTU, Offloads: o.cfg.Offloads, MAC: mac,
	}
}

// features are the optional parts of the protocol that this host can use.
func (o *opener) features(standby bool) []string {
	var words []string
	for _, f := range []struct {
		word   string
		wanted bool
	}{
		{protocol.FeaturePack, !o.cfg.Messaging.NoPack},
		{protocol.FeatureLatencyQueue, o.dev.wantsLatency()},
		{protocol.FeatureWindow, o.cfg.Device.Limits().Windows}, // then it can invalidate those of others
		{protocol.FeatureOneTouch, true},
		{protocol.FeatureKeySend, true},
		{protocol.FeatureBind, true},
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

// listen has what the I/O unit may say at any time handled.
func (o *opener) listen(a *attachment) {
	if a.welcome.Grants(protocol.FeatureDirect) {
		a.client.HandleDirect(func(m *session.Direct) { o.direct.heard(a, m) })
	}
	if a.welcome.Grants(protocol.FeatureDrain) {
		a.client.HandleDrain(a.drain.ask)
	}
}

// channels makes the channels of a session.
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
		// What the last session had registered is free now.
		conn, err = messaging.New(cfg)
	}
	return conn, err
}

// accept tells the I/O unit the addresses of the queue pairs.
func (a *attachment) accept(ctx context.Context) error {
	accept := session.Accept{ControlReceives: a.conn.ControlReceives()}
	for _, addr := range a.conn.Addresses() {
		accept.Channels = append(accept.Channels, session.ChannelOf(addr))
	}
	return a.client.Accept(ctx, accept)
}

// connect connects the queue pairs to the I/O unit's.
func (a *attachment) connect() error {
	remote := make([]fabric.Address, 0, len(a.welcome.Channels))
	for _, ch := range a.welcome.Channels {
		remote = append(remote, ch.Address())
	}
	return a.conn.Connect(remote, a.welcome.ControlReceives)
}

// cross starts the control channel, and waits for a sign of life over it.
func (a *attachment) cross(ctx context.Context) error {
	if err := a.conn.StartControl(); err != nil {
		return err
	}
	return a.reaches(ctx)
}
