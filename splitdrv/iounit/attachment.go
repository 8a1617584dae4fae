package iounit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
)

// attachment is one host's session and everything it holds. It has many fields
// because what a session holds is released in one place, and most of them are
// written once, before others see the attachment.
type attachment struct {
	unit   *Unit
	s      *session.Server
	hello  session.Hello
	log    *slog.Logger
	key    string // hostKey
	ownKey string
	peer   func() session.Identity // of s
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when everything is released
	since  time.Time
	owner  string       // the fingerprint of the key, "" if there is none
	limits limit.Key    // by which what the host asks for is limited
	policy *policy.Host // what this host may do when the session begins; written before it is one of Unit.hosts

	// of the host's latency queue, nil if it wants none; written before the session is established
	latency     *steer.Status
	established bool // the session, at some time; of the goroutine that serves it

	own   protocol.MAC // made for it; the zero address if it was given another one. Written before it has services.
	bound bool         // the session has the feature bind; the same

	direct atomic.Pointer[directed] // nil until the session is about to be established

	mac     protocol.MAC   // guarded by Unit.mu, as is what follows
	further []protocol.MAC // its other addresses
	share   string         // as the policy has it

	mu       sync.Mutex // guards what follows, for Status
	services *services  // nil unless the session is established
	governed *services  // the same, but from before its first frame on: the policy can change
	mode     protocol.Mode
}

// run opens the host's LAN interface and channels, moves frames, and releases
// everything. It answers the host's hello in any case.
func (a *attachment) run(ctx context.Context) error {
	u := a.unit
	defer a.s.Close()
	mode, err := chooseMode(a.hello.Modes, u.cfg.Modes, a.policy.Modes)
	if err != nil {
		u.refuse(a, session.CodeMode, err)
		return nil
	}
	link, err := u.cfg.LinkState()
	if err != nil {
		u.refuse(a, codeOf(err), err)
		return nil
	}
	if a.bound = a.hello.Offers(protocol.FeatureBind); a.policy.RequireBind && !a.bound {
		u.refuse(a, session.CodePolicy, errUnbound)
		return nil
	}
	mac, err := a.address()
	if err != nil {
		u.refuse(a, session.CodePolicy, err)
		return nil
	}
	turn, err := a.setUpTurn(ctx)
	switch {
	case errors.Is(err, net.ErrClosed):
		return a.s.Err() // trusted no longer
	case err != nil:
		u.refuseForNow(a, err)
		return nil
	}
	defer turn.End(0)
	port, queues, err := a.openLAN(mac)
	if err != nil {
		u.refuse(a, codeOf(err), err)
		return nil
	}
	defer port.Close()
	if own, err := port.State(); err == nil && !own.Up { // a port of a switch that nobody is at yet
		link.Up = false
	}
	mtu := min(link.MTU, a.hello.MaxMTU)
	services := newServices(a, a.policy, port, mac, mtu, link.MTU)
	defer services.leave()
	defer u.direct.leave(a)
	offloads, err := port.SetOffloads(port.Offloads().Intersect(a.hello.Offloads))
	if err != nil {
		u.refuse(a, session.CodePolicy, err)
		return nil
	}

	mcfg := a.messaging(mode, queues, mtu)
	features := a.features()
	mcfg.NoPack = !slices.Contains(features, protocol.FeaturePack)
	mcfg.Invalidation = slices.Contains(features, protocol.FeatureWindow)
	mcfg.OneTouch = slices.Contains(features, protocol.FeatureOneTouch)
	mcfg.KeySend = slices.Contains(features, protocol.FeatureKeySend)
	mcfg.OnRequest, mcfg.Pace = services.answer, a.paced
	if a.bound {
		secret, err := a.s.Binding()
		if err != nil {
			u.refuse(a, session.CodeFailed, err)
			return nil
		}
		mcfg.Bind = messaging.NewBinding(secret, false)
	}
	if g, ok := a.handling(); ok {
		g.Configure(&mcfg)
	}
	if slices.Contains(features, protocol.FeatureStandby) {
		if err := services.standBy(); err != nil {
			u.refuse(a, codeOf(err), err)
			return nil
		}
	}
	conn, err := messaging.New(mcfg)
	turn.End(0)
	if err != nil {
		u.refuse(a, codeOf(err), err)
		return nil
	}
	defer conn.Close()
	services.conn = conn
	if err := a.connect(ctx, conn, session.Welcome{
		Features: features,
		Name:     u.cfg.Name, Software: u.cfg.Software, Mode: mode,
		Queues: queues, Pools: mcfg.Lends(), MAC: mac, MTU: mtu,
		Link:     session.Link{Up: link.Up, SpeedMbps: uint32(link.Speed)},
		Offloads: offloads, ControlReceives: conn.ControlReceives(),
	}); err != nil {
		return err
	}
	ports := make([]messaging.Port, 0, queues)
	for _, p := range services.ports {
		ports = append(ports, p)
	}
	a.begin(services, mode)
	defer a.show(nil)
	if err := conn.Start(ports); err != nil {
		return errors.Join(err, a.s.Bye(session.CodeFailed, err.Error()))
	}
	a.established = true
	services.linkIs(link.Up)
	u.direct.established(a, mode)
	a.show(services)
	u.served.Add(1)
	a.log.Info("session established", "session", a.s.SessionID(), "mac", mac, "mtu", mtu,
		"mode", mode, "queues", queues, "lan", port.Name(), "offloads", offloads)
	err = a.wait(ctx, services, link)
	u.unrevoked.Add(conn.Stop().Unrevoked)
	return err
}

