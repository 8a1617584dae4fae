package iounit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Run serves the hosts that ln delivers until ctx is done. Then it ends all
// sessions, waits for them, and returns nil. ln stays the caller's.
func (u *Unit) Run(ctx context.Context, ln *session.Listener) error {
	u.listener.Store(ln)
	defer u.sessions.Wait()
	u.sessions.Go(func() { u.direct.run(ctx) })
	for {
		s, err := ln.Accept(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = s.Refuse(session.CodeShuttingDown, "the I/O unit is shutting down")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept hosts: %w", err)
		}
		u.sessions.Go(func() { u.serve(ctx, s) })
	}
}

// serve runs one host's session from beginning to end.
func (u *Unit) serve(ctx context.Context, s *session.Server) {
	hello := s.Hello()
	log := u.cfg.Log.With("host", hello.Name, "from", s.RemoteAddr(), "key", s.Peer())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attachment{
		host: host{
			s: s, peer: s.Peer, hello: hello, log: log, key: hostKey(s.Peer(), hello.Name),
			ownKey: ownKey(s.Peer(), hello.Name), limits: s.LimitKey(), cancel: cancel, since: time.Now(),
		},
		gone:    make(chan struct{}),
		leaving: leaving{stays: make(chan struct{}, 1), telling: make(chan struct{}, 1)},
	}
	if id := s.Peer(); !id.Insecure {
		a.owner = id.Fingerprint.String()
	}
	defer close(a.gone)
	if err := u.enter(ctx, a, patience(time.Now(), s.Deadline())); err != nil {
		u.refuseForNow(a, err)
		return
	}
	defer u.leave(a)
	if err := u.session(ctx, a); err != nil {
		u.over(a, err)
	}
}

