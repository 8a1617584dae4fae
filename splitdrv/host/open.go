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
			c, err := o.cfg.Dialer.DialContext(ctx, network, addr)
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
func (o *opener) open(ctx context.Context, d dialled, standby bool) (a *attachment, err error) {
	c := d.client
	a = &attachment{addr: d.addr, client: c}
	a.drain.changed = make(chan struct{}, 1)
	defer func() {
		if err == nil {
			return
		}
		if a.conn != nil {
			err = errors.Join(err, a.conn.Close())
		}
		c.Close()
		if !standby {
			o.dev.setPhase(mirror.NoSession)
		}
		a = nil
	}()
	var mac protocol.MAC
	if standby {
		mac = o.dev.shown.Load().agreed.MAC
	} else if mac, err = o.dev.open(); err != nil {
		return a, err
	}
	watch := stopwatch{last: time.Now(), stages: []uplink.Stage{{Name: "connect and authenticate", Took: d.took}},
		onLap: d.heard}
	w, err := c.Hello(ctx, session.Hello{
		Features: o.features(standby),
		Name:     o.cfg.Name, Software: o.cfg.Software, Modes: o.cfg.Modes,
		Queues: len(o.cfg.Netdev.Ports()), Pools: o.cfg.lends(),
		MaxMTU: o.cfg.MaxMTU, Offloads: o.cfg.Offloads, MAC: mac,
	})
	if err != nil {
		return a, err
	}
	watch.lap("hello")
	fail := func(err error) error { return errors.Join(err, c.Bye(session.CodeFailed, err.Error())) }
	if standby && !w.Grants(protocol.FeatureStandby) {
		return a, fail(uplink.ErrNoStandby)
	}
	a.welcome = w
	if w.Grants(protocol.FeatureDirect) {
		c.HandleDirect(func(m *session.Direct) { o.direct.heard(a, m) })
	}
	if w.Grants(protocol.FeatureDrain) {
		c.HandleDrain(a.drain.ask)
	}
	if a.conn, err = o.channels(a); err != nil {
		return a, fail(err)
	}
	watch.lap("make queue pairs")
	accept := session.Accept{ControlReceives: a.conn.ControlReceives()}
	for _, addr := range a.conn.Addresses() {
		accept.Channels = append(accept.Channels, session.ChannelOf(addr))
	}
	if err := c.Accept(ctx, accept); err != nil {
		return a, err
	}
	watch.lap("accept")
	remote := make([]fabric.Address, 0, len(w.Channels))
	for _, ch := range w.Channels {
		remote = append(remote, ch.Address())
	}
	if err := a.conn.Connect(remote, w.ControlReceives); err != nil {
		return a, fail(err)
	}
	watch.lap("connect queue pairs")
	if err := c.Ready(ctx); err != nil {
		return a, err
	}
	watch.lap("ready")
	if err := a.conn.StartControl(); err != nil {
		return a, fail(err)
	}
	if err := a.reaches(ctx); err != nil {
		return a, fail(err)
	}
	watch.lap("cross the fabric")
	a.stages = watch.stages
	return a, nil
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
