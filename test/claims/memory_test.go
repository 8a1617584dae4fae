package claims

import (
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestOnlyPoolsAreWritable(t *testing.T)     { inMemory(t, onlyPoolsAreWritable) }
func TestRDMAOnlyPoolsAreWritable(t *testing.T) { onSoftRoCE(t, onlyPoolsAreWritable) }

// Each pool has its own memory region. The peer may write it, with the key of the region or of a
// window, and may not read it. The peer has no access to any other registered memory.
func onlyPoolsAreWritable(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{Queues: 2})
	for _, side := range sides {
		p.cross(side, 0, sizes...)
	}
	for _, side := range sides {
		lent := p.lent(side)
		writable, closed := 0, 0
		for _, r := range p.pick(side, registered) {
			if r.access&^(fabric.LocalWrite|fabric.RemoteWrite|fabric.WindowBind) != 0 {
				t.Errorf("%s: memory registered with access %#x", side, r.access)
			}
			if r.access&(fabric.RemoteWrite|fabric.WindowBind) == 0 {
				closed++
				continue
			}
			writable++
			if !slices.ContainsFunc(lent, func(l lentPool) bool { return l.Addr == r.addr && l.Bytes() == uint64(r.length) }) {
				t.Errorf("%s: %d bytes that are no pool may be written by the peer", side, r.length)
			}
		}
		for _, l := range lent {
			p.memory(side, l)
		}
		// The closed regions are the send slots of each data channel, and both directions of the
		// control channel.
		if writable != len(lent) || closed < 4 {
			t.Errorf("%s: %d regions may be written, %d may not, %d pools are lent", side, writable, closed, len(lent))
		}
	}
	// In the modes with frames in messages the peer has no access to any memory.
	for _, mode := range []protocol.Mode{protocol.ModeSend, protocol.ModeSendUC} {
		p := newPair(t, on, messaging.Config{Mode: mode})
		p.cross(hostSide, 0, sizes...)
		for _, r := range p.pick("", registered) {
			if r.access&^fabric.LocalWrite != 0 {
				t.Errorf("mode %s, %s: memory registered with access %#x", mode, r.side, r.access)
			}
		}
	}
}

func TestDomainForEachPeer(t *testing.T)     { inMemory(t, domainForEachPeer) }
func TestRDMADomainForEachPeer(t *testing.T) { onSoftRoCE(t, domainForEachPeer) }

// Two sessions on the same devices share nothing: each has its own protection domain with its
// regions, queue pairs and completion queues. The device refuses a write with a key of one session
// on a queue pair of the other.
func domainForEachPeer(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{})
	first := p.now()
	second, err := messaging.New(messaging.Config{Device: p.devices[unitSide]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}()
	domains := map[int]int{}
	for _, e := range p.pick(unitSide, registered, cqMade, qpMade) {
		session := 1
		if e.at >= first {
			session = 2
		}
		if was, seen := domains[e.domain]; seen && was != session {
			t.Fatalf("both sessions have objects in domain %d", e.domain)
		}
		domains[e.domain] = session
	}
	if len(domains) != 2 {
		t.Errorf("%d domains for 2 sessions", len(domains))
	}

	// The second session's peer is a bare queue pair that knows a key of the first.
	stolen := p.lent(unitSide)[0]
	dom := must(p.devices[hostSide].NewDomain())(t)
	mem := dmaMemory(t, 4096)
	t.Cleanup(func() { dom.Close() })
	r := must(dom.Register(mem, fabric.LocalWrite))(t)
	cq := must(dom.NewCQ(16, 0))(t)
	newQP := func() fabric.QP {
		return must(dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: cq, RecvCQ: cq, MaxSend: 4, MaxRecv: 4}))(t)
	}
	control, data := newQP(), newQP()
	if err := second.Connect([]fabric.Address{control.Address(), data.Address()}, 1000); err != nil {
		t.Fatal(err)
	}
	if err := data.Connect(second.Addresses()[1], fabric.Timing{}); err != nil {
		t.Fatal(err)
	}
	wr := fabric.SendWR{
		Op: fabric.OpWrite, Flags: fabric.Signaled, Addr: r.Addr(), LKey: r.LKey(),
		Len: 100, RemoteAddr: stolen.Addr, RKey: stolen.RKey,
	}
	if _, err := data.PostSend([]fabric.SendWR{wr}); err != nil {
		t.Fatal(err)
	}
	if c := next(t, cq); c.Status != fabric.StatusRemAccessErr {
		t.Errorf("a write with another session's key: %v", c.Status)
	}
	// The first session, which has that key, goes on.
	for _, side := range sides {
		p.cross(side, 0, sizes...)
	}
}
