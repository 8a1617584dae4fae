package iounit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Run serves the hosts that ln delivers until ctx is done. Then it ends all sessions, waits
// for them, and returns nil. ln remains the caller's.
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

// serve runs a host's session from beginning to end.
func (u *Unit) serve(ctx context.Context, s *session.Server) {
	hello := s.Hello()
	log := u.cfg.Log.With("host", hello.Name, "from", s.RemoteAddr(), "key", s.Peer())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a := &attachment{
		host: host{
			s: s, peer: s.Peer, hello: hello, log: log, key: hostKey(s.Peer(), hello.Name),
			limits: s.LimitKey(), cancel: cancel, since: time.Now(),
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

// session takes a host through the steps of its session and releases everything. The
// functions of the steps follow in this order:
//
//	agree     chooses settings that both sides and the policy permit
//	          (then the session waits for its turn, and its LAN interface is opened)
//	channels  creates the channels, with the features of both sides
//	connect   sends their addresses to the host, and connects the channels
//	use       moves frames, until something ends the session (wait)
//
// It answers the host's hello in any case.
func (u *Unit) session(ctx context.Context, a *attachment) error {
	defer a.s.Close()
	o, err := u.agree(a)
	if err != nil {
		u.decline(a, err)
		return nil
	}
	turn, err := setUpTurn(ctx, u.setups, &a.host)
	switch {
	case errors.Is(err, net.ErrClosed):
		return a.s.Err() // the host is no longer trusted
	case err != nil:
		u.refuseForNow(a, err)
		return nil
	}
	defer turn.End(0)
	port, queues, err := u.cfg.openLAN(&a.host, o.mac)
	if err != nil {
		u.decline(a, err)
		return nil
	}
	defer port.Close()
	u.addresses.refresh()
	if own, err := port.State(); err == nil && !own.Up { // a port of a switch that is not connected yet
		o.link.Up = false
	}
	services := newServices(&a.host, &u.common, port, o.mac, min(o.link.MTU, a.hello.MaxMTU), o.link.MTU)
	defer services.leave()
	defer u.direct.leave(&a.host)
	conn, w, err := u.channels(a, services, o, queues)
	turn.End(0)
	if err != nil {
		u.decline(a, err)
		return nil
	}
	defer conn.Close()
	services.conn = conn
	if err := u.connect(ctx, &a.host, conn, w); err != nil {
		return err
	}
	if err := u.cfg.KeyLog.Add(a.s.SessionID(), a.keys); err != nil {
		a.log.Warn("the secret of the session was not logged", "error", err)
	}
	return u.use(ctx, a, services, w, o.link)
}

// outline has the settings of a session that are chosen before anything is created for it.
type outline struct {
	mode protocol.Mode
	link lan.LinkState // state of the network card
	mac  protocol.MAC
	// cipher is that of the session, or "".
	cipher seal.Cipher
}

// agree chooses the settings that the host requests, the I/O unit has and the policy allows.
func (u *Unit) agree(a *attachment) (o outline, err error) {
	if o.mode, err = chooseMode(a.hello.Modes, u.cfg.Modes, a.policy.Modes); err != nil {
		return o, &codedError{session.CodeMode, err}
	}
	if o.link, err = u.cfg.LinkState(); err != nil {
		return o, err
	}
	if a.bound = a.hello.Offers(protocol.FeatureBind); a.policy.RequireBind && !a.bound {
		return o, &codedError{session.CodePolicy, errUnbound}
	}
	if o.cipher, err = seal.Agree(u.encryption(a.policy), u.cfg.Ciphers, a.hello.Encrypt, a.hello.Ciphers); err != nil {
		return o, &codedError{session.CodeEncryption, err}
	}
	if o.mac, err = u.addresses.choose(&a.host); err != nil {
		return o, &codedError{session.CodePolicy, err}
	}
	return o, nil
}

// channels creates the channels of a session. It returns the welcome for the host, without
// their addresses.
func (u *Unit) channels(
	a *attachment, s *services, o outline, queues int,
) (conn *messaging.Conn, w session.Welcome, err error) {
	offloads, err := s.port.SetOffloads(s.port.Offloads().Intersect(a.hello.Offloads))
	if err != nil {
		return nil, w, &codedError{session.CodePolicy, err}
	}
	w = session.Welcome{
		Features: u.features(&a.host, o.cipher), Cipher: o.cipher,
		Name: u.cfg.Name, Software: u.cfg.Software, Mode: o.mode,
		Queues: queues, MAC: o.mac, MTU: s.mtu,
		Link:     session.Link{Up: o.link.Up, SpeedMbps: uint32(o.link.Speed)},
		Offloads: offloads,
	}
	if w.Grants(protocol.FeatureDrain) {
		a.s.HandleStays(func(why string) { u.stays(a, why) })
	}
	c := u.messaging(&a.host, &w)
	c.OnRequest, c.OnHears = s.answer, a.s.Vouch
	c.Pace = func(t protocol.CfgType, data []byte) time.Duration { return u.paced(&a.host, t, data) }
	if a.bound {
		secret, err := a.s.Binding()
		if err != nil {
			return nil, w, &codedError{session.CodeFailed, err}
		}
		c.Bind = messaging.NewBinding(secret, false)
	}
	if o.cipher != "" {
		secret, err := a.s.Frames()
		if err == nil {
			c.Keys, err = seal.NewKeys(o.cipher, secret, false)
		}
		if err != nil {
			return nil, w, &codedError{session.CodeFailed, err}
		}
		a.keys = c.Keys
	} else if len(a.hello.Ciphers) > 0 && u.encryption(a.policy) != seal.No {
		a.log.Info("the session is not encrypted, although both sides could; --encrypt required at one of them changes that")
	}
	if g, ok := u.handlingOf(a.key); ok {
		c.SetHandling(g)
	}
	if w.Grants(protocol.FeatureStandby) {
		if err := s.standBy(); err != nil {
			return nil, w, err
		}
	}
	if conn, err = messaging.New(c); err != nil {
		return nil, w, err
	}
	w.Pools, w.ControlReceives = c.Lends(), conn.ControlReceives()
	return conn, w, nil
}

// messaging returns the configuration of the host's channels.
func (u *Unit) messaging(h *host, w *session.Welcome) messaging.Config {
	c := u.cfg.Messaging
	c.Device, c.Mode, c.Queues, c.MTU = u.cfg.Device, w.Mode, w.Queues, w.MTU
	c.PeerPools, c.AskLast = h.hello.Pools, true
	c.NoPack = !w.Grants(protocol.FeaturePack)
	c.Invalidation = w.Grants(protocol.FeatureWindow)
	c.OneTouch = w.Grants(protocol.FeatureOneTouch)
	c.KeySend = w.Grants(protocol.FeatureKeySend)
	c.ProvePath = w.Grants(protocol.FeaturePathMTU)
	c.LatencyQueue = h.hasLatency()
	c.LatencyPools = messaging.LatencyPools(w.Mode, h.hello.MaxMTU)
	if c.Pools == nil {
		c.Pools = messaging.DefaultPools(w.Mode, h.hello.MaxMTU)
	}
	if w.Mode.Sends() {
		c.MaxPools = 0 // default: always one
	}
	if h.policy.MaxMemory > 0 {
		c.MaxMemory = h.policy.MaxMemory
	}
	c.Capture = func(queue int) *capture.Path {
		name := fmt.Sprintf("host %s queue %d", h.hello.Name, queue)
		if c.LatencyQueue && queue == c.Queues-1 {
			name = fmt.Sprintf("host %s latency queue", h.hello.Name)
		}
		return u.captures.Path(name, fmt.Sprintf("key %s, mode %s", h.peer(), c.Mode))
	}
	return c
}

// features returns the optional features of the protocol that both sides support.
func (u *Unit) features(h *host, cipher seal.Cipher) []string {
	var both []string
	for _, f := range []struct {
		word string
		here bool
	}{
		{protocol.FeaturePack, !u.cfg.Messaging.NoPack},
		{protocol.FeatureLatencyQueue, h.hasLatency()},
		{protocol.FeatureBind, true},
		{protocol.FeaturePathMTU, h.bound},
		{protocol.FeatureRenew, true},
		{protocol.FeatureDrain, true},
		{protocol.FeatureStandby, true},
		{protocol.FeatureWindow, device.WindowsOf(u.cfg.Device).Work}, // the device can invalidate the peer's windows
		{protocol.FeatureOneTouch, true},
		{protocol.FeatureDirect, u.direct != nil && h.bound && h.hello.Run != (protocol.Run{})},
		{protocol.FeatureKeySend, cipher == ""}, // its messages would not be encrypted
	} {
		if f.here && h.hello.Offers(f.word) {
			both = append(both, f.word)
		}
	}
	return both
}

// connect exchanges the addresses of the queue pairs with the host and
// connects them.
func (u *Unit) connect(ctx context.Context, h *host, conn *messaging.Conn, w session.Welcome) error {
	w.Channels = session.Channels(conn.Addresses())
	accept, err := h.s.Welcome(ctx, w)
	if err != nil {
		return err
	}
	if err := conn.Connect(session.Addresses(accept.Channels), accept.ControlReceives); err != nil {
		return errors.Join(err, h.s.Bye(session.CodeFailed, err.Error()))
	}
	u.direct.join(h, w.Grants(protocol.FeatureDirect), w.Cipher != "")
	return h.s.Ready(ctx)
}

// use moves the frames of a host whose channels are connected, until the session ends.
func (u *Unit) use(ctx context.Context, a *attachment, s *services, w session.Welcome, link lan.LinkState) error {
	a.begin(s, w.Mode)
	defer a.show(nil)
	err := s.conn.StartControl()
	if err == nil {
		// Before frames move, so that the status has the session of every frame.
		a.established = true
		s.linkIs(link.Up)
		u.direct.established(&a.host, w.Mode)
		u.served.Add(1)
		a.show(s)
		err = s.conn.StartData(s.guard.Ports(), nil)
	}
	if err != nil {
		return errors.Join(err, a.s.Bye(session.CodeFailed, err.Error()))
	}
	u.mayLeave(a, w.Grants(protocol.FeatureDrain))
	a.log.Info("session established", "session", a.s.SessionID(), "mac", w.MAC, "mtu", w.MTU,
		"mode", w.Mode, "encryption", cmp.Or(w.Cipher, "none"), "queues", w.Queues,
		"lan", s.port.Name(), "offloads", w.Offloads)
	err = u.wait(ctx, &a.host, s, link)
	u.unrevoked.Add(s.conn.Stop().Unrevoked)
	return err
}

// wait sends changes of the card to the host until the session ends, and returns the reason
// for the end.
func (u *Unit) wait(ctx context.Context, h *host, s *services, reported lan.LinkState) error {
	conn := s.conn
	var watcher sync.WaitGroup
	wctx, stop := context.WithCancel(ctx)
	watcher.Go(func() { s.tells.run(wctx.Done()) })
	watcher.Go(func() { s.repeat(wctx) })
	watcher.Go(func() { u.direct.send(h, wctx.Done()) })
	watcher.Go(func() {
		s.guard.Refusals.Run(wctx.Done(), func(reason string) {
			s.lines.Log(h.log, slog.LevelWarn, "frames of the host are dropped", "reason", reason)
		})
	})
	watcher.Go(func() {
		// Compare the present state with the one in the welcome.
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
			conn.Stop() // deliver the frames that the host has sent before its bye
		} else {
			conn.Abort(err) // before the bye, which can take a while
		}
	case <-conn.Done():
		err = conn.Err()
		u.direct.leave(h)
		reason = err.Error()
		if errors.As(err, new(*messaging.ProtocolError)) {
			code = session.CodeProtocol
		}
	}
	byeErr := h.s.Bye(code, reason)
	stop()
	watcher.Wait()
	h.log.Debug("bye", "error", byeErr)
	return err
}

// flush ends all pools of a session, of both sides, before this I/O unit ends the session.
// Frames that the host has sent have arrived then. It sends the others in its next session,
// which begins after the bye.
func flush(h *host, conn *messaging.Conn) {
	if err := conn.Flush(); err != nil {
		h.log.Debug("pools end with their session", "error", err)
	}
}