// payer is whose account a session has overdrawn: its key, or its name where names
// are all there is.
func (a *attachment) payer() string { return cmp.Or(a.owner, a.key) }

// errUnbound is why a session is refused that the policy wants bound.
var errUnbound = fmt.Errorf("%w: a session without the feature bind, which `require-bind` in the policy asks for; update splitnic on the host", errDenied)

// messaging is the configuration of the host's channels.
func (a *attachment) messaging(mode protocol.Mode, queues, mtu int) messaging.Config {
	c := a.unit.cfg.Messaging
	c.Device, c.Mode, c.Queues, c.MTU = a.unit.cfg.Device, mode, queues, mtu
	c.PeerPools = a.hello.Pools
	c.LatencyQueue = a.hasLatency()
	c.LatencyPools = messaging.LatencyPools(mode, a.hello.MaxMTU)
	if c.Pools == nil {
		c.Pools = messaging.DefaultPools(mode, a.hello.MaxMTU)
	}
	if mode.Sends() {
		c.MaxPools = 0 // one: there is no other choice
	}
	if a.policy.MaxMemory > 0 {
		c.MaxMemory = a.policy.MaxMemory
	}
	return c
}

// features are the optional parts of the protocol that both sides can use.
func (a *attachment) features() []string {
	var words []string
	if !a.unit.cfg.Messaging.NoPack && a.hello.Offers(protocol.FeaturePack) {
		words = append(words, protocol.FeaturePack)
	}
	if a.hasLatency() {
		words = append(words, protocol.FeatureLatencyQueue)
	}
	if a.bound {
		words = append(words, protocol.FeatureBind)
	}
	if a.hello.Offers(protocol.FeatureRenew) {
		words = append(words, protocol.FeatureRenew)
	}
	if a.hello.Offers(protocol.FeatureStandby) {
		words = append(words, protocol.FeatureStandby)
	}
	if a.unit.cfg.Device.Limits().Windows && a.hello.Offers(protocol.FeatureWindow) {
		words = append(words, protocol.FeatureWindow)
	}
	if a.hello.Offers(protocol.FeatureOneTouch) {
		words = append(words, protocol.FeatureOneTouch)
	}
	if a.unit.direct != nil && a.bound && a.hello.Offers(protocol.FeatureDirect) && a.hello.Run != (protocol.Run{}) {
		words = append(words, protocol.FeatureDirect)
	}
	if a.hello.Offers(protocol.FeatureKeySend) {
		words = append(words, protocol.FeatureKeySend)
	}
	return words
}