// session opens the host's LAN interface and channels, moves frames, and releases
// everything. It answers the host's hello in any case.
func (u *Unit) session(ctx context.Context, a *attachment) error {
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
	mac, err := u.addresses.choose(&a.host)
	if err != nil {
		u.refuse(a, session.CodePolicy, err)
		return nil
	}
	turn, err := setUpTurn(ctx, u.setups, &a.host)
	switch {
	case errors.Is(err, net.ErrClosed):
		return a.s.Err() // trusted no longer
	case err != nil:
		u.refuseForNow(a, err)
		return nil
	}
	defer turn.End(0)
	port, queues, err := u.cfg.openLAN(&a.host, mac)
	if err != nil {
		u.refuse(a, codeOf(err), err)
		return nil
	}
	defer port.Close()
	u.addresses.refresh()
	if own, err := port.State(); err == nil && !own.Up { // a port of a switch that nobody is at yet
		link.Up = false
	}
	mtu := min(link.MTU, a.hello.MaxMTU)
	services := newServices(&a.host, &u.common, port, mac, mtu, link.MTU)
	defer services.leave()
	defer u.direct.leave(&a.host)
	offloads, err := port.SetOffloads(port.Offloads().Intersect(a.hello.Offloads))
	if err != nil {
		u.refuse(a, session.CodePolicy, err)
		return nil
	}

	mcfg := u.messaging(&a.host, mode, queues, mtu)
	features := u.features(&a.host)
	if slices.Contains(features, protocol.FeatureDrain) {
		a.s.HandleStays(func(why string) { u.stays(a, why) })
	}
	mcfg.NoPack = !slices.Contains(features, protocol.FeaturePack)
	mcfg.Invalidation = slices.Contains(features, protocol.FeatureWindow)
	mcfg.OneTouch = slices.Contains(features, protocol.FeatureOneTouch)
	mcfg.KeySend = slices.Contains(features, protocol.FeatureKeySend)
	mcfg.OnRequest, mcfg.OnHears = services.answer, a.s.Vouch
	mcfg.Pace = func(t protocol.CfgType, data []byte) time.Duration { return u.paced(&a.host, t, data) }
	if a.bound {
		secret, err := a.s.Binding()
		if err != nil {
			u.refuse(a, session.CodeFailed, err)
			return nil
		}
		mcfg.Bind = messaging.NewBinding(secret, false)
	}
	if g, ok := u.handlingOf(a.key); ok {
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
	if err := u.connect(ctx, &a.host, conn, session.Welcome{
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
	u.direct.established(&a.host, mode)
	a.show(services)
	u.served.Add(1)
	u.mayLeave(a, slices.Contains(features, protocol.FeatureDrain))
	a.log.Info("session established", "session", a.s.SessionID(), "mac", mac, "mtu", mtu,
		"mode", mode, "queues", queues, "lan", port.Name(), "offloads", offloads)
	err = u.wait(ctx, &a.host, services, link)
	u.unrevoked.Add(conn.Stop().Unrevoked)
	return err
}

// messaging is the configuration of the host's channels.
func (u *Unit) messaging(h *host, mode protocol.Mode, queues, mtu int) messaging.Config {
	c := u.cfg.Messaging
	c.Device, c.Mode, c.Queues, c.MTU = u.cfg.Device, mode, queues, mtu
	c.PeerPools, c.AskLast = h.hello.Pools, true
	c.LatencyQueue = h.hasLatency()
	c.LatencyPools = messaging.LatencyPools(mode, h.hello.MaxMTU)
	if c.Pools == nil {
		c.Pools = messaging.DefaultPools(mode, h.hello.MaxMTU)
	}
	if mode.Sends() {
		c.MaxPools = 0 // one: there is no other choice
	}
	if h.policy.MaxMemory > 0 {
		c.MaxMemory = h.policy.MaxMemory
	}
	c.Capture = func(queue int) *capture.Path {
		name := fmt.Sprintf("host %s queue %d", h.hello.Name, queue)
		if c.LatencyQueue && queue == queues-1 {
			name = fmt.Sprintf("host %s latency queue", h.hello.Name)
		}
		return u.captures.Path(name, fmt.Sprintf("key %s, mode %s", h.peer(), mode))
	}
	return c
}

// features are the optional parts of the protocol that both sides can use.
func (u *Unit) features(h *host) []string {
	var both []string
	if !u.cfg.Messaging.NoPack && h.hello.Offers(protocol.FeaturePack) {
		both = append(both, protocol.FeaturePack)
	}
	if h.hasLatency() {
		both = append(both, protocol.FeatureLatencyQueue)
	}
	if h.bound {
		both = append(both, protocol.FeatureBind)
	}
	if h.hello.Offers(protocol.FeatureRenew) {
		both = append(both, protocol.FeatureRenew)
	}
	if h.hello.Offers(protocol.FeatureDrain) {
		both = append(both, protocol.FeatureDrain)
	}
	if h.hello.Offers(protocol.FeatureStandby) {
		both = append(both, protocol.FeatureStandby)
	}
	if u.cfg.Device.Limits().Windows && h.hello.Offers(protocol.FeatureWindow) {
		both = append(both, protocol.FeatureWindow)
	}
	if h.hello.Offers(protocol.FeatureOneTouch) {
		both = append(both, protocol.FeatureOneTouch)
	}
	if u.direct != nil && h.bound && h.hello.Offers(protocol.FeatureDirect) && h.hello.Run != (protocol.Run{}) {
		both = append(both, protocol.FeatureDirect)
	}
	if h.hello.Offers(protocol.FeatureKeySend) {
		both = append(both, protocol.FeatureKeySend)
	}
	return both
}

// connect exchanges the addresses of the queue pairs with the host and
// connects them.
func (u *Unit) connect(ctx context.Context, h *host, conn *messaging.Conn, w session.Welcome) error {
	for _, addr := range conn.Addresses() {
		w.Channels = append(w.Channels, session.ChannelOf(addr))
	}
	accept, err := h.s.Welcome(ctx, w)
	if err != nil {
		return err
	}
	remote := make([]fabric.Address, 0, len(accept.Channels))
	for _, ch := range accept.Channels {
		remote = append(remote, ch.Address())
	}
	if err := conn.Connect(remote, accept.ControlReceives); err != nil {
		return errors.Join(err, h.s.Bye(session.CodeFailed, err.Error()))
	}
	u.direct.join(h, slices.Contains(w.Features, protocol.FeatureDirect))
	return h.s.Ready(ctx)
}

// wait passes changes of the card on to the host until the session ends, and
// returns why it did.
func (u *Unit) wait(ctx context.Context, h *host, s *services, reported lan.LinkState) error {
	conn := s.conn
	var watcher sync.WaitGroup
	wctx, stop := context.WithCancel(ctx)
	watcher.Go(func() { s.tells.run(wctx.Done()) })
	watcher.Go(func() { u.direct.send(h, wctx.Done()) })
	watcher.Go(func() {
		s.refuse.run(wctx.Done(), func(reason string) {
			s.lines.Log(h.log, slog.LevelWarn, "frames of the host are dropped", "reason", reason)
		})
	})
	watcher.Go(func() {
		// What was reported to the host at the start is compared with what it is now.
		err := s.port.Watch(wctx, func(now lan.LinkState) {
			s.tell(wctx, reported, now)
			s.linkIs(now.Up)
			u.addresses.cardHas(now.MAC)
			reported = now
		})
		if err != nil {
			h.log.Warn("the network card is no longer watched", "error", err)
			h.cancel(err)
		}
	})
	var err error
	code, reason := session.CodeFailed, ""
	select {
	case <-ctx.Done():
		switch err = context.Cause(ctx); {
		case errors.Is(err, context.Canceled):
			code, err = session.CodeShuttingDown, errShuttingDown
			u.direct.close()
			flush(h, conn)
		case errors.Is(err, errDisconnected):
			code = session.CodeDisconnected
			flush(h, conn)
		case brokenRule(err) != "":
			code = session.CodeProtocol
		case errors.Is(err, errPolicy):
			code = session.CodePolicy
		}
		reason = err.Error()
		u.direct.leave(h)
	case <-h.s.Done():
		err = h.s.Err()
		u.direct.leave(h)
		if bye := (*session.ByeError)(nil); errors.As(err, &bye) {
			conn.Stop() // what the host sent before it said so is delivered
		} else {
			conn.Abort(err) // before the bye, which may take its time
		}
	case <-conn.Done():
		err = conn.Err()
		u.direct.leave(h)
		reason = err.Error()
		var pe *messaging.ProtocolError
		if errors.As(err, &pe) {
			code = session.CodeProtocol
		}
	}
	byeErr := h.s.Bye(code, reason)
	stop()
	watcher.Wait()
	h.log.Debug("bye", "error", byeErr)
	return err
}

// flush has all pools of a session go, both sides', which this I/O unit ends. What the
// host has sent has arrived then, and what it has not is sent over its next session,
// which begins after the bye.
func flush(h *host, conn *messaging.Conn) {
	if err := conn.Flush(); err != nil {
		h.log.Debug("pools end with their session", "error", err)
	}
}
