package hostiletest

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// victim is a session under attack, with a port that counts frames.
type victim struct {
	t       testing.TB
	conn    *messaging.Conn
	pools   int   // number of pools that it lends on each data channel at first
	lends   int   // largest number of pools that it, or the peer, lends on each data channel
	port    *port // of the first data channel
	wire    *porttest.Wire
	release func() // cancels ctx, which ends everything that is held back
	ctx     context.Context

	bound      bool      // it requires a proof, which the attack takes the place of, or precedes
	silence    bool      // it ends because the peer is silent
	oneReceive bool      // the peer posts only one receive on the control channel
	gate       *gate     // holds back invalidations, if not nil
	registry   *registry // knows the regions' own keys, if not nil
}

// small returns a configuration of a session that is quick to make and to close.
func small(dev fabric.Device, mode protocol.Mode, timing fabric.Timing) messaging.Config {
	cfg := messaging.Config{
		Device: dev, Mode: mode, Timing: timing, SendSlots: 4, Batch: 1, SignalEvery: 2,
		Pools:     []messaging.PoolConfig{{ElementSize: 2048, Elements: 16}, {ElementSize: 65536, Elements: 4}},
		KeepAlive: patience, PeerTimeout: 2 * patience,
	}
	if mode.Sends() {
		cfg.Pools = []messaging.PoolConfig{{ElementSize: 65600, Elements: 8}}
	}
	cfg.PeerPools = cfg.Lends()
	return cfg
}

// newVictim makes a session. prepare, if not nil, can change its configuration.
func newVictim(t testing.TB, cfg messaging.Config, prepare func(*victim, *messaging.Config)) *victim {
	t.Helper()
	v := &victim{t: t}
	v.ctx, v.release = context.WithCancel(context.Background())
	inner, wire := porttest.New(t, 1<<18)
	v.port, v.wire = &port{Port: inner}, wire
	if prepare != nil {
		prepare(v, &cfg)
	}
	v.port.held, v.pools, v.lends = v.ctx, len(cfg.Pools), cfg.PeerPools
	conn, err := messaging.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	v.conn = conn
	t.Cleanup(v.close)
	return v
}

func (v *victim) close() {
	v.release()
	if err := v.conn.Close(); err != nil {
		v.t.Errorf("close the session under attack: %v", err)
	}
}

// busy answers a request only after release.
func (v *victim) busy(protocol.CfgType, []byte) (protocol.CfgStatus, []byte) {
	<-v.ctx.Done()
	return protocol.CfgOK, nil
}

// sendFrame makes the session send a frame to its peer.
func (v *victim) sendFrame(ctx context.Context, frame []byte) {
	v.t.Helper()
	if err := v.wire.Send(ctx, frame); err != nil {
		v.t.Fatal(err)
	}
}

// receives expects that the session's port delivers this frame.
func (v *victim) receives(ctx context.Context, want []byte) {
	v.t.Helper()
	got, err := v.wire.Receive(ctx, make([]byte, vnet.MaxFrame))
	if err != nil || !bytes.Equal(got, want) {
		v.t.Errorf("%d bytes were delivered that differ from the %d that were judged: %v", len(got), len(want), err)
	}
}

// connect connects the session to a peer, starts it, and waits until the peer has received all its
// pools.
func (v *victim) connect(p *Peer, queues int) {
	v.t.Helper()
	v.meet(p, queues)
	for len(p.Pools) < v.pools*queues { // one-touch pools are offered one by one
		p.Started()
	}
}

// meet connects the session to a peer and starts it.
func (v *victim) meet(p *Peer, queues int) {
	v.t.Helper()
	p.ok(v.conn.Connect(p.Addresses(), 1<<14))
	p.Connect(v.conn.Addresses())
	ports := []messaging.Port{porttest.Batched{Single: v.port}}
	for len(ports) < queues {
		more, _ := porttest.New(v.t, 1<<16)
		ports = append(ports, porttest.Batched{Single: more})
	}
	p.ok(v.conn.Start(ports))
}

// ended waits for the end of the session and returns its reason.
func (v *victim) ended(ctx context.Context) error {
	v.t.Helper()
	select {
	case <-v.conn.Done():
	case <-ctx.Done():
		v.t.Fatalf("the session goes on: %v", context.Cause(ctx))
	}
	return v.conn.Err()
}

// until waits for something that depends on the session's goroutines.
func (v *victim) until(ctx context.Context, cond func() bool) {
	v.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			v.t.Fatal(context.Cause(ctx))
		}
	}
}

// port is a port that counts the frames delivered, and can block the receiver that delivers them.
type port struct {
	*porttest.Port
	delivered atomic.Int64
	holds     bool
	held      context.Context
}

func (p *port) hold() { p.holds = true }

// WriteFrame implements porttest.Single.
func (p *port) WriteFrame(frame []byte) error {
	p.delivered.Add(1)
	if p.holds {
		<-p.held.Done()
	}
	return p.Port.WriteFrame(frame)
}
