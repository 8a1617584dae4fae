package claims

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// indications returns the transfers that a side's BufferRDMAIndicate messages name, in order, and
// the positions of these messages on the trace.
func (o *observed) indications(side string) (all []protocol.Indication, at []int) {
	o.t.Helper()
	for _, m := range of(o.posted(side), protocol.FuncBufferRDMAIndicate) {
		if ch := o.channel(side, m.qpn); ch != 0 {
			o.t.Fatalf("%s: an indication on channel %d", side, ch)
		}
		d, err := protocol.DecodeBufferRDMAIndicate(m.data)
		if err != nil {
			o.t.Fatal(err)
		}
		for i := range d.Len() {
			all, at = append(all, d.At(i)), append(at, m.at)
		}
	}
	return all, at
}

// indicatedSeparately checks that writes of a side carry no immediate data, and that after the
// completion of each write a message on the first channel names its element and length, in the
// order of the writes. writes must be all writes of one data channel that are indicated by
// messages.
func (o *observed) indicatedSeparately(side string, writes []write) error {
	o.t.Helper()
	all, at := o.indications(side)
	if len(all) != len(writes) || len(writes) == 0 {
		return fmt.Errorf("the %s: %d indications for %d writes", side, len(all), len(writes))
	}
	// The completion of a send completes the sends before it. upTo is the trace position of the
	// last send that was complete at position at.
	type completion struct{ at, upTo int }
	var done []completion
	posted, next := ofQP(writes[0].qpn, o.pick(side, sendPosted)), 0
	for _, e := range o.completedSends(side, writes[0].qpn) {
		for next < len(posted) && posted[next].send.ID != e.done.ID {
			next++
		}
		if next == len(posted) || e.done.Err() != nil {
			return fmt.Errorf("the %s: completion %+v of no send", side, e.done)
		}
		done = append(done, completion{e.at, posted[next].at})
	}
	for i, w := range writes {
		if w.send.Op != fabric.OpWrite {
			return fmt.Errorf("the %s: write %d has opcode %d", side, i, w.send.Op)
		}
		if want := (protocol.Indication{Pool: w.pool.Ref, Element: w.element, Length: w.send.Len}); all[i] != want {
			return fmt.Errorf("the %s: indication %d is %+v, the write %+v", side, i, all[i], want)
		}
		if !slices.ContainsFunc(done, func(c completion) bool { return c.upTo >= w.at && c.at < at[i] }) {
			return fmt.Errorf("the %s: write %d was indicated before it was complete", side, i)
		}
	}
	return nil
}

func TestClaim18SeparateIndication(t *testing.T)     { inMemory(t, separateIndication) }
func TestRDMAClaim18SeparateIndication(t *testing.T) { onSoftRoCE(t, separateIndication) }

// In mode indicate a host writes data over the second channel, without immediate data. After the
// write a message on the first channel names the consumed buffer. The first channel also has the
// control and buffer management messages. The same holds for an I/O unit.
func separateIndication(t *testing.T, on fabricOf) {
	for _, side := range sides {
		t.Run(side, func(t *testing.T) {
			p := newPair(t, on, withMode(answering, protocol.ModeIndicate, 1))
			frames := p.cross(side, 0, slices.Concat(sizes, repeat(900, 100))...)
			p.ask(side)
			p.ask(other(side))
			writes := p.writes(side)
			if err := carries(writes, frames); err != nil {
				t.Error(err)
			}
			for i, w := range writes {
				if w.channel != 1 {
					t.Errorf("write %d went over channel %d", i, w.channel)
				}
			}
			if err := p.indicatedSeparately(side, writes); err != nil {
				t.Error(err)
			}
			// The writes themselves complete no receive at the other side.
			if got := ofQP(p.qpns[other(side)][1], p.pick(other(side), recvDone)); len(got) != 0 {
				t.Errorf("%d receives of the data channel completed", len(got))
			}
			if err := p.apart(side, protocol.FuncBufferRecvPool, protocol.FuncCfgUtilRequest, protocol.FuncCfgUtilReply,
				protocol.FuncBufferRDMAIndicate); err != nil {
				t.Error(err)
			}
			for _, m := range of(p.posted(other(side)), protocol.FuncBufferRecvPoolUpdate) {
				if m.qpn != p.qpns[other(side)][0] {
					t.Errorf("a %v on queue pair %d", m.function, m.qpn)
				}
			}
		})
	}
}

func TestMessageBufferRDMAIndicate(t *testing.T)     { inMemory(t, messageBufferRDMAIndicate) }
func TestRDMAMessageBufferRDMAIndicate(t *testing.T) { onSoftRoCE(t, messageBufferRDMAIndicate) }

