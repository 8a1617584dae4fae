package messaging_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
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
	sizes := slices.Repeat([]int{100}, frames)
	sent := sendAll(ctx, a.wires[0], sizes, 1500)
	until(t, func() error {
		if a := a.conn.Stats().Channels[0].Remote.Available; a > messaging.MaxElements/4 {
			return fmt.Errorf("the sender has %d credits left", a)
		}
		return nil
	})
	n.Delay("a", 0)
	if err := errors.Join(receiveAll(ctx, b.wires[0], sizes, 1500), <-sent); err != nil {
		t.Fatal(err)
	}
	settled(t, a, b)
	untroubled(t, n, a, b)
}
