package bufpool

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// TestPools passes sequences of events to the pools, and checks the actions of each.
func TestPools(t *testing.T) {
	for _, tt := range []struct {
		name   string
		guards int
		change func(*Config)
		walk   func(w *walk)
	}{
		{"the first pools are offered together", 1, nil, func(w *walk) {
			a, b := w.fill(w.pools.First(1)), w.fill(w.pools.First(1))
			w.step(Event{Did: Adopt, Local: a}, "bind 0")
			w.step(Event{Did: Bind, Local: a}, "")
			w.step(Event{Did: Adopt, Local: b}, "bind 1")
			w.step(Event{Did: Bind, Local: b}, "offer 0; offer 1")
		}},
		{"keys are sent of the largest elements first", 1, func(c *Config) { c.OneTouch = true }, func(w *walk) {
			a, b := w.fill(w.pools.First(1)), w.fill(w.pools.First(1))
			b.Elements = NewElements(nil, 4096, 4)
			w.step(Event{Did: Bind, Local: a}, "")
			w.step(Event{Did: Bind, Local: b}, "send-keys 1")
			w.step(Event{Did: SendKeys, Local: b}, "offer 1; send-keys 0")
			w.step(Event{Did: SendKeys, Local: a}, "offer 0")
		}},
		{"a pool that is asked for", 1, nil, func(w *walk) {
			w.lent(1)
			out := w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 8}, "make 1 of 8 × 100 on 1")
			l := w.fill(out[0].Local)
			w.step(Event{Did: Make, Local: l}, "adopt 1")
			w.step(Event{Did: Adopt, Local: l}, "bind 1")
			w.step(Event{Did: Bind, Local: l}, "offer 1")
			if c := w.pools.Count(); c.Granted != 1 || c.Refused != 0 {
				w.t.Errorf("%+v", c)
			}
		}},
		{"more pools than there may be", 0, nil, func(w *walk) {
			w.lent(3)
			w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 1}, "make 3 of 1 × 100 on 1")
			out := w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 1}, "")
			if c := w.pools.Count(); len(out) != 0 || c.Refused != 1 {
				w.t.Errorf("%+v", c)
			}
		}},
		{"a pool that cannot be made leaves its place", 0, nil, func(w *walk) {
			w.lent(3)
			out := w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 1}, "make 3 of 1 × 100 on 1")
			w.step(Event{Kind: Failed, Local: out[0].Local}, "")
			w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 1}, "make 3 of 1 × 100 on 1")
		}},
		{"the peer gives pools back", 0, nil, func(w *walk) {
			l := w.lent(2)
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{1 | giveBack, 0 | giveBack}}, "drain 1; drain 0")
			w.step(Event{Did: Drain, Local: l[0]}, "deregister 0")
			w.step(Event{Did: Deregister, Local: l[0]}, "")
			w.step(Event{Did: Drain, Local: l[1]}, "deregister 1; reply to 7, 0 of 0")
			w.step(Event{Kind: Flush, Transaction: 8, Refs: []uint32{1 | giveBack}}, ErrTooManyFlushes)
		}},
		{"this side invalidates windows after the reply", 1, nil, func(w *walk) {
			l := w.lent(1)
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{0 | giveBack}}, "drain 0")
			w.step(Event{Did: Drain, Local: l[0]}, "reply to 7, 0 of 0; unbind 0")
			w.step(Event{Did: Unbind, Local: l[0]}, "deregister 0")
		}},
		{"the peer invalidates windows after the reply", 1, func(c *Config) { c.Invalidates = true }, func(w *walk) {
			l := w.lent(1)
			w.step(Event{Kind: Invalidated, Local: l[0]}, ErrInvalidated)
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{0 | giveBack}}, "drain 0")
			w.step(Event{Did: Drain, Local: l[0]}, "reply to 7, 0 of 0")
			w.step(Event{Kind: Invalidated, Local: l[0]}, "deregister 0")
			w.step(Event{Kind: Invalidated, Local: l[0]}, ErrInvalidated)
		}},
		{"the peer invalidates when it is asked to", 1, func(c *Config) { c.Invalidates = true }, func(w *walk) {
			l := w.asked()
			w.step(Event{Kind: Tick, Tight: true}, "request 0x0 as 1")
			w.step(Event{Kind: Invalidated, Local: l}, "")
			w.step(Event{Kind: FlushReply, Transaction: 1}, "drain 0")
			w.step(Event{Did: Drain, Local: l}, "deregister 0")
		}},
		{"nobody invalidates where the target does", 1, nil, func(w *walk) {
			l := w.lent(1)
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{0 | giveBack}}, "drain 0")
			w.step(Event{Kind: Invalidated, Local: l[0]}, ErrInvalidated)
		}},
		{"at the end all pools go, of both sides", 0, nil, func(w *walk) {
			l, r := w.lent(2), w.lend(5, 2048, false)
			w.step(Event{Kind: Ending}, "stop 5; request 0x0 0x1 as 1")
			w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 4}, "")
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "")
			w.step(Event{Did: Stop, Remote: r}, "")
			w.step(Event{Kind: FlushReply, Transaction: 1}, fmt.Sprintf("drain 0; drain 1; request %#x as 2", 5|giveBack))
			w.step(Event{Did: Drain, Local: l[0]}, "deregister 0")
			w.step(Event{Did: Deregister, Local: l[0]}, "")
			w.step(Event{Kind: FlushReply, Transaction: 2}, "")
			w.step(Event{Did: Drain, Local: l[1]}, "deregister 1")
			if w.pools.Gone() {
				w.t.Error("all pools are gone before the last one is deregistered")
			}
			w.step(Event{Did: Deregister, Local: l[1]}, "")
			if !w.pools.Gone() {
				w.t.Error("there are pools left")
			}
		}},
		{"at the end the pools of the largest elements go last", 0, nil, func(w *walk) {
			l := w.lent(3)
			for i, size := range []int{4096, 512, 2048} {
				l[i].Elements = NewElements(nil, size, 4)
			}
			large, small := w.lend(5, 4096, false), w.lend(6, 512, true)
			w.step(Event{Kind: Ending}, "stop 6; stop 5; request 0x1 0x2 0x0 as 1")
			w.step(Event{Did: Stop, Remote: large}, "")
			w.step(Event{Kind: FlushReply, Transaction: 1}, "drain 1; drain 2; drain 0")
			w.step(Event{Did: Stop, Remote: small}, fmt.Sprintf("request %#x %#x as 2", 6|giveBack, 5|giveBack))
			w.step(Event{Kind: FlushReply, Transaction: 2}, "invalidate 6")
			if large.state != remoteClosed || small.state != remoteClosed {
				w.t.Error("a pool is in use after it was given back")
			}
		}},
		{"at the end a pool that is not offered yet goes later", 0, nil, func(w *walk) {
			l := w.lent(1)
			out := w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 1}, "make 1 of 1 × 100 on 1")
			w.step(Event{Kind: Ending}, "request 0x0 as 1")
			w.step(Event{Did: Make, Local: w.fill(out[0].Local)}, "adopt 1")
			w.step(Event{Did: Adopt, Local: out[0].Local}, "offer 1")
			w.step(Event{Kind: FlushReply, Transaction: 1}, "drain 0; request 0x1 as 2")
			w.step(Event{Did: Drain, Local: l[0]}, "deregister 0")
		}},
		{"at the end the peer may take or give back some of the pools", 0, nil, func(w *walk) {
			l, a, b := w.lent(2), w.lend(5, 2048, false), w.lend(6, 2048, false)
			w.step(Event{Kind: Ending}, "stop 5; stop 6; request 0x0 0x1 as 1")
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{5, 1 | giveBack}}, "stop 5 for good; drain 1")
			w.step(Event{Did: Drain, Local: l[1]}, "deregister 1")
			w.step(Event{Did: Stop, Remote: a}, "")
			w.step(Event{Did: Stop, Remote: b}, "")
			w.step(Event{Kind: FlushReply, Transaction: 1}, fmt.Sprintf("drain 0; request %#x as 2", 6|giveBack))
			w.step(Event{Did: Stop, Remote: a, Last: true}, "reply to 7, 1 of 4")
		}},
		{"at the end both sides may take the same pools back", 0, nil, func(w *walk) {
			l, r := w.lent(1), w.lend(5, 2048, false)
			w.step(Event{Kind: Ending}, "stop 5; request 0x0 as 1")
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{5, 0 | giveBack}}, "stop 5 for good; drain 0")
			w.step(Event{Did: Stop, Remote: r}, "")
			w.step(Event{Did: Stop, Remote: r, Last: true}, "")
			w.step(Event{Did: Drain, Local: l[0]}, "deregister 0; reply to 7, 1 of 4")
			w.step(Event{Did: Reply}, "")
			w.step(Event{Did: Deregister, Local: l[0]}, "")
			w.step(Event{Kind: FlushReply, Transaction: 1}, "")
			if !w.pools.Gone() {
				w.t.Error("there are pools left")
			}
		}},
		{"idle pools are taken back, one after the other", 0, nil, func(w *walk) {
			w.lent(1)
			a, b := w.asked(), w.asked()
			for range 3 {
				w.step(Event{Kind: Tick}, "")
			}
			w.step(Event{Kind: Tick}, "request 0x1 as 1")
			w.step(Event{Kind: Tick}, "")
			w.step(Event{Kind: FlushReply, Transaction: 1}, "drain 1")
			w.step(Event{Kind: Tick}, "request 0x2 as 2")
			w.step(Event{Kind: FlushReply, Transaction: 2}, "drain 2")
			w.step(Event{Did: Drain, Local: a}, "deregister 1")
			w.step(Event{Did: Drain, Local: b}, "deregister 2")
		}},
		{"a pool that is used stays", 0, nil, func(w *walk) {
			l := w.asked()
			for range 20 {
				if _, err := l.Elements.Consume(0, 1); err != nil {
					w.t.Fatal(err)
				}
				l.Elements.Release(0)
				l.Elements.Returned(1)
				w.step(Event{Kind: Tick}, "")
			}
			w.step(Event{Kind: Tick, Tight: true}, "request 0x0 as 1")
		}},
		{"a pool is taken back and given back", 0, nil, func(w *walk) {
			l := w.asked()
			w.step(Event{Kind: Tick, Tight: true}, "request 0x0 as 1")
			w.step(Event{Kind: Flush, Transaction: 5, Refs: []uint32{0 | giveBack}}, "drain 0")
			w.step(Event{Did: Drain, Local: l}, "deregister 0; reply to 5, 0 of 0")
			w.step(Event{Did: Reply}, "")
			w.step(Event{Did: Deregister, Local: l}, "")
			w.asked()
			w.step(Event{Kind: Tick, Tight: true}, "") // the peer has not answered the flush
			w.step(Event{Kind: FlushReply, Transaction: 1}, "")
			w.step(Event{Kind: Tick, Tight: true}, "request 0x0 as 2")
		}},
		{"a pool that is not offered yet", 1, nil, func(w *walk) {
			out := w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 1}, "make 0 of 1 × 100 on 1")
			w.step(Event{Did: Make, Local: w.fill(out[0].Local)}, "adopt 0")
			w.step(Event{Kind: Tick, Tight: true}, "")
			w.step(Event{Kind: Flush, Refs: []uint32{0 | giveBack}}, ErrPool)
		}},
		{"pools that cannot be given back", 0, nil, func(w *walk) {
			w.lent(1)
			w.step(Event{Kind: Flush, Refs: []uint32{1 | giveBack}}, ErrPool)
			w.pools.peerFlush.out = false
			w.step(Event{Kind: Flush, Refs: []uint32{4 | giveBack}}, ErrPool)
			w.pools.peerFlush.out = false
			w.step(Event{Kind: Flush, Refs: []uint32{0 | giveBack, 0 | giveBack}}, ErrPool)
		}},

		{"the peer takes pools back", 0, nil, func(w *walk) {
			a, b := w.lend(9, 2048, true), w.lend(5, 4096, false)
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{9, 5}}, "stop 9 for good; stop 5 for good")
			w.step(Event{Did: Stop, Remote: b, Last: true}, "")
			w.step(Event{Did: Stop, Remote: a, Last: true}, "reply to 7, 2 of 8")
			w.step(Event{Did: Reply}, "")
			w.step(Event{Kind: Flush, Transaction: 8, Refs: []uint32{9}}, ErrPool)
			w.lend(9, 2048, true)
		}},
		{"the peer takes back what it does not lend", 0, nil, func(w *walk) {
			w.lend(9, 2048, false)
			w.step(Event{Kind: Flush, Refs: []uint32{9, 9}}, ErrPool)
			w.pools.peerFlush.out = false
			w.step(Event{Kind: Flush, Refs: []uint32{8}}, ErrPool)
		}},
		{"a pool that came on request is given back", 0, nil, func(w *walk) {
			w.lend(1, 2048, true)
			w.now = w.now.Add(time.Hour)
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
			w.step(Event{Did: Ask}, "")
			extra := w.lend(2, 2048, true)
			w.step(Event{Kind: Tick}, "")
			w.step(Event{Kind: Tick}, "stop 2")
			w.step(Event{Kind: Tick}, "")
			w.step(Event{Did: Stop, Remote: extra}, fmt.Sprintf("request %#x as 1", 2|uint32(giveBack)))
			w.step(Event{Kind: FlushReply, Transaction: 2}, ErrReply)
			w.asked()
			w.step(Event{Kind: Tick, Tight: true}, "") // one flush at a time
			w.step(Event{Kind: FlushReply, Transaction: 1}, "invalidate 2")
			w.step(Event{Kind: FlushReply, Transaction: 1}, ErrReply)
			w.lend(2, 2048, true)
		}},
		{"a pool of another size than was asked for stays", 0, nil, func(w *walk) {
			w.lend(1, 2048, true)
			w.now = w.now.Add(time.Hour)
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
			w.step(Event{Did: Ask}, "")
			w.lend(2, 4096, true)
			for range 5 {
				w.step(Event{Kind: Tick}, "")
			}
		}},
		{"a pool waits to be given back for the flush that is out", 0, nil, func(w *walk) {
			w.now = w.now.Add(time.Hour)
			w.lend(1, 2048, false)
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
			extra := w.lend(2, 2048, false)
			w.asked()
			w.step(Event{Kind: Tick}, "")
			w.step(Event{Kind: Tick, Tight: true}, "request 0x0 as 1; stop 2")
			w.step(Event{Did: Stop, Remote: extra}, "")
			w.step(Event{Kind: FlushReply, Transaction: 1}, fmt.Sprintf("drain 0; request %#x as 2", 2|uint32(giveBack)))
		}},
		{"a pool is not given back before it has stopped", 0, nil, func(w *walk) {
			w.now = w.now.Add(time.Hour)
			w.lend(1, 2048, false)
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
			extra := w.lend(2, 2048, false)
			w.asked()
			w.step(Event{Kind: Tick}, "")
			w.step(Event{Kind: Tick, Tight: true}, "request 0x0 as 1; stop 2")
			w.step(Event{Kind: FlushReply, Transaction: 1}, "drain 0")
			w.step(Event{Did: Stop, Remote: extra}, fmt.Sprintf("request %#x as 2", 2|uint32(giveBack)))
		}},
		{"the peer takes back a pool that is stopping", 0, nil, func(w *walk) {
			w.now = w.now.Add(time.Hour)
			w.lend(1, 2048, false)
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
			extra := w.lend(2, 2048, false)
			w.step(Event{Kind: Tick}, "")
			w.step(Event{Kind: Tick}, "stop 2")
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{2}}, "stop 2 for good")
			w.step(Event{Did: Stop, Remote: extra}, "")
			w.step(Event{Did: Stop, Remote: extra, Last: true}, "reply to 7, 1 of 4")
		}},
		{"the peer takes back a pool that is given", 0, nil, func(w *walk) {
			w.now = w.now.Add(time.Hour)
			w.lend(1, 2048, false)
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
			extra := w.lend(2, 2048, true)
			w.step(Event{Kind: Tick}, "")
			w.step(Event{Kind: Tick}, "stop 2")
			w.step(Event{Did: Stop, Remote: extra}, fmt.Sprintf("request %#x as 1", 2|uint32(giveBack)))
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{2}}, "stop 2 for good")
			w.step(Event{Kind: FlushReply, Transaction: 1}, "invalidate 2") // the sender does so only once
			w.step(Event{Did: Stop, Remote: extra, Last: true}, "reply to 7, 1 of 4")
		}},
		{"more is asked for with pauses", 0, nil, func(w *walk) {
			ask := func(want string) { w.t.Helper(); w.step(Event{Kind: Needed, Channel: 1, Size: 3000}, want) }
			w.now = w.now.Add(time.Hour)
			ask("") // the peer has lent no pool yet
			w.lend(1, 2048, false)
			w.lend(2, 9000, false)
			w.step(Event{Kind: Needed, Channel: 1}, "") // the sender lacks nothing
			ask("ask of 4 × 9000 on 1")
			ask("")
			w.now = w.now.Add(time.Hour)
			ask("") // one at a time
			w.step(Event{Did: Ask}, "")
			ask("ask of 4 × 9000 on 1")
			w.step(Event{Did: Ask}, "")
			for _, pause := range []time.Duration{4 * time.Second, 4 * time.Second} {
				w.now = w.now.Add(pause - 1)
				ask("")
				w.now = w.now.Add(1)
				ask("ask of 4 × 9000 on 1")
				w.step(Event{Did: Ask}, "")
			}
			w.lend(3, 2048, false)
			w.now = w.now.Add(time.Hour)
			ask("") // no more pools were agreed
		}},
		{"the smallest elements that are large enough", 0, nil, func(w *walk) {
			w.now = w.now.Add(time.Hour)
			w.lend(1, 9000, false)
			w.lend(2, 4096, false)
			w.step(Event{Kind: Needed, Channel: 1, Size: 3000}, "ask of 4 × 4096 on 1")
		}},
		{"larger elements than there are", 0, nil, func(w *walk) {
			w.now = w.now.Add(time.Hour)
			w.lend(1, 2048, false)
			w.lend(2, 4096, false)
			w.step(Event{Kind: Needed, Channel: 1, Size: 5000}, "ask of 4 × 5000 on 1")
		}},
		{"more than the peer may lend", 0, func(c *Config) { c.MaxElements = 10 }, func(w *walk) {
			w.lend(1, 2048, false)
			w.lend(2, 2048, false)
			lend := func(ref, elements uint32) Event {
				lent := protocol.Pool{Ref: ref, Elements: elements, Context: protocol.PoolContext(1, 0)}
				return Event{Kind: Lent, Remote: NewRemote(lent, InOrder)}
			}
			w.step(lend(2, 1), ErrPoolTwice)
			w.step(lend(3, 3), ErrTooManyElements)
			w.step(lend(3, 2), "use 3")
			w.step(lend(4, 1), ErrTooManyPools)
		}},
		{"pools that went are forgotten for their elements", 0, func(c *Config) { c.MaxElements = 7 }, func(w *walk) {
			for ref := range uint32(2) {
				r := w.lend(ref, 2048, false)
				w.step(Event{Kind: Flush, Refs: []uint32{ref}}, fmt.Sprintf("stop %d for good", ref))
				w.step(Event{Did: Stop, Remote: r, Last: true}, "reply to 0, 1 of 4")
				w.step(Event{Did: Reply}, "")
			}
			w.lend(2, 2048, false)
			if w.pools.Remote(0) != nil || w.pools.Remote(1) == nil {
				w.t.Errorf("pool 0: %v, pool 1: %v", w.pools.Remote(0), w.pools.Remote(1))
			}
		}},
		{"pools that went long ago are forgotten", 0, nil, func(w *walk) {
			for ref := range uint32(10) {
				r := w.lend(ref, 2048, false)
				w.step(Event{Kind: Flush, Refs: []uint32{ref}}, fmt.Sprintf("stop %d for good", ref))
				w.step(Event{Did: Stop, Remote: r, Last: true}, "reply to 0, 1 of 4")
				w.step(Event{Did: Reply}, "")
			}
			n := 0
			for _, r := range w.pools.remote {
				n += r.Len()
			}
			if n != 12 || w.pools.Remote(6) != nil || w.pools.Remote(7) == nil {
				w.t.Errorf("%d elements are remembered", n)
			}
		}},
		{"the books of a pool that has not stopped are its own", 0, nil, func(w *walk) {
			var closed []*Remote
			for ref := range uint32(6) {
				r := w.lend([]uint32{0, 0, 1, 2, 3, 4}[ref], 2048, false)
				for _, old := range closed {
					if &r.frames[0] == &old.frames[0] {
						w.t.Errorf("pool %d has the books of pool %d, which is in use", r.Ref, old.Ref)
					}
				}
				w.step(Event{Kind: Flush, Refs: []uint32{r.Ref}}, fmt.Sprintf("stop %d for good", r.Ref))
				w.pools.peerFlush.out = false // a peer that does not wait for the reply
				closed = append(closed, r)
			}
		}},
		{"a pool that is asked for is offered while it is bound", 1, func(c *Config) { c.KeySend = true }, func(w *walk) {
			a := w.fill(w.pools.First(1))
			w.step(Event{Did: Adopt, Local: a}, "bind 0")
			w.step(Event{Did: Bind, Local: a}, "offer 0")
			out := w.step(Event{Kind: Get, Channel: 1, Size: 100, Elements: 8}, "make 1 of 8 × 100 on 1")
			l := w.fill(out[0].Local)
			w.step(Event{Did: Make, Local: l}, "adopt 1")
			w.step(Event{Did: Adopt, Local: l}, "bind and send 1; offer 1")
			w.step(Event{Kind: Tick, Tight: true}, "request 0x1 as 1")
		}},
		{"keys come in the order of their pools", 0, nil, func(w *walk) {
			a, b := w.lendKeyless(4, ""), w.lendKeyless(5, "")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 7}, "use 4")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 8}, "use 5")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 9}, "")
			c := w.lendKeyless(6, "use 6")
			if a.RKey() != 7 || b.RKey() != 8 || c.RKey() != 9 {
				w.t.Errorf("keys %d, %d and %d", a.RKey(), b.RKey(), c.RKey())
			}
		}},
		{"keys are those of their channel", 0, func(c *Config) { c.Channels = 2 }, func(w *walk) {
			r := w.lendKeyless(4, "")
			w.step(Event{Kind: Keyed, Channel: 2, Key: 7}, "")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 8}, "use 4")
			if r.RKey() != 8 {
				w.t.Errorf("key %d", r.RKey())
			}
		}},
		{"more keys than there can be pools", 0, nil, func(w *walk) {
			for key := range uint32(3) {
				w.step(Event{Kind: Keyed, Channel: 1, Key: key}, "")
			}
			w.step(Event{Kind: Keyed, Channel: 1, Key: 3}, ErrKeyMessage)
		}},
		{"the peer takes back a pool whose key has not come", 0, nil, func(w *walk) {
			r := w.lendKeyless(4, "")
			w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{4}}, "")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 7}, "stop 4 for good")
			w.step(Event{Did: Stop, Remote: r, Last: true}, "reply to 7, 1 of 4")
			if r.RKey() != 7 {
				w.t.Errorf("key %d is to be invalidated", r.RKey())
			}
		}},
		{"a pool whose key has not come is not given back", 0, nil, func(w *walk) {
			w.now = w.now.Add(time.Hour)
			w.lend(1, 2048, true)
			w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
			w.lendKeyless(2, "")
			for range 5 {
				w.step(Event{Kind: Tick}, "")
			}
			w.step(Event{Kind: Ending}, "stop 1")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 7}, "use 2")
			w.step(Event{Did: Stop, Remote: w.pools.Remote(1)}, fmt.Sprintf("request %#x as 1", 1|uint32(giveBack)))
			w.step(Event{Kind: FlushReply, Transaction: 1}, "invalidate 1; stop 2")
		}},
		{"keys that come before their pools are in order", 0, nil, func(w *walk) {
			w.step(Event{Kind: Keyed, Channel: 1, Key: 7}, "")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 8}, "")
			a, b := w.lendKeyless(4, "use 4"), w.lendKeyless(5, "use 5")
			if a.RKey() != 7 || b.RKey() != 8 {
				w.t.Errorf("keys %d and %d", a.RKey(), b.RKey())
			}
		}},
		{"at the end a pool goes when its key has come", 0, nil, func(w *walk) {
			w.lendKeyless(4, "")
			w.step(Event{Kind: Ending}, "")
			w.step(Event{Kind: Keyed, Channel: 1, Key: 7}, "use 4; stop 4")
		}},
		{"one-touch pools without keys", 0, func(c *Config) { c.PeerOneTouch = true }, func(w *walk) {
			lent := protocol.Pool{Ref: 1, Elements: 2, Context: protocol.PoolContext(1, 0)}
			w.step(Event{Kind: Lent, Remote: NewRemote(lent, LatestFirst)}, ErrKeys)
			keys, err := protocol.DecodePoolKeys(protocol.AppendPoolKeys(nil, 1, 0, []uint32{5, 6}))
			if err != nil {
				w.t.Fatal(err)
			}
			if err := w.pools.HearKeys(keys); err != nil {
				w.t.Fatal(err)
			}
			r := NewRemote(lent, LatestFirst)
			w.step(Event{Kind: Lent, Remote: r}, "use 1")
			if e, _ := r.Take(); r.Key(e) != 5+uint32(e) {
				w.t.Errorf("element %d has key %d", e, r.Key(e))
			}
		}},
		{"keys of a one-touch pool in parts", 0, func(c *Config) { c.PeerOneTouch = true }, func(w *walk) {
			for i, c := range []struct {
				pool, first, key uint32
				err              error
			}{
				{1, 0, 5, nil}, {1, 2, 7, errKeys}, {2, 1, 8, errKeys}, {1, 1, 6, nil}, {1, 1, 9, errKeys},
			} {
				keys, err := protocol.DecodePoolKeys(protocol.AppendPoolKeys(nil, c.pool, c.first, []uint32{c.key}))
				if err != nil {
					w.t.Fatal(err)
				}
				if err := w.pools.HearKeys(keys); !errors.Is(err, c.err) {
					w.t.Errorf("part %d: %v, want %v", i, err, c.err)
				}
			}
			lent := protocol.Pool{Ref: 1, Elements: 2, Context: protocol.PoolContext(1, 0)}
			r := NewRemote(lent, LatestFirst)
			w.step(Event{Kind: Lent, Remote: r}, "use 1")
			if r.Key(0) != 5 || r.Key(1) != 6 {
				w.t.Errorf("keys %d and %d", r.Key(0), r.Key(1))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := config()
			if tt.change != nil {
				tt.change(&cfg)
			}
			tt.walk(&walk{t: t, pools: NewPools(cfg), guards: tt.guards})
		})
	}
}
