package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// attachment is one session with an I/O unit and everything it holds. It is open
// first, then in use, then retired. One on standby stays open for as long as it
// lives: the I/O unit keeps the port on its network card down.
type attachment struct {
	unit    int // index of the I/O unit
	addr    string
	standby bool
	client  *session.Client
	conn    *messaging.Conn
	change  int             // of handling, that it was made with
	welcome session.Welcome // guarded by Host.mu
	since   time.Time       // in use; guarded by Host.mu
	stages  []uplink.Stage
}

// stopwatch measures stages, one after the other.
type stopwatch struct {
	last   time.Time
	stages []uplink.Stage
	told   func() // of each lap; may be nil
}

func (w *stopwatch) lap(name string) {
	now := time.Now()
	w.stages = append(w.stages, uplink.Stage{Name: name, Took: now.Sub(w.last)})
	w.last = now
	if w.told != nil {
		w.told()
	}
}

// open makes a session, over a connection that it takes over, up to the point
// where both sides are ready.
func (h *Host) open(ctx context.Context, d dialled, standby bool) (a *attachment, err error) {
	c := d.client
	a = &attachment{unit: d.unit, addr: h.units[d.unit], standby: standby, client: c}
	defer func() {
		if err == nil {
			return
		}
		if a.conn != nil {
			err = errors.Join(err, a.conn.Close())
		}
		c.Close()
		if !standby {
			h.dev.setPhase(mirror.NoSession)
		}
		a = nil
	}()
	features := h.features()
	var mac protocol.MAC
	if standby {
		features = append(features, protocol.FeatureStandby)
		mac = h.dev.shown.Load().agreed.MAC
	} else if mac, err = h.dev.open(); err != nil {
		return a, err
	}
	watch := stopwatch{last: time.Now(), stages: []uplink.Stage{{Name: "connect and authenticate", Took: d.took}},
		told: d.heard}
	w, err := c.Hello(ctx, session.Hello{
		Features: features,
		Name:     h.cfg.Name, Software: h.cfg.Software, Modes: h.cfg.Modes,
		Queues: len(h.cfg.Netdev.Ports()), Pools: h.cfg.lends(),
		MaxMTU: h.cfg.MaxMTU, Offloads: h.cfg.Offloads, MAC: mac,
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
	if a.conn, err = h.channels(a); err != nil {
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
	if err := reaches(ctx, a); err != nil {
		return a, fail(err)
	}
	watch.lap("cross the fabric")
	a.stages = watch.stages
	return a, nil
}

// reaches waits for a sign of life over the fabric. The bootstrap connection may
// go where RDMA does not: without this there would be sessions, and a carrier,
// through which no frame ever comes, until the I/O unit's silence is noticed.
func reaches(ctx context.Context, a *attachment) error {
	err := a.conn.Reach(ctx)
	if err == nil {
		return nil
	}
	if ended := a.conn.Err(); ended != nil {
		err = ended
	}
	return fmt.Errorf("no answer over the fabric: %w; do RDMA packets (RoCE v2: UDP port 4791) get through between the RDMA devices of both sides?", err)
}

// channels makes the channels of a session.
func (h *Host) channels(a *attachment) (*messaging.Conn, error) {
	w := &a.welcome
	cfg := h.cfg.messaging(w.Mode)
	cfg.Queues, cfg.MTU, cfg.PeerPools = w.Queues, w.MTU, w.Pools
	cfg.LatencyQueue = w.Grants(protocol.FeatureLatencyQueue)
	cfg.NoPack = !slices.Contains(w.Features, protocol.FeaturePack)
	cfg.Invalidation = w.Grants(protocol.FeatureWindow)
	cfg.OneTouch = w.Grants(protocol.FeatureOneTouch)
	bind, err := binding(a.client, w)
	if err != nil {
		return nil, err
	}
	cfg.Bind = bind
	cfg.OnRequest = func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
		return h.onRequest(a, t, data)
	}
	cfg.Pace = func(protocol.CfgType, []byte) time.Duration { return h.paced(a) }
	a.change = h.configureHandlers(&cfg)
	conn, err := messaging.New(cfg)
	if errors.Is(err, syscall.ENOMEM) && h.retired.wait() {
		// What the last session had registered is free now.
		conn, err = messaging.New(cfg)
	}
	return conn, err
}

// lives reports whether a session that is open has not ended.
func (a *attachment) lives() bool { return a.client.Err() == nil && a.conn.Err() == nil }

// activate makes an open session the one in use: the netdevice gets what was
// granted, the carrier follows the I/O unit, and frames move, those first that
// remain of the session before, if any.
func (h *Host) activate(a *attachment, unsent *messaging.Remains) error {
	watch := stopwatch{last: time.Now()}
	// As one: what the I/O unit tells is in what it has granted, or comes after.
	h.dev.mu.Lock()
	err := h.configure(a)
	offloads := h.dev.is.offloads
	if err == nil {
		watch.lap("configure the netdevice")
		unsent = h.sendable(unsent, offloads)
		err = h.connected(a)
	}
	h.dev.unlock()
	if err != nil {
		return err
	}
	h.cfg.OnState(Connected)
	if err := a.conn.StartData(h.cfg.Netdev.Ports()[:a.welcome.Queues], unsent); err != nil {
		return err
	}
	watch.lap("start")
	a.stages = append(a.stages, watch.stages...)
	h.endFailover(a, offloads)
	h.dev.setPhase(mirror.Established)
	w := &a.welcome
	h.cfg.Log.Info("session established", "iounit", a.addr, "name", w.Name, "session", w.Session,
		"mode", w.Mode, "mac", w.MAC, "mtu", w.MTU, "queues", w.Queues, "link", w.Link.Up)
	return nil
}

// connected makes a the session in use and gives the netdevice its carrier. The
// caller holds dev.mu.
func (h *Host) connected(a *attachment) error {
	h.mu.Lock()
	h.catchUp(a.conn, a.change)
	a.since = time.Now()
	s := &h.session
	s.state, s.since, s.addr, s.peer = Connected, a.since, a.addr, a.client.Peer()
	s.welcome, s.conn = a.welcome, a.conn
	h.tally.lastErr = nil
	clear(h.tally.warned)
	h.tally.sessions++
	link := a.welcome.Link
	h.mu.Unlock()
	return h.dev.setLink(link)
}

// disconnected forgets the session and takes the carrier, unless another process
// follows.
func (h *Host) disconnected(ctx context.Context) error {
	h.mu.Lock()
	h.session.state, h.session.since, h.session.conn = Connecting, time.Now(), nil
	h.mu.Unlock()
	var err error
	h.dev.mu.Lock()
	h.dev.mirror.SetPhase(mirror.NoSession)
	if !h.handsOver(ctx) {
		err = h.dev.setLink(session.Link{})
	}
	h.dev.unlock()
	h.cfg.OnState(Connecting)
	return err
}

// retire ends a session that is not in use any more, in the background: neither
// a dead I/O unit nor the deregistration of memory holds up the next session.
func (h *Host) retire(a *attachment, code session.Code, reason string) {
	h.retired.add(func() {
		if err := errors.Join(a.client.Bye(code, reason), a.conn.Close()); err != nil {
			h.cfg.Log.Debug("end of a session", "iounit", a.addr, "error", err)
		}
	})
}

// retirees are sessions that are being taken down.
type retirees struct {
	mu      sync.Mutex
	pending map[chan struct{}]bool
}

// add has something done in the background.
func (r *retirees) add(do func()) {
	done := make(chan struct{})
	r.mu.Lock()
	if r.pending == nil {
		r.pending = make(map[chan struct{}]bool)
	}
	r.pending[done] = true
	r.mu.Unlock()
	go func() {
		do()
		r.mu.Lock()
		delete(r.pending, done)
		r.mu.Unlock()
		close(done)
	}()
}

// wait waits for those that there are and reports whether there were any.
func (r *retirees) wait() bool {
	waited := false
	for {
		var one chan struct{}
		r.mu.Lock()
		for one = range r.pending {
			break
		}
		r.mu.Unlock()
		if one == nil {
			return waited
		}
		<-one
		waited = true
	}
}
