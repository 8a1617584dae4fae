package messaging_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// TestMoreFreeThanAnUpdateHolds has a receiver free most elements of the largest pool at once,
// which are too many for one update. To this end the receiver waits for its full port while the
// peer fills the pool and indicates it.
func TestMoreFreeThanAnUpdateHolds(t *testing.T) {
	cfg := patient(messaging.Config{
		Mode: protocol.ModeIndicate, NoPack: true, Pools: []messaging.PoolConfig{{ElementSize: 128,
			Elements: messaging.MaxElements}},
		MaxPools: 1, SendSlots: 512, Batch: 256,
	})
	n, a, b := newPair(t, cfg, cfg)
	ctx := deadline(t)
	n.Delay("a", 20*time.Millisecond) // so that one message indicates many transfers
	const frames = 2 * messaging.MaxElements
	sent := make(chan error, 1)
	go func() {
		for i := range frames {
			if err := a.wires[0].Send(ctx, frame(uint64(i), 100, 1500)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	until(t, func() error {
		if a := a.conn.Stats().Channels[0].Remote.Available; a > messaging.MaxElements/4 {
			return fmt.Errorf("the sender has %d credits left", a)
		}
		return nil
	})
	n.Delay("a", 0)
	buf := make([]byte, vnet.MaxFrame+1)
	for i := range frames {
		got, err := b.wires[0].Receive(ctx, buf)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if !bytes.Equal(got, frame(uint64(i), 100, 1500)) {
			t.Fatalf("frame %d differs", i)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	settled(t, a, b)
	untroubled(t, n, a, b)
}
