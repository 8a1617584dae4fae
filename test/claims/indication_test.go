package claims

import (
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestClaim04WriteCarriesDataAndIndication(t *testing.T) {
	inMemory(t, writeCarriesDataAndIndication)
}
func TestRDMAClaim04WriteCarriesDataAndIndication(t *testing.T) {
	onSoftRoCE(t, writeCarriesDataAndIndication)
}

// One RDMA write carries a frame, or a pack, and indicates the buffer that it consumes, which is
// the element to which it writes.
func writeCarriesDataAndIndication(t *testing.T, on fabricOf) {
	// There are few elements, so that they are used again in an order other than ascending.
	p := newPair(t, on, messaging.Config{
		Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 16}, {ElementSize: 65536, Elements: 3}},
	})
	for _, side := range sides {
		frames := p.cross(side, 0, slices.Concat(sizes, repeat(400, 100), sizes)...)
		if err := p.indicated(side, 1); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		writes := p.writes(side)
		if err := carries(writes, frames); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		ascending := true
		for i, w := range writes {
			ascending = ascending && (i == 0 || w.element >= writes[i-1].element)
		}
		if ascending {
			t.Errorf("%s: the elements were consumed in their own order, which needs no indication", side)
		}
	}
}

func TestClaim05IndicationInImmediateData(t *testing.T)     { inMemory(t, indicationInImmediateData) }
func TestRDMAClaim05IndicationInImmediateData(t *testing.T) { onSoftRoCE(t, indicationInImmediateData) }

// The indication is the write's immediate data, and no other message has it: while frames cross,
// the initiator posts only writes with immediate data, and keep-alives.
func indicationInImmediateData(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{})
	for _, side := range sides {
		from := p.now()
		p.cross(side, 0, sizes...)
		to := p.now()
		if err := p.indicated(side, 1); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		for _, e := range between(p.pick(side, sendPosted), from, to) {
			if e.qpn == p.qpns[side][1] && e.send.Op != fabric.OpWriteImm {
				t.Errorf("%s: opcode %d on the data channel", side, e.send.Op)
			}
		}
		for _, m := range p.posted(side) {
			if m.at >= from && m.at < to && !keepsAlive(m) {
				t.Errorf("%s: a %v while the only thing to do was to send frames", side, m.function)
			}
		}
	}
}

// keepsAlive reports whether a message is a keep-alive or the reply to one.
func keepsAlive(m message) bool {
	if q, err := protocol.DecodeCfgUtilRequest(m.data); err == nil {
		return q.Type == protocol.CfgKeepAlive
	}
	r, err := protocol.DecodeCfgUtilReply(m.data)
	return err == nil && r.Type == protocol.CfgKeepAlive
}

func TestClaim13ImmediateDataOfEachSize(t *testing.T)     { inMemory(t, immediateDataOfEachSize) }
func TestRDMAClaim13ImmediateDataOfEachSize(t *testing.T) { onSoftRoCE(t, immediateDataOfEachSize) }

// Each apparatus puts the indication into the immediate data, whether a write is inline, one packet
// or many. The other side's channel adapter delivers the indication with the one receive that the
// write consumes.
func immediateDataOfEachSize(t *testing.T, on fabricOf) {
	for _, side := range sides {
		t.Run(side, func(t *testing.T) {
			p := newPair(t, on, messaging.Config{})
			frames := p.cross(side, 0, sizes...)
			if err := p.indicated(side, 1); err != nil {
				t.Error(err)
			}
			if err := carries(p.writes(side), frames); err != nil {
				t.Error(err)
			}
			if w := p.pick(other(side), sendPosted); slices.ContainsFunc(w,
				func(e entry) bool { return e.send.Op != fabric.OpSend }) {
				t.Error("the side that had nothing to send wrote")
			}
		})
	}
}

func TestClaim20ImmediateDataBothWays(t *testing.T)     { inMemory(t, immediateDataBothWays) }
func TestRDMAClaim20ImmediateDataBothWays(t *testing.T) { onSoftRoCE(t, immediateDataBothWays) }

// The method with the indication in immediate data works on every data channel and in both
// directions at once.
func immediateDataBothWays(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{Queues: 2})
	sent := map[string][][]byte{}
	for _, side := range sides {
		for _, n := range slices.Concat(sizes, repeat(700, 150)) {
			sent[side] = append(sent[side], p.newFrame(n))
		}
	}
	// All frames fit into the sockets, so that no sender waits for a reader.
	for _, side := range sides {
		for queue := range 2 {
			p.send(side, queue, sent[side]...)
		}
	}
	for _, side := range sides {
		for queue := range 2 {
			p.expect(other(side), queue, sent[side]...)
			if err := p.indicated(side, queue+1); err != nil {
				t.Errorf("%s: queue %d: %v", side, queue, err)
			}
		}
	}
}
