package claims

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// behindWindows returns a configuration that lends pools behind memory windows, and soon lends
// more. agreed is whether the peer invalidates the windows.
func behindWindows(idle time.Duration, agreed bool) messaging.Config {
	c := scarce(idle)
	c.Protection, c.Invalidation = messaging.ProtectWindow, agreed
	return c
}

// keyVoid waits until the I/O unit's window with this key is invalidated: by a message of the peer
// if agreed, by its owner otherwise. It returns the entry of the invalidation.
func (p *pair) keyVoid(key uint32, agreed bool) (how entry) {
	p.t.Helper()
	kind := unbound
	if agreed {
		kind = recvDone
	}
	p.until(func() error {
		for _, e := range p.pick(unitSide, kind) {
			if agreed && e.done.Flags&fabric.WithInv != 0 && e.done.InvKey == key || !agreed && e.rkey == key {
				how = e
				return nil
			}
		}
		return errors.New("the window is bound still")
	})
	return how
}

func TestPoolsBehindWindows(t *testing.T)     { inMemory(t, poolsBehindWindows) }
func TestRDMAPoolsBehindWindows(t *testing.T) { onSoftRoCE(t, poolsBehindWindows) }

// If windows protect pools, the peer cannot write to a region with the region's own key. Each pool
// is lent with the key of a window that was bound to all of its region before, through the send
// queue of the pool's data channel. All writes use such keys on these channels. At the end of the
// pool the window is invalidated, by its owner or by the peer's last message, and the memory is
// deregistered only after that. If a reference is lent again, it has another key.
func poolsBehindWindows(t *testing.T, on fabricOf) {
	for name, agreed := range map[string]bool{"invalidated by the owner": false, "invalidated by the peer": true} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, on, behindWindows(soonIdle, agreed))
			var pools []lentPool
			for round := range 2 {
				p.flood(0, func() bool { return len(p.lent(unitSide)) > 1+round })
				pools = p.lent(unitSide)
				pool := pools[1+round]
				void := p.keyVoid(pool.RKey, agreed)
				if ch := p.channel(unitSide, void.qpn); ch != 1 {
					t.Errorf("invalidated over channel %d", ch)
				}
				var gone entry
				p.until(func() error {
					for _, e := range p.pick(unitSide, deregistered) {
						if e.addr == pool.Addr && e.at > pool.at {
							gone = e
							return nil
						}
					}
					return errors.New("the pool is still registered")
				})
				if gone.at < void.at {
					t.Error("deregistered before the window was invalid")
				}
				for _, e := range p.pick(hostSide, sendPosted) {
					if e.send.RKey == pool.RKey && (e.send.Op == fabric.OpWrite || e.send.Op == fabric.OpWriteImm) && e.at > void.at {
						t.Error("written to after its window was invalid")
					}
				}
			}
			if pools[1].Ref != pools[2].Ref || pools[1].RKey == pools[2].RKey {
				t.Errorf("lent again: first %+v, then %+v", pools[1], pools[2])
			}
			for _, side := range sides {
				for _, r := range p.pick(side, registered) {
					if r.access&fabric.RemoteWrite != 0 {
						t.Errorf("%s: %d bytes may be written by the key of their region", side, r.length)
					}
				}
				binds := p.pick(side, bound)
				for _, b := range binds {
					if b.access != fabric.RemoteWrite {
						t.Errorf("%s: the window under key %#x grants %#x", side, b.rkey, b.access)
					}
				}
				for _, l := range p.lent(side) {
					if !slices.ContainsFunc(binds, func(b entry) bool {
						return b.rkey == l.RKey && b.addr == l.Addr && uint64(b.length) == l.Bytes() && b.at < l.at &&
							p.channel(side, b.qpn) == int(l.Channel())
					}) {
						t.Errorf("%s: pool %+v is lent without a window of its own", side, l)
					}
				}
				// The only messages on data channels are the ones that invalidate windows, and
				// they have no data.
				lent := p.lent(other(side)) // outside of the loop, because the trace may be long
				for _, e := range p.pick(side, sendPosted) {
					switch ch := p.channel(side, e.qpn); {
					case ch > 0 && e.send.Op == fabric.OpSend, ch > 0 && e.send.Op == fabric.OpSendInv && (e.send.Len != 0 || !agreed):
						t.Errorf("%s: a message of %d bytes on data channel %d", side, e.send.Len, ch)
					case ch == 0 && e.send.Op != fabric.OpSend:
						t.Errorf("%s: something else than a message on the control channel", side)
					case ch > 0 && e.send.Op != fabric.OpSendInv && e.send.Len > 0 &&
						!slices.ContainsFunc(lent, func(l lentPool) bool {
							return l.at < e.at && l.RKey == e.send.RKey && int(l.Channel()) == ch
						}):
						t.Errorf("%s: a write on channel %d with key %#x, which was not lent there", side, ch, e.send.RKey)
					}
				}
			}
			p.cross(hostSide, 0, repeat(1000, 20)...)
		})
	}
}

func TestWindowsInEveryMode(t *testing.T)     { inMemory(t, windowsInEveryMode) }
func TestRDMAWindowsInEveryMode(t *testing.T) { onSoftRoCE(t, windowsInEveryMode) }