// connect exchanges the addresses of the queue pairs with the host and
// connects them.
func (a *attachment) connect(ctx context.Context, conn *messaging.Conn, w session.Welcome) error {
	for _, addr := range conn.Addresses() {
		w.Channels = append(w.Channels, session.ChannelOf(addr))
	}
	accept, err := a.s.Welcome(ctx, w)
	if err != nil {
		return err
	}
	remote := make([]fabric.Address, 0, len(accept.Channels))
	for _, ch := range accept.Channels {
		remote = append(remote, ch.Address())
	}
	if err := conn.Connect(remote, accept.ControlReceives); err != nil {
		return errors.Join(err, a.s.Bye(session.CodeFailed, err.Error()))
	}
	a.unit.direct.join(a, slices.Contains(w.Features, protocol.FeatureDirect))
	return a.s.Ready(ctx)
}

// wait passes changes of the card on to the host until the session ends, and
// returns why it did.
func (a *attachment) wait(ctx context.Context, s *services, reported lan.LinkState) error {
	conn := s.conn
	var watcher sync.WaitGroup
	wctx, stop := context.WithCancel(ctx)
	watcher.Go(func() { s.tells.run(wctx.Done()) })
	watcher.Go(func() { a.unit.direct.send(a, wctx.Done()) })
	watcher.Go(func() {
		s.refuse.run(wctx.Done(), func(reason string) {
			s.lines.Log(a.log, slog.LevelWarn, "frames of the host are dropped", "reason", reason)
		})
	})
	watcher.Go(func() {
		// What was reported to the host at the start is compared with what it is now.
		err := s.port.Watch(wctx, func(now lan.LinkState) {
			a.tell(wctx, s, reported, now)
			s.linkIs(now.Up)
			reported = now
		})
		if err != nil {
			a.log.Warn("the network card is no longer watched", "reason", err)
			a.cancel(err)
		}
	})
	var err error
	code, reason := session.CodeFailed, ""
	select {
	case <-ctx.Done():
		switch err = context.Cause(ctx); {
		case errors.Is(err, context.Canceled):
			code, err = session.CodeShuttingDown, errShuttingDown
			a.unit.direct.close()
			a.flush(conn)
		case brokenRule(err) != "":
			code = session.CodeProtocol
		case errors.Is(err, errPolicy):
			code = session.CodePolicy
		}
		reason = err.Error()
		a.unit.direct.leave(a)
	case <-a.s.Done():
		err = a.s.Err()
		a.unit.direct.leave(a)
		if bye := (*session.ByeError)(nil); errors.As(err, &bye) {
			conn.Stop() // what the host sent before it said so is delivered
		} else {
			conn.Abort(err) // before the bye, which may take its time
		}
	case <-conn.Done():
		err = conn.Err()
		a.unit.direct.leave(a)
		reason = err.Error()
		var pe *messaging.ProtocolError
		if errors.As(err, &pe) {
			code = session.CodeProtocol
		}
	}
	byeErr := a.s.Bye(code, reason)
	stop()
	watcher.Wait()
	a.log.Debug("bye", "error", byeErr)
	return err
}

// flush has all pools of a session go, both sides', which this I/O unit ends. What the
// host has sent has arrived then, and what it has not is sent over its next session,
// which begins after the bye.
func (a *attachment) flush(conn *messaging.Conn) {
	if err := conn.Flush(); err != nil {
		a.log.Debug("pools end with their session", "reason", err)
	}
}

// tell tells the host what changed on the card.
func (a *attachment) tell(ctx context.Context, s *services, before, now lan.LinkState) {
	request := func(t protocol.CfgType, data []byte) {
		if _, err := s.conn.Request(ctx, t, data); err != nil {
			a.log.Warn("the host did not follow the network card", "what", t, "reason", err)
		}
	}
	if now.MTU != before.MTU && now.MTU > 0 {
		if mtu, changed := s.follow(now.MTU); changed {
			request(protocol.CfgMTU, protocol.AppendMTU(nil, mtu))
		}
	}
	if now.Up != before.Up || now.Speed != before.Speed {
		request(protocol.CfgLinkState, protocol.AppendLinkState(nil,
			protocol.LinkState{Up: now.Up, Speed: uint32(now.Speed)}))
	}
}

// show makes the session visible to Status, or takes it away.
func (a *attachment) show(s *services) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services, a.governed = s, s
}

// begin makes the session one that changes of the policy are about.
func (a *attachment) begin(s *services, mode protocol.Mode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.governed, a.mode = s, mode
}
