package fabrictest

import (
	"cmp"
	"slices"

	"github.com/splitnic/splitnic/fabric"
)

// Counters count what the queue pairs of a device, or one of them, have done.
// All but Recvs, RecvWriteImms, AccessErrors and CQOverflows are counted at the
// sender.
type Counters struct {
	Sends     uint64 // messages delivered by SEND, with immediate data or without
	SendInvs  uint64 // … by SEND_WITH_INV
	Writes    uint64 // … by RDMA_WRITE
	WriteImms uint64 // … by RDMA_WRITE_WITH_IMM
	Reads     uint64 // … fetched by RDMA_READ
	Bytes     uint64 // payload of these
	Gathers   uint64 // messages among these whose data was posted in several pieces
	Inlines   uint64 // work requests with Inline among them
	Binds     uint64 // windows bound
	LocalInvs uint64 // windows unbound
	RNR       uint64 // tries that found no receive posted
	Retries   uint64 // tries that nobody answered
	Drops     uint64 // messages that an unreliable connection lost
	Flushes   uint64 // work requests flushed, of both queues
	Errors    uint64 // send requests that failed, without those flushed

	Recvs         uint64 // receives completed by a SEND
	RecvWriteImms uint64 // receives completed by an RDMA_WRITE_WITH_IMM
	AccessErrors  uint64 // messages refused because of their key or bounds
	CQOverflows   uint64 // completion queues that overflowed; of a device only
}

func (c *Counters) add(o *Counters) {
	c.Sends += o.Sends
	c.SendInvs += o.SendInvs
	c.Writes += o.Writes
	c.WriteImms += o.WriteImms
	c.Reads += o.Reads
	c.Bytes += o.Bytes
	c.Gathers += o.Gathers
	c.Inlines += o.Inlines
	c.Binds += o.Binds
	c.LocalInvs += o.LocalInvs
	c.RNR += o.RNR
	c.Retries += o.Retries
	c.Drops += o.Drops
	c.Flushes += o.Flushes
	c.Errors += o.Errors
	c.Recvs += o.Recvs
	c.RecvWriteImms += o.RecvWriteImms
	c.AccessErrors += o.AccessErrors
	c.CQOverflows += o.CQOverflows
}

// sent counts a message, or a work request of another kind, that was carried out.
func (c *Counters) sent(w *work) {
	switch w.Op {
	case fabric.OpSend, fabric.OpSendImm:
		c.Sends++
	case fabric.OpSendInv:
		c.SendInvs++
	case fabric.OpWrite:
		c.Writes++
	case fabric.OpWriteImm:
		c.WriteImms++
	case fabric.OpRead:
		c.Reads++
	case fabric.OpBind:
		c.Binds++
	case fabric.OpLocalInv:
		c.LocalInvs++
	}
	c.Bytes += uint64(w.size)
	if w.Flags&fabric.More != 0 {
		c.Gathers++
	}
	if w.Flags&fabric.Inline != 0 {
		c.Inlines++
	}
}

// QPInfo is what Network.QueuePairs tells about an open queue pair.
type QPInfo struct {
	Num       uint32
	Transport fabric.Transport
	Counters  Counters
}

// QueuePairs returns the open queue pairs of the device, by ascending number.
func (n *Network) QueuePairs(dev string) []QPInfo {
	var out []QPInfo
	for _, q := range n.qpsOf(n.known(dev)) {
		out = append(out, QPInfo{Num: q.num, Transport: q.cfg.Transport, Counters: q.counters()})
	}
	slices.SortFunc(out, func(a, b QPInfo) int { return cmp.Compare(a.Num, b.Num) })
	return out
}

// Counters returns the sums over all queue pairs the device has and had.
func (n *Network) Counters(dev string) Counters {
	nd := n.known(dev)
	nd.mu.Lock()
	sum := nd.past
	nd.mu.Unlock()
	for _, q := range n.qpsOf(nd) {
		c := q.counters()
		sum.add(&c)
	}
	sum.CQOverflows = nd.overflow.Load()
	return sum
}

func (n *Network) qpsOf(nd *node) []*qp {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []*qp
	for k, q := range n.qps {
		if k.gid == nd.gid {
			out = append(out, q)
		}
	}
	return out
}

func (q *qp) counters() Counters {
	q.sq.Lock()
	sum := q.sent
	q.sq.Unlock()
	q.resp.Lock()
	sum.add(&q.recvd)
	q.resp.Unlock()
	return sum
}