// In the modes that lend pools, frames of all sizes cross several channels whose pools are
// protected by windows, or by a window for each element. The sides may have different protection.
func windowsInEveryMode(t *testing.T, on fabricOf) {
	for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate} {
		for _, of := range []map[string]messaging.Protection{
			{hostSide: messaging.ProtectWindow, unitSide: messaging.ProtectWindow},
			{hostSide: messaging.ProtectOneTouch, unitSide: messaging.ProtectOneTouch},
			{hostSide: messaging.ProtectWindow, unitSide: messaging.ProtectOneTouch},
		} {
			t.Run(fmt.Sprintf("%s, host %s, I/O unit %s", mode, of[hostSide], of[unitSide]), func(t *testing.T) {
				cfg := map[string]messaging.Config{}
				for _, side := range sides {
					cfg[side] = messaging.Config{Mode: mode, Queues: 2, Protection: of[side], Invalidation: true, OneTouch: true}
				}
				p := newEndpoints(t, on, cfg)
				p.connect()
				p.start()
				for _, side := range sides {
					for queue := range 2 {
						p.cross(side, queue, sizes...)
					}
					if s := p.endpoints[side].conn.Stats(); s.Protection.Name != of[side] || s.Channels[1].WindowsBound == 0 {
						t.Errorf("%s: protected by %v, %d windows bound on channel 2", side, s.Protection, s.Channels[1].WindowsBound)
					}
				}
			})
		}
	}
}

func TestOneTouch(t *testing.T)     { inMemory(t, oneTouch) }
func TestRDMAOneTouch(t *testing.T) { onSoftRoCE(t, oneTouch) }

// Each element of a one-touch pool is lent with its own key, and is written once with this key. The
// element's window is invalidated before the element's frame is passed on, and is bound again with
// the next key before an update returns the element.
func oneTouch(t *testing.T, on fabricOf) {
	const elements, size = 4, 2048
	p := newPair(t, on, messaging.Config{
		Pools:    []messaging.PoolConfig{{ElementSize: size, Elements: elements}},
		MaxPools: 1, Protection: messaging.ProtectOneTouch, OneTouch: true,
	})
	var delivered []int // positions on the trace before which each frame was passed on
	for range 4 * elements {
		p.cross(hostSide, 0, 1000)
		delivered = append(delivered, p.now())
	}
	pool := p.lent(unitSide)[0]
	if pool.RKey != 0 {
		t.Errorf("lent with a key for all elements, %#x", pool.RKey)
	}
	writes := filter(p.pick(hostSide, sendPosted), func(e entry) bool { return e.send.Op == fabric.OpWriteImm })
	if len(writes) != len(delivered) {
		t.Fatalf("%d writes for %d frames", len(writes), len(delivered))
	}
	for elem := range uint32(elements) {
		addr := pool.Addr + uint64(elem)*size
		var key uint32 // key of the window, 0 while the window is invalid
		var next uint32
		written := false
		for _, e := range p.pick("", bound, sendPosted) {
			switch {
			case e.side == unitSide && e.what == bound && e.addr == addr:
				if key != 0 || e.length != size || next != 0 && e.rkey != next {
					t.Fatalf("element %d: %d bytes bound with key %#x after %#x, want the next key %#x", elem, e.length, e.rkey, key,
						next)
				}
				key, next, written = e.rkey, protocol.NextKey(e.rkey), false
			case e.side == hostSide && e.send.RemoteAddr == addr && e.send.Op == fabric.OpWriteImm:
				if e.send.RKey != key || written {
					t.Fatalf("element %d, whose key is %#x, is written with %#x; before: %t", elem, key, e.send.RKey, written)
				}
				passed := delivered[slices.IndexFunc(writes, func(w entry) bool { return w.at == e.at })]
				if !slices.ContainsFunc(p.pick(unitSide, sendPosted), func(i entry) bool {
					return i.send.Op == fabric.OpLocalInv && i.send.RKey == e.send.RKey && i.at > e.at && i.at < passed
				}) {
					t.Errorf("element %d: its frame was passed on before its window was invalidated", elem)
				}
				written = true
			case e.side == unitSide && e.what == sendPosted && e.send.Op == fabric.OpLocalInv && e.send.RKey == key:
				if !written {
					t.Errorf("element %d: its window is invalidated without need", elem)
				}
				key = 0
			case e.side == unitSide && e.what == sendPosted && returns(e.data, pool.Ref, elem) && key == 0:
				t.Errorf("element %d is returned while its window is invalid", elem)
			}
		}
	}
}

func TestRevocationMeasured(t *testing.T)     { inMemory(t, revocationMeasured) }
func TestRDMARevocationMeasured(t *testing.T) { onSoftRoCE(t, revocationMeasured) }

// The driver measures the time during which a second write to a one-touch element is still
// accepted, beginning when the completion of the first write is taken.
func revocationMeasured(t *testing.T, on fabricOf) {
	p := newPair(t, on, messaging.Config{
		Pools: []messaging.PoolConfig{{ElementSize: 2048, Elements: 16}}, MaxPools: 1,
		Protection: messaging.ProtectOneTouch, OneTouch: true,
	})
	begun := time.Now()
	const frames = 64
	for range frames / 8 {
		p.cross(hostSide, 0, repeat(1000, 8)...)
	}
	took := time.Since(begun)
	s := stats(p, unitSide).Channels[0]
	sum, n := time.Duration(s.RevocationTime), s.Revocations
	if n < 1 || n > frames || sum <= 0 || sum > time.Duration(n)*s.RevocationMax || s.RevocationMax > took {
		t.Errorf("%d batches for %d frames, revoked within %v in all, at most %v, during %v", n, frames, sum, s.RevocationMax,
			took)
	}
	t.Logf("a second write was accepted for %v on average, at most %v, in %d batches", sum/time.Duration(max(n, 1)),
		s.RevocationMax, n)
}
