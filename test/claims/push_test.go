package claims

import (
	"fmt"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

func TestClaim11PushPush(t *testing.T)     { inMemory(t, pushPush) }
func TestRDMAClaim11PushPush(t *testing.T) { onSoftRoCE(t, pushPush) }

// Both sides push: the side that has a frame sends it with one work request. No request precedes
// the arrival of a frame, and neither side can read the other's memory.
func pushPush(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{})
	for _, side := range sides {
		for _, n := range sizes {
			from := p.now()
			p.cross(side, 0, n)
			var arrived int
			p.until(func() error {
				got := between(ofQP(p.qpns[other(side)][1], p.pick(other(side), recvDone)), from, p.now())
				if len(got) != 1 {
					return fmt.Errorf("%d receives completed for one frame", len(got))
				}
				arrived = got[0].at
				return nil
			})
			for _, s := range sides {
				for _, e := range between(p.pick(s, sendPosted), from, arrived) {
					switch {
					case s == side && e.qpn == p.qpns[s][1] && e.send.Op == fabric.OpWriteImm:
					case e.qpn == p.qpns[s][0] && keepsAlive(message{entry: e}):
					default:
						t.Errorf("%d bytes of the %s: the %s posted opcode %d on channel %d meanwhile",
							n, side, s, e.send.Op, p.channel(s, e.qpn))
					}
				}
			}
			if w := between(ofQP(p.qpns[side][1], p.pick(side, sendPosted)), from, arrived); len(w) != 1 {
				t.Errorf("%d bytes of the %s took %d work requests", n, side, len(w))
			}
		}
		for _, e := range p.pick(side, registered) {
			if e.access&^(fabric.LocalWrite|fabric.RemoteWrite|fabric.WindowBind) != 0 {
				t.Errorf("%s: memory registered with access %#x", side, e.access)
			}
		}
		for _, e := range p.pick(side, qpMade) {
			if e.config.MaxRdAtomic != 0 || e.config.MaxDestRdAtomic != 0 {
				t.Errorf("%s: a queue pair for %d reads, that answers %d", side, e.config.MaxRdAtomic,
					e.config.MaxDestRdAtomic)
			}
		}
	}
}

func TestClaim19PushToPreRegisteredBuffer(t *testing.T)     { inMemory(t, pushToPreRegisteredBuffer) }
func TestRDMAClaim19PushToPreRegisteredBuffer(t *testing.T) { onSoftRoCE(t, pushToPreRegisteredBuffer) }

// First a connected channel is established by associating the queue pairs. Then data is pushed into
// buffers that were registered before they were lent, and each write indicates its buffer.
func pushToPreRegisteredBuffer(t *testing.T, on fabricOf) {
	p := newEndpoints(t, on, map[string]messaging.Config{})
	if sent := p.pick("", sendPosted); len(sent) != 0 {
		t.Errorf("something was sent before there was a connection: %+v", sent)
	}
	p.connect()
	p.start()
	for _, side := range sides {
		frames := p.cross(side, 0, sizes...)
		peer := other(side)
		var c []entry
		for _, s := range sides {
			c = append(c, ofQP(p.qpns[s][1], p.pick(s, connected))...)
		}
		if len(c) != 2 || c[0].remote.QPN != c[1].qpn || c[1].remote.QPN != c[0].qpn {
			t.Fatalf("the queue pairs of the data channel are not associated with each other: %+v", c)
		}
		writes := p.writes(side)
		if err := carries(writes, frames); err != nil {
			t.Errorf("%s: %v", side, err)
		}
		for _, w := range writes {
			if w.at < c[0].at || w.at < c[1].at {
				t.Errorf("%s: a write before the channel was established", side)
			}
			_, key := p.memory(peer, w.pool)
			if key.rkey != w.send.RKey || w.send.RemoteAddr < key.addr ||
				w.send.RemoteAddr+uint64(w.send.Len) > key.addr+uint64(key.length) {
				t.Errorf("%s: a write of %d bytes to %#x, which the %s had not registered before it was lent", side, w.send.Len,
					w.send.RemoteAddr, peer)
			}
		}
		if gone := p.pick(peer, deregistered); len(gone) != 0 {
			t.Errorf("%s: memory deregistered in use: %+v", peer, gone)
		}
		if err := p.indicated(side, 1); err != nil {
			t.Errorf("%s: %v", side, err)
		}
	}
}
