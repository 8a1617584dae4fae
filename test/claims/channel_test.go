package claims

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// apart checks that a side has sent messages with each of these functions, that these messages use
// only the first channel, and that data uses only other channels.
func (o *observed) apart(side string, functions ...protocol.Function) error {
	o.t.Helper()
	seen := of(o.posted(side), functions...)
	for _, m := range seen {
		if ch := o.channel(side, m.qpn); ch != 0 {
			return fmt.Errorf("the %s posted a %v on channel %d", side, m.function, ch)
		}
	}
	for _, m := range of(o.arrived(other(side)), functions...) {
		if ch := o.channel(other(side), m.qpn); ch != 0 {
			return fmt.Errorf("a %v of the %s arrived on channel %d", m.function, side, ch)
		}
	}
	for _, f := range functions {
		if len(of(seen, f)) == 0 {
			return fmt.Errorf("the %s posted no %v", side, f)
		}
	}
	data := 0
	for _, e := range o.pick(side, sendPosted) {
		write := e.send.Op == fabric.OpWrite || e.send.Op == fabric.OpWriteImm
		frame := e.send.Op == fabric.OpSend && protocol.Function(binary.BigEndian.Uint16(e.data)) == protocol.FuncSendData
		if ch := o.channel(side, e.qpn); (write || frame) != (ch > 0) {
			return fmt.Errorf("the %s posted opcode %d, %x…, on channel %d", side, e.send.Op, e.data[:12], ch)
		}
		if write || frame {
			data++
		}
	}
	if data == 0 {
		return fmt.Errorf("the %s sent no data", side)
	}
	return nil
}

func TestClaim06ControlAndDataApart(t *testing.T)     { inMemory(t, controlAndDataApart) }
func TestRDMAClaim06ControlAndDataApart(t *testing.T) { onSoftRoCE(t, controlAndDataApart) }

// Control and configuration messages use the first channel, and data uses the others, in each
// transfer mode.
func controlAndDataApart(t *testing.T, on fabricOf) {
	inEachMode(t, func(t *testing.T, mode protocol.Mode) {
		p := newPair(t, on, withMode(answering, mode, 2))
		p.traffic()
		for _, side := range sides {
			if err := p.apart(side, configuration...); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestClaim07BufferManagementAndDataApart(t *testing.T) { inMemory(t, bufferManagementAndDataApart) }
func TestRDMAClaim07BufferManagementAndDataApart(t *testing.T) {
	onSoftRoCE(t, bufferManagementAndDataApart)
}

// Buffer management messages use the first channel, and data uses the others, in each transfer
// mode.
func bufferManagementAndDataApart(t *testing.T, on fabricOf) {
	inEachMode(t, func(t *testing.T, mode protocol.Mode) {
		p := newPair(t, on, withMode(answering, mode, 2))
		p.traffic()
		for _, side := range sides {
			if err := p.apart(side, protocol.FuncBufferRecvPool, protocol.FuncBufferRecvPoolUpdate); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestClaim14ControlAndBufferManagementTogether(t *testing.T) {
	inMemory(t, controlAndBufferManagementTogether)
}
func TestRDMAClaim14ControlAndBufferManagementTogether(t *testing.T) {
	onSoftRoCE(t, controlAndBufferManagementTogether)
}

// Control and buffer management messages share the first channel, in order;
// writes that indicate their buffer use a second one.
func controlAndBufferManagementTogether(t *testing.T, on fabricOf) {
	p := newPair(t, on, answering)
	p.traffic()
	p.updates()
	for _, side := range sides {
		if err := p.apart(side, protocol.FuncBufferRecvPool, protocol.FuncBufferRecvPoolUpdate,
			protocol.FuncCfgUtilRequest, protocol.FuncCfgUtilReply); err != nil {
			t.Error(err)
		}
		if err := p.indicated(side, 1); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		var sent []message
		p.until(func() error {
			sent = p.posted(side)
			if got := p.arrived(other(side)); len(got) < len(sent) {
				return fmt.Errorf("%s: %d messages sent, %d arrived", side, len(sent), len(got))
			}
			return nil
		})
		for i, m := range p.arrived(other(side))[:len(sent)] {
			if !bytes.Equal(m.data, sent[i].data) {
				t.Fatalf("%s: message %d was sent as %x and arrived as %x", side, i, sent[i].data, m.data)
			}
		}
	}
}

func TestClaim21SecondConnectedChannel(t *testing.T)     { inMemory(t, secondConnectedChannel) }
func TestRDMAClaim21SecondConnectedChannel(t *testing.T) { onSoftRoCE(t, secondConnectedChannel) }

// Beside the channel for data a second channel is connected. It carries the control and buffer
// management messages of both sides, and no data.
func secondConnectedChannel(t *testing.T, on fabricOf) {
	p := newPair(t, on, answering)
	p.traffic()
	h, u := p.qpns[hostSide][0], p.qpns[unitSide][0]
	ch, cu := ofQP(h, p.pick(hostSide, connected)), ofQP(u, p.pick(unitSide, connected))
	if len(ch) != 1 || len(cu) != 1 || ch[0].remote.QPN != u || cu[0].remote.QPN != h {
		t.Fatalf("the queue pairs %d and %d are not associated with each other: %+v, %+v", h, u, ch, cu)
	}
	for _, side := range sides {
		q := p.qpns[side]
		if q[0] == q[1] {
			t.Errorf("%s: one queue pair for both channels", side)
		}
		kinds := map[protocol.Function]int{}
		for _, m := range p.posted(side) {
			if m.qpn != q[0] {
				t.Errorf("%s: a %v on queue pair %d", side, m.function, m.qpn)
			}
			kinds[m.function]++
		}
		for _, f := range []protocol.Function{
			protocol.FuncBufferRecvPool, protocol.FuncBufferRecvPoolUpdate, protocol.FuncCfgUtilRequest,
			protocol.FuncCfgUtilReply,
		} {
			if kinds[f] == 0 {
				t.Errorf("%s: no %v on the second channel: %v", side, f, kinds)
			}
		}
		for _, e := range ofQP(q[0], p.pick(side, sendPosted)) {
			if e.send.Op != fabric.OpSend {
				t.Errorf("%s: opcode %d on the second channel", side, e.send.Op)
			}
		}
	}
}
