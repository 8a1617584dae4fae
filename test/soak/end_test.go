package soak

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// errLeft is the error of a side that leaves as planned.
var errLeft = errors.New("left as planned")

// end is one side of a cycle's session. It does what the process of an endpoint does, without a
// netdevice.
type end struct {
	side    side
	plan    *plan
	device  *device
	session *session.Conn
	conn    *messaging.Conn
	ports   []*port

	started  chan struct{} // closed when frames can move
	stop     chan struct{} // closed to tell it to end
	rude     atomic.Bool   // it ends without a bye
	done     chan struct{} // closed when all resources are released
	once     sync.Once
	err      error // why it ended, nil if it was told to; valid after done
	closeErr error // result of Close; valid after done
}

func newEnd(s side, p *plan, d *device) *end {
	return &end{side: s, plan: p, device: d, started: make(chan struct{}), stop: make(chan struct{}),
		done: make(chan struct{})}
}

// end tells e to end, with a bye to the peer if polite.
func (e *end) end(polite bool) {
	e.once.Do(func() {
		e.rude.Store(!polite)
		close(e.stop)
	})
}

// leave returns errLeft if e is planned to leave the handshake in this phase.
func (e *end) leave(phase int) error {
	if e.plan.fault != faultLeave || e.plan.at != e.side || e.plan.phase != phase {
		return nil
	}
	e.rude.Store(!e.plan.polite)
	return errLeft
}

// features returns the features for which both sides are configured.
func (e *end) features() []string {
	var f []string
	if !e.plan.cfg[host].NoPack {
		f = append(f, protocol.FeaturePack)
	}
	if e.plan.cfg[host].LatencyQueue {
		f = append(f, protocol.FeatureLatencyQueue)
	}
	if e.plan.cfg[host].Invalidation {
		f = append(f, protocol.FeatureWindow)
	}
	if e.plan.cfg[host].OneTouch {
		f = append(f, protocol.FeatureOneTouch)
	}
	if e.plan.cfg[host].KeySend {
		f = append(f, protocol.FeatureKeySend)
	}
	return f
}

// build creates the channels.
func (e *end) build(peerPools int) (err error) {
	cfg := e.plan.cfg[e.side]
	cfg.Device, cfg.PeerPools = e.device, peerPools
	e.conn, err = messaging.New(cfg)
	return err
}

// windows returns how many memory windows the pools that e lends need.
func (e *end) windows() int64 {
	s := e.conn.Stats()
	n := 0
	for _, ch := range s.Channels {
		for _, p := range ch.LocalPools {
			switch s.Protection.Name {
			case messaging.ProtectWindow:
				n++
			case messaging.ProtectOneTouch:
				n += p.Elements
			default:
			}
		}
	}
	return int64(n)
}

// dial is the host's side of the handshake.
func (e *end) dial(ctx context.Context, addr string, s *session.Security) error {
	c, err := session.Dial(ctx, addr, session.ClientConfig{Security: s, HandshakeTimeout: patience, PeerTimeout: patience})
	if err != nil {
		return err
	}
	e.session = c.Conn
	if err := e.leave(phaseDialled); err != nil {
		return err
	}
	cfg := e.plan.cfg[host]
	w, err := c.Hello(ctx, session.Hello{
		Features: e.features(), Name: "host", Software: "soak", Modes: []protocol.Mode{e.plan.mode},
		Queues: e.plan.queues, Pools: cfg.Lends(), MaxMTU: e.plan.mtu, Offloads: vnet.AllOffloads,
	})
	if err != nil {
		return err
	}
	if err := e.leave(phaseGreeted); err != nil {
		return err
	}
	if err := e.build(w.Pools); err != nil {
		return err
	}
	if err := e.leave(phaseBuilt); err != nil {
		return err
	}
	if err := c.Accept(ctx, session.Accept{ControlReceives: e.conn.ControlReceives(),
		Channels: session.Channels(e.conn.Addresses())}); err != nil {
		return err
	}
	if err := e.leave(phaseExchanged); err != nil {
		return err
	}
	if err := e.conn.Connect(session.Addresses(w.Channels), w.ControlReceives); err != nil {
		return err
	}
	if err := e.leave(phaseConnected); err != nil {
		return err
	}
	if err := c.Ready(ctx); err != nil {
		return err
	}
	return e.leave(phaseReady)
}

// serve is the I/O unit's side of the handshake.
func (e *end) serve(ctx context.Context, ln *session.Listener) error {
	s, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	e.session = s.Conn
	if e.plan.fault == faultRefuse {
		return errors.Join(errLeft, s.Refuse(session.CodeFull, "full"))
	}
	if err := e.leave(phaseGreeted); err != nil {
		return err
	}
	hello := s.Hello()
	if err := e.build(hello.PoolsIn(e.plan.mode)); err != nil {
		return err
	}
	if err := e.leave(phaseBuilt); err != nil {
		return err
	}
	cfg := e.plan.cfg[unit]
	a, err := s.Welcome(ctx, session.Welcome{
		Features: e.features(), Name: "unit", Software: "soak", Mode: e.plan.mode,
		Queues: e.plan.queues, Pools: cfg.Lends(), MAC: protocol.MAC{2, 0, 0, 0, 0, 1}, MTU: e.plan.mtu,
		Link: session.Link{Up: true}, Offloads: vnet.AllOffloads,
		ControlReceives: e.conn.ControlReceives(), Channels: session.Channels(e.conn.Addresses()),
	})
	if err != nil {
		return err
	}
	if err := e.leave(phaseExchanged); err != nil {
		return err
	}
	if err := e.conn.Connect(session.Addresses(a.Channels), a.ControlReceives); err != nil {
		return err
	}
	if err := e.leave(phaseConnected); err != nil {
		return err
	}
	if err := s.Ready(ctx); err != nil {
		return err
	}
	return e.leave(phaseReady)
}

// start moves frames.
func (e *end) start() error {
	var ports []messaging.Port
	for _, p := range e.ports {
		ports = append(ports, p)
	}
	return e.conn.Start(ports)
}

// run runs e from the handshake to its end.
func (e *end) run(handshake func() error) {
	defer close(e.done)
	err := handshake()
	if err == nil {
		err = e.start()
	}
	if err == nil {
		close(e.started)
		select {
		case <-e.session.Done():
			err = e.session.Err()
		case <-e.conn.Done():
			err = e.conn.Err()
		case <-e.stop:
		}
	}
	// When a process dies its descriptors are closed before anything else.
	if e.session != nil {
		if e.rude.Load() {
			_ = e.session.Close() // the result does not matter
		} else {
			// An error here means that the peer has gone.
			_ = e.session.Bye(session.CodeFailed, "the cycle is over")
		}
	}
	if e.conn != nil {
		e.closeErr = e.conn.Close()
	}
	e.err = err
}
