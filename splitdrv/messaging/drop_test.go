package messaging_test

import (
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// endlessPort has one good frame, followed by endless frames that are too long.
type endlessPort struct {
	*porttest.Port
	reads atomic.Uint64
}

func (p *endlessPort) ReadFrame(slot []byte) ([]byte, error) {
	if p.reads.Add(1) == 1 {
		return slot[:copy(slot, frame(1, 100, 1500))], nil
	}
	return nil, vnet.ErrTooLong
}

// TestEndlessDrops reads endless frames that are dropped. They must not delay the good frame
// before them, nor the end of the session.
func TestEndlessDrops(t *testing.T) {
	n := fabrictest.New()
	a, b := newEndpoint(t, n, "a", patient(messaging.Config{})), newEndpoint(t, n, "b", patient(messaging.Config{}))
	connect(t, a, b)
	p, _ := porttest.New(t, 1<<20)
	t.Cleanup(func() { a.conn.Close() }) // before the port
	if err := b.conn.Start(b.ports); err != nil {
		t.Fatal(err)
	}
	if err := a.conn.Start([]messaging.Port{porttest.Batched{Single: &endlessPort{Port: p}}}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.wires[0].Receive(deadline(t), make([]byte, 1<<16)); err != nil || len(got) != 100 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
}
