package messaging_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// gated is a device whose first completion queue, that of the control channel, cannot be
// polled while the gate is locked, as if the control handler did not run.
type gated struct {
	fabric.Device
	gate sync.Mutex
}

func (d *gated) NewDomain() (fabric.Domain, error) {
	domain, err := d.Device.NewDomain()
	return &gatedDomain{Domain: domain, gate: &d.gate}, err
}

type gatedDomain struct {
	fabric.Domain
	gate  *sync.Mutex
	queue *gatedCQ
}

func (d *gatedDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	cq, err := d.Domain.NewCQ(depth, vector)
	if err != nil || d.queue != nil {
		return cq, err
	}
	d.queue = &gatedCQ{CQ: cq, gate: d.gate}
	return d.queue, nil
}

func (d *gatedDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	for _, cq := range []*fabric.CQ{&cfg.SendCQ, &cfg.RecvCQ} {
		if *cq == d.queue {
			*cq = d.queue.CQ
		}
	}
	return d.Domain.NewQP(cfg)
}

type gatedCQ struct {
	fabric.CQ
	gate *sync.Mutex
}

func (q *gatedCQ) Poll(out []fabric.Completion) (int, error) {
	q.gate.Lock()
	defer q.gate.Unlock()
	return q.CQ.Poll(out)
}

// TestPeerIsHeardLate keeps one endpoint's control handler from running for three times its
// time-out, twice. The peer's messages arrive in the meantime, but are not read. The peer must
// not be declared dead, neither then nor afterwards, until it is stalled.
func TestPeerIsHeardLate(t *testing.T) {
	const timeout = 500 * time.Millisecond // the peer does not have to wait so long on a busy machine
	n := fabrictest.New()
	cfg := messaging.Config{KeepAlive: 10 * time.Millisecond, PeerTimeout: timeout}
	device := &gated{Device: n.Device("a")}
	b := newEndpoint(t, n, "b", patient(messaging.Config{}))
	a := newEndpointOn(t, device, "a", cfg)
	connect(t, a, b)
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		device.gate.Lock()
		held := time.After(3 * timeout)
		select {
		case <-a.conn.Done():
			t.Errorf("while nobody listened: %v", a.conn.Err())
		case <-held:
		}
		device.gate.Unlock()
		if _, err := a.conn.Request(deadline(t), protocol.CfgKeepAlive, nil); err != nil {
			t.Fatalf("when somebody listened again: %v", err)
		}
	}
	n.Stall("b")
	if err := ended(t, a); err == nil {
		t.Error("no error")
	}
	n.Resume("b")
}

// TestSilentPeerOwesReplies stalls a peer that has as many requests to answer as possible.
// There is no room for a keep-alive, and the peer must still be declared dead.
func TestSilentPeerOwesReplies(t *testing.T) {
	n := fabrictest.New()
	b := newEndpoint(t, n, "b", patient(messaging.Config{}))
	a := newEndpoint(t, n, "a", messaging.Config{KeepAlive: 100 * time.Millisecond, PeerTimeout: 400 * time.Millisecond})
	connect(t, a, b)
	for _, h := range []*endpoint{a, b} {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	n.Stall("b")
	ctx, replies := deadline(t), make(chan error, messaging.MaxRequests)
	for range messaging.MaxRequests {
		go func() {
			_, err := a.conn.Request(ctx, protocol.CfgKeepAlive, nil)
			replies <- err
		}()
	}
	if err := ended(t, a); !errors.Is(err, messaging.ErrPeerSilent) {
		t.Errorf("%v, want %v", err, messaging.ErrPeerSilent)
	}
	for range messaging.MaxRequests {
		if err := <-replies; err == nil {
			t.Error("a peer that stands still has answered")
		}
	}
	n.Resume("b")
}
