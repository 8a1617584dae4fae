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

// Small frames that wait for elements to write to travel several in one
// transfer, which takes one element and one indication; or one by one, without
// packs. They arrive whole and in order either way.
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

// backlog connects the endpoints and has small frames wait on both sides before
// the session starts, when nothing is lent. It returns how many of them crossed
// from each side.
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

// transfers counts the requests that a side posted on a data channel, and those
// that the other side was told of.
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

// A netdevice that can move several frames in one call is asked for several of
// them, and given several, where there are several.
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

// few says what is wrong with the calls for n frames in each direction.
func (c *counted) few(n int) error {
	r, w := c.reads.Load(), c.writes.Load()
	if most := int64(n / 5); r == 0 || w == 0 || r > most || w > most {
		return fmt.Errorf("%d frames each way took %d calls to read and %d to write", n, r, w)
	}
	return nil
}
