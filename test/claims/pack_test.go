package claims

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

func TestPack(t *testing.T)     { inMemory(t, pack) }
func TestRDMAPack(t *testing.T) { onSoftRoCE(t, pack) }

// With packs, several small frames that wait for elements travel in one transfer, which takes one
// element and one indication. Without packs each frame has its own transfer. In both cases the
// frames arrive whole and in order.
func pack(t *testing.T, on fabricOf) {
	inEachMode(t, func(t *testing.T, mode protocol.Mode) {
		c := messaging.Config{
			Mode: mode, MaxPools: 1, Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 8}},
		}
		p := newEndpoints(t, on, map[string]messaging.Config{hostSide: c, unitSide: c})
		n := p.backlog()
		for _, side := range sides {
			posted, indicated := p.transfers(side, 1, mode)
			if posted != indicated {
				t.Errorf("%s: %d transfers, %d of them indicated", side, posted, indicated)
			}
			if on.plain && posted != n || !on.plain && posted >= n/5 {
				t.Errorf("%s: %d frames took %d transfers", side, n, posted)
			}
		}
	})
}

// backlog connects the endpoints, puts small frames into the queues of both sides while no pool is
// lent, and then starts the session. It returns the number of frames that crossed from each side.
func (p *pair) backlog() int {
	p.t.Helper()
	const frames = 400
	p.connect()
	waiting := map[string][][]byte{}
	for _, side := range sides {
		for i := range frames {
			waiting[side] = append(waiting[side], p.newFrame(60+i%50))
		}
		p.send(side, 0, waiting[side]...)
	}
	p.start()
	for _, side := range sides {
		p.expect(other(side), 0, waiting[side]...)
	}
	return frames
}

// transfers returns the number of requests that a side posted on a data channel, and how many of
// them were indicated to the other side.
func (o *observed) transfers(from string, channel int, mode protocol.Mode) (posted, indicated int) {
	o.t.Helper()
	posted = len(ofQP(o.qpns[from][channel], o.pick(from, sendPosted)))
	if mode == protocol.ModeIndicate {
		all, _ := o.indications(from)
		return posted, len(all)
	}
	for _, e := range ofQP(o.qpns[other(from)][channel], o.pick(other(from), recvDone)) {
		if e.done.Err() == nil {
			indicated++
		}
	}
	return posted, indicated
}

func TestBatchedPorts(t *testing.T)     { inMemory(t, batchedPorts) }
func TestRDMABatchedPorts(t *testing.T) { onSoftRoCE(t, batchedPorts) }

// If a netdevice can move several frames in one call, the driver reads and writes several frames
// per call when several are ready.
func batchedPorts(t *testing.T, on fabricOf) {
	inEachMode(t, func(t *testing.T, mode protocol.Mode) {
		p := newEndpoints(t, on, map[string]messaging.Config{hostSide: {Mode: mode}, unitSide: {Mode: mode}})
		ports := map[string]*counted{}
		for _, side := range sides {
			h := p.endpoints[side]
			ports[side] = &counted{Batched: h.ports[0].(porttest.Batched)}
			h.ports[0] = ports[side]
		}
		n := p.backlog()
		for _, side := range sides {
			if err := ports[side].few(n); err != nil {
				t.Errorf("%s: %v", side, err)
			}
		}
	})
}

// counted is a batched port that counts the calls that move frames.
type counted struct {
	porttest.Batched
	reads, writes atomic.Int64
}

var _ messaging.Port = (*counted)(nil)

func (c *counted) ReadFrames(ops []vnet.ReadOp) int {
	n := c.Batched.ReadFrames(ops)
	if !errors.Is(ops[0].Err, unix.EAGAIN) {
		c.reads.Add(1)
	}
	return n
}

func (c *counted) WriteFrames(ops []vnet.WriteOp) int {
	c.writes.Add(1)
	return c.Batched.WriteFrames(ops)
}

// few returns an error if there were too many calls, or none, for n frames in each direction.
func (c *counted) few(n int) error {
	r, w := c.reads.Load(), c.writes.Load()
	if most := int64(n / 5); r == 0 || w == 0 || r > most || w > most {
		return fmt.Errorf("%d frames each way took %d calls to read and %d to write", n, r, w)
	}
	return nil
}
