package tx

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

// idle is a sender whose goroutine does not run, with a local pool.
type idle struct {
	*Sender
	ch   *core.DataQP
	lent *bufpool.Local
}

// newIdle returns a sender with options. Windows are made for the pool as p says.
func newIdle(t *testing.T, mode protocol.Mode, o Options, inline int, p pools.Options) idle {
	t.Helper()
	c := coretest.New(t, mode)
	ch := coretest.Channel(t, c, 1, SqDepth(&o)+1, fabric.QPConfig{MaxInline: inline, MaxSGE: MaxRecords(&o)})
	p.Channels, p.PeerPools, p.Idle = 1, 2, time.Second
	m := pools.New(c, p, nil, nil)
	shared, err := m.AddChannel(nil, o.SendSlots, 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	s := New(c, &o, ch, shared, nil, m)
	lent, err := m.First(1, pools.Config{ElementSize: 2048, Elements: 20})
	if err != nil {
		t.Fatal(err)
	}
	return idle{s, ch, lent}
}

// usual returns the usual options of a sender.
func usual() Options {
	return Options{SendSlots: 64, Batch: 16, BatchBytes: 128 << 10, SignalEvery: 16, MaxSGE: packFrames}
}
