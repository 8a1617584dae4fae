package fabrictest

import (
	"cmp"
	"slices"

	"github.com/splitnic/splitnic/fabric"
)

// QPInfo describes an open queue pair for Network.QueuePairs.
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

// Counters returns the sums over all open and closed queue pairs of the device.
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

// Commands returns how many commands the device has had.
func (n *Network) Commands(dev string) Commands {
	c := &n.known(dev).commands
	return Commands{QueryQP: c.queryQP.Load(), QueryPort: c.queryPort.Load(), ModifyQP: c.modifyQP.Load()}
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
