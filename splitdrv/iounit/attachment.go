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
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// attachment is one host's session and everything it holds.
type attachment struct {
	unit   *Unit
	s      *session.Server
	hello  session.Hello
	log    *slog.Logger
	key    string
	cancel context.CancelCauseFunc
	gone   chan struct{} // closed when everything is released
	since  time.Time
	mac    protocol.MAC // guarded by Unit.mu

	mu   sync.Mutex // guards what follows, for Status
	conn *messaging.Conn
	port lan.Interface
	mtu  int
}

// run opens the host's LAN interface and channels, moves frames, and releases
// everything. It answers the host's hello in any case.
func (a *attachment) run(ctx context.Context) error {
	u := a.unit
	defer a.s.Close()
	if !slices.Contains(a.hello.Modes, protocol.ModeImm) {
		err := fmt.Errorf("no transfer mode of %q is available; use %s", a.hello.Modes, protocol.ModeImm)
		u.refuse(a, session.CodeMode, err)
		return nil
	}
	link, err := u.cfg.LinkState()
	if err != nil {
		u.refuse(a, session.CodeBusy, err)
		return nil
	}
	mac := a.hello.MAC
	if mac == (protocol.MAC{}) {
		mac = macOf(a.key)
	}
	if err := u.claimMAC(a, mac); err != nil {
		u.refuse(a, session.CodePolicy, err)
		return nil
	}
	queues := min(a.hello.Queues, u.cfg.MaxQueues)
	port, err := u.cfg.OpenLAN(net.HardwareAddr(mac[:]), queues)
	switch {
	case errors.Is(err, lan.ErrInUse), errors.Is(err, lan.ErrUnsupported):
		u.refuse(a, session.CodePolicy, err)
		return nil
	case err != nil:
		u.refuse(a, session.CodeBusy, err)
		return nil
	}
	defer port.Close()
	offloads, err := port.SetOffloads(port.Offloads().Intersect(a.hello.Offloads))
	if err != nil {
		u.refuse(a, session.CodePolicy, err)
		return nil
	}

	mtu := min(link.MTU, a.hello.MaxMTU)
	mcfg := u.cfg.Messaging
	mcfg.Device, mcfg.Queues, mcfg.MTU = u.cfg.Device, queues, mtu
	if mcfg.Pools == nil {
		mcfg.Pools = messaging.DefaultPools(protocol.ModeImm, a.hello.MaxMTU)
	}
	conn, err := messaging.New(mcfg)
	if err != nil {
		u.refuse(a, session.CodeBusy, err)
		return nil
	}
	defer conn.Close()
	if err := a.connect(ctx, conn, session.Welcome{
		Name: u.cfg.Name, Software: u.cfg.Software, Mode: protocol.ModeImm,
		Queues: queues, Pools: len(mcfg.Pools), MAC: mac, MTU: mtu,
		Link:     session.Link{Up: link.Up, SpeedMbps: uint32(link.Speed)},
		Offloads: offloads, ControlReceives: conn.ControlReceives(),
	}); err != nil {
		return err
	}
	ports := make([]messaging.Port, 0, queues)
	for _, q := range port.Queues() {
		ports = append(ports, q)
	}
	if err := conn.Start(ports); err != nil {
		return errors.Join(err, a.s.Bye(session.CodeFailed, err.Error()))
	}
	a.show(conn, port, mtu)
	defer a.show(nil, nil, 0)
	u.served.Add(1)
	a.log.Info("session established", "session", a.s.SessionID(), "mac", mac, "mtu", mtu,
		"queues", queues, "lan", port.Name(), "offloads", offloads)
	return a.wait(ctx, conn, port, link)
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
	return a.s.Ready(ctx)
}

// wait passes changes of the card on to the host until the session ends, and
// returns why it did.
func (a *attachment) wait(ctx context.Context, conn *messaging.Conn, port lan.Interface, told lan.LinkState) error {
	var watcher sync.WaitGroup
	wctx, stop := context.WithCancel(ctx)
	watcher.Go(func() {
		// What the host was told at the start is compared with what it is now.
		err := port.Watch(wctx, func(now lan.LinkState) {
			a.tell(wctx, conn, told, now)
			told = now
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
		if err = context.Cause(ctx); errors.Is(err, context.Canceled) {
			code, err = session.CodeShuttingDown, errShuttingDown
		}
		reason = err.Error()
	case <-a.s.Done():
		err = a.s.Err()
	case <-conn.Done():
		err = conn.Err()
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

// tell tells the host what changed on the card.
func (a *attachment) tell(ctx context.Context, conn *messaging.Conn, before, now lan.LinkState) {
	request := func(t protocol.CfgType, data []byte) {
		if _, err := conn.Request(ctx, t, data); err != nil {
			a.log.Warn("the host did not follow the network card", "what", t, "reason", err)
		}
	}
	if now.MTU != before.MTU && now.MTU > 0 {
		mtu := min(now.MTU, a.hello.MaxMTU)
		conn.SetMTU(mtu)
		a.mu.Lock()
		a.mtu = mtu
		a.mu.Unlock()
		request(protocol.CfgMTU, protocol.AppendMTU(nil, mtu))
	}
	if now.Up != before.Up || now.Speed != before.Speed {
		request(protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: now.Up, Speed: uint32(now.Speed)}))
	}
}

// show makes the session visible to Status, or takes it away.
func (a *attachment) show(conn *messaging.Conn, port lan.Interface, mtu int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn, a.port, a.mtu = conn, port, mtu
}