// An indication message names several transfers, each by pool, element and length of 32 bits. So it
// can name elements whose numbers are too large for immediate data.
func messageBufferRDMAIndicate(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{
		Mode: protocol.ModeIndicate, Pools: []messaging.PoolConfig{{ElementSize: 1024, Elements: 2000}},
		Batch: 64, SendSlots: 512,
	})
	beyond := func() bool {
		all, _ := p.indications(hostSide)
		return slices.ContainsFunc(all, func(n protocol.Indication) bool { return n.Element > 255 })
	}
	// The element returned last is used first. Only many frames at once use elements with high
	// numbers.
	for burst := 0; !beyond(); burst++ {
		if burst == 50 {
			t.Fatal("no element beyond number 255 was used")
		}
		p.cross(hostSide, 0, repeat(700, 600)...)
	}
	if err := p.indicatedSeparately(hostSide, p.writes(hostSide)); err != nil {
		t.Error(err)
	}
	several := 0
	for _, m := range of(p.posted(hostSide), protocol.FuncBufferRDMAIndicate) {
		if d, err := protocol.DecodeBufferRDMAIndicate(m.data); err == nil && d.Len() > 1 {
			several++
		}
	}
	if several == 0 {
		t.Error("no message with several transfers")
	}
}

func TestIndicationThatDoesNotFit(t *testing.T)     { inMemory(t, indicationThatDoesNotFit) }
func TestRDMAIndicationThatDoesNotFit(t *testing.T) { onSoftRoCE(t, indicationThatDoesNotFit) }

// In mode imm a transfer that does not fit 32 bits of immediate data, here because of its length,
// is indicated by a separate message. It keeps its place in the order of all transfers.
func indicationThatDoesNotFit(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{
		MTU: 65535, Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 64}, {ElementSize: 65600, Elements: 16}},
	})
	for _, side := range sides {
		var lengths []int
		for i := range 20 {
			lengths = append(lengths, 100+i, 65535, 65536+i, 1000)
		}
		frames := p.cross(side, 0, lengths...)
		if err := carries(p.writes(side), frames); err != nil {
			t.Fatalf("%s: %v", side, err)
		}
		var plain []write
		for _, w := range p.writes(side) {
			if w.send.Len > 65535 {
				plain = append(plain, w)
			} else if w.send.Op != fabric.OpWriteImm {
				t.Errorf("%s: opcode %d for %d bytes", side, w.send.Op, w.send.Len)
			}
		}
		if len(plain) != 20 {
			t.Fatalf("%s: %d writes of more than 65535 bytes", side, len(plain))
		}
		if err := p.indicatedSeparately(side, plain); err != nil {
			t.Error(err)
		}
	}
}

func TestFigure6SendOperation(t *testing.T)     { inMemory(t, figure6SendOperation) }
func TestRDMAFigure6SendOperation(t *testing.T) { onSoftRoCE(t, figure6SendOperation) }

// This is the push-push send operation. Data travels by message Send over the data channel, from a
// registered buffer into a buffer that was posted at the other end before. Configuration messages
// travel over the control channel. No RDMA write is posted. The data channel is acknowledged or, as
// in the figure, unacknowledged.
func figure6SendOperation(t *testing.T, on fabricOf) {
	for mode, transport := range map[protocol.Mode]fabric.Transport{protocol.ModeSend: fabric.RC,
		protocol.ModeSendUC: fabric.UC} {
		t.Run(string(mode), func(t *testing.T) {
			p := newPair(t, on, withMode(answering, mode, 1))
			for _, side := range sides {
				frames := p.cross(side, 0, slices.Concat(sizes, repeat(500, 150))...)
				p.ask(side)
				var sent []message
				for _, m := range of(p.posted(side), protocol.FuncSendData) {
					if m.qpn != p.qpns[side][1] {
						t.Errorf("%s: data on queue pair %d", side, m.qpn)
					}
					sent = append(sent, m)
				}
				got := of(p.arrived(other(side)), protocol.FuncSendData)
				var data [][]byte
				for i, m := range sent {
					d, err := protocol.DecodeSendData(m.data)
					if err != nil || d.TransactionContext != uint64(i) {
						t.Errorf("%s: message %d is number %d with %d bytes: %v", side, i, d.TransactionContext, len(d.Data), err)
					}
					data = append(data, d.Data)
					if i >= len(got) || got[i].recv.Len < uint32(len(m.data)) || !bytes.Equal(got[i].data, m.data) {
						t.Fatalf("%s: message %d did not arrive in a buffer posted for it", side, i)
					}
				}
				if err := carry(data, frames); err != nil {
					t.Errorf("%s: %v", side, err)
				}
				for _, e := range p.pick(side, sendPosted) {
					if e.send.Op != fabric.OpSend {
						t.Errorf("%s: opcode %d", side, e.send.Op)
					}
				}
				for _, e := range p.pick(side, qpMade) {
					want := fabric.RC
					if p.channel(side, e.qpn) > 0 {
						want = transport
					}
					if e.config.Transport != want {
						t.Errorf("%s: channel %d has transport %d", side, p.channel(side, e.qpn), e.config.Transport)
					}
				}
			}
			for _, side := range sides {
				if err := p.apart(side, configuration...); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
