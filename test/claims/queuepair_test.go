package claims

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestClaim02WorkQueuePairs(t *testing.T)     { inMemory(t, workQueuePairs) }
func TestRDMAClaim02WorkQueuePairs(t *testing.T) { onSoftRoCE(t, workQueuePairs) }

// The host and the I/O unit each have work queue pairs on their own channel adapter. Each queue
// pair of the host is associated with one of the I/O unit.
func workQueuePairs(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{Queues: 2})
	for _, side := range sides {
		for queue := range 2 {
			p.cross(side, queue, sizes...)
		}
	}
	for _, side := range sides {
		if made := p.pick(side, qpMade); len(made) != 3 {
			t.Errorf("%s: %d queue pairs for a control channel and 2 data channels", side, len(made))
		}
		for ch, qpn := range p.qpns[side] {
			peer := p.endpoints[other(side)].conn.Addresses()[ch]
			c := ofQP(qpn, p.pick(side, connected))
			if len(c) != 1 || c[0].remote.QPN != peer.QPN || c[0].remote.GID != peer.GID {
				t.Errorf("%s: the queue pair of channel %d was connected as %+v, the peer's is %+v", side, ch, c, peer)
			}
			if len(ofQP(qpn, p.pick(side, sendPosted))) == 0 || len(ofQP(qpn, p.pick(side, recvDone))) == 0 {
				t.Errorf("%s: the queue pair of channel %d did not both send and receive", side, ch)
			}
		}
	}
}

func TestClaim03SendQueueAndReceiveQueue(t *testing.T)     { inMemory(t, sendQueueAndReceiveQueue) }
func TestRDMAClaim03SendQueueAndReceiveQueue(t *testing.T) { onSoftRoCE(t, sendQueueAndReceiveQueue) }

// A work queue pair is a send queue and a receive queue. A request posted to a queue completes on
// that queue and on no other one, in the order of posting.
func sendQueueAndReceiveQueue(t *testing.T, on fabricOf) {
	p := newPair(t, on, answering)
	p.traffic()
	for range 10 { // not every control message asks for a completion
		for _, side := range sides {
			p.ask(side)
		}
	}
	for _, side := range sides {
		for ch, qpn := range p.qpns[side] {
			sent, got := ofQP(qpn, p.pick(side, sendPosted)), p.completedSends(side, qpn)
			if len(sent) == 0 || len(got) == 0 {
				t.Errorf("%s: channel %d: %d sends posted, %d completed", side, ch, len(sent), len(got))
			}
			next := 0
			for _, e := range got {
				for next < len(sent) && sent[next].send.ID != e.done.ID {
					if sent[next].send.Flags&fabric.Signaled != 0 {
						t.Fatalf("%s: channel %d: a send completed before %+v", side, ch, sent[next].send)
					}
					next++
				}
				if next == len(sent) || sent[next].at > e.at {
					t.Fatalf("%s: channel %d: completion %+v of no send posted before", side, ch, e.done)
				}
				next++
			}
			posted, taken := ofQP(qpn, p.pick(side, recvPosted)), ofQP(qpn, p.pick(side, recvDone))
			if len(taken) == 0 || len(posted) < len(taken) {
				t.Errorf("%s: channel %d: %d receives posted, %d completed", side, ch, len(posted), len(taken))
			}
			for i, e := range taken {
				if e.recv != posted[i].recv || posted[i].at > e.at {
					t.Fatalf("%s: channel %d: receive %d was posted as %+v and completed as %+v", side, ch, i, posted[i].recv, e.recv)
				}
			}
		}
	}
}

// apparatus checks one side by itself. It expects two work queue pairs on one channel adapter,
// buffer management messages over the first, and RDMA writes that indicate their buffers over the
// second.
func (o *observed) apparatus(side string) error {
	o.t.Helper()
	first, second := o.qpns[side][0], o.qpns[side][1]
	devices := map[string]bool{}
	for _, e := range o.pick(side, qpMade) {
		devices[e.device] = true
	}
	if len(devices) != 1 || first == second {
		return fmt.Errorf("the %s's queue pairs %d and %d are on devices %v", side, first, second, devices)
	}
	if err := o.apart(side, protocol.FuncBufferRecvPool, protocol.FuncBufferRecvPoolUpdate); err != nil {
		return err
	}
	for _, w := range o.writes(side) {
		if w.qpn != second {
			return fmt.Errorf("the %s wrote over queue pair %d, the second is %d", side, w.qpn, second)
		}
	}
	return o.indicated(side, 1)
}

func TestClaim08TwoWorkQueuePairs(t *testing.T)     { inMemory(t, twoWorkQueuePairs) }
func TestRDMAClaim08TwoWorkQueuePairs(t *testing.T) { onSoftRoCE(t, twoWorkQueuePairs) }

// Each side is an apparatus with two work queue pairs, a channel adapter and
// the messaging layer.
func twoWorkQueuePairs(t *testing.T, on fabricOf) {
	p := newPair(t, on, answering)
	p.traffic()
	p.updates()
	for _, side := range sides {
		if err := p.apparatus(side); err != nil {
			t.Error(err)
		}
	}
}

func TestClaim12ChannelForEachQueuePair(t *testing.T)     { inMemory(t, channelForEachQueuePair) }
func TestRDMAClaim12ChannelForEachQueuePair(t *testing.T) { onSoftRoCE(t, channelForEachQueuePair) }

// The channel of the first queue pair carries all buffer management messages to the peer's first
// queue pair. The channel of the second queue pair carries all writes to the peer's second queue
// pair.
func channelForEachQueuePair(t *testing.T, on fabricOf) {
	p := newPair(t, on, answering)
	p.traffic()
	p.updates()
	for _, side := range sides {
		if err := p.apparatus(side); err != nil {
			t.Fatal(err)
		}
		peer := other(side)
		var sent []message
		p.until(func() error {
			sent = of(p.posted(side), bufferManagement...)
			if got := of(p.arrived(peer), bufferManagement...); len(got) != len(sent) {
				return fmt.Errorf("%s: %d buffer management messages sent, %d arrived", side, len(sent), len(got))
			}
			return nil
		})
		for i, m := range of(p.arrived(peer), bufferManagement...) {
			if m.qpn != p.qpns[peer][0] || !bytes.Equal(m.data, sent[i].data) {
				t.Errorf("%s: message %d, a %v, arrived on queue pair %d as %x", side, i, sent[i].function, m.qpn, m.data)
			}
		}
		writes := p.writes(side)
		got := filter(p.pick(peer, recvDone), func(e entry) bool { return e.done.Op == fabric.OpRecvWriteImm })
		if len(got) != len(writes) {
			t.Errorf("%s: %d writes, %d arrived", side, len(writes), len(got))
		}
		for _, e := range got {
			if e.qpn != p.qpns[peer][1] {
				t.Errorf("%s: a write arrived on queue pair %d", side, e.qpn)
			}
		}
	}
}
