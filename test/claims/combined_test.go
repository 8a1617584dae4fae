package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// These tests post the registration of memory and the message with its tag in one request. The peer
// ends the registration with a message. See source document 004, claims 1, 10 to 12 and 21 to 23.

// combined returns a configuration in which one post binds a window and sends its key, and the peer
// invalidates the window. idle is the time after which an unused pool is given up.
func combined(idle time.Duration) messaging.Config {
	c := behindWindows(idle, true)
	c.KeySend = true
	return c
}

// keyOf is a key that a side has sent after the bind of a window.
type keyOf struct {
	bind, send entry
	pool       lentPool
}

// keyless returns the pools that a side has lent without their keys.
func (o *observed) keyless(side string) (out []lentPool) {
	o.t.Helper()
	for _, l := range o.lent(side) {
		if l.KeyFollows() {
			out = append(out, l)
		}
	}
	return out
}

// keysSent returns the keys that a side has sent, each with its pool. The keys of a data channel
// are sent in the order of its pools.
func (o *observed) keysSent(side string) []keyOf {
	o.t.Helper()
	lent := o.keyless(side)
	var keys []keyOf
	binds := o.pick(side, bound)
	next := make(map[int]int) // by channel: number of pools that have their key
	for _, e := range o.pick(side, sendPosted) {
		if e.send.Op != fabric.OpSendImm {
			continue
		}
		k := keyOf{send: e}
		if i := slices.IndexFunc(binds, func(b entry) bool { return b.rkey == e.send.Imm && b.batch == e.batch }); i >= 0 {
			k.bind = binds[i]
		}
		ch := o.channel(side, e.qpn)
		of := filter(lent, func(l lentPool) bool { return int(l.Channel()) == ch })
		if next[ch] < len(of) {
			k.pool = of[next[ch]]
		}
		next[ch]++
		keys = append(keys, k)
	}
	return keys
}

func TestCombinedRegisterAndSend(t *testing.T)     { inMemory(t, combinedRegisterAndSend) }
func TestRDMACombinedRegisterAndSend(t *testing.T) { onSoftRoCE(t, combinedRegisterAndSend) }

// One post contains the bind of a pool's window, which asks for no completion, and then the SEND
// with its key. No other message has the key. The pool is offered in the meantime. The peer writes
// with the key after the key has arrived, and at the end sends the message that invalidates the
// key. This holds for all pools that are lent on request.
func combinedRegisterAndSend(t *testing.T, on fabricOf) {
	for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate} {
		t.Run(string(mode), func(t *testing.T) {
			cfg := combined(soonIdle)
			cfg.Mode = mode
			p := newPair(t, on, cfg)
			stop := p.discard(unitSide)
			defer stop()
			receives := p.receives(hostSide)
			for round := range 2 {
				p.request(round)
				p.keyVoid(p.nextKey(round), true)
			}
			p.until(func() error {
				if n := p.receives(hostSide); n != receives {
					return fmt.Errorf("%d receives wait on the data channel, %d before any key has come", n, receives)
				}
				return nil
			})
			ctx, f := p.alive(), p.newFrame(5000)
			p.until(func() error {
				if slices.ContainsFunc(p.keysSent(unitSide), func(k keyOf) bool {
					_, _, use := p.firstUse(k.bind.rkey)
					return !use.IsZero()
				}) {
					return nil
				}
				if err := p.endpoints[hostSide].wires[0].Send(ctx, f); err != nil {
					return err
				}
				return errors.New("nothing was written with a key that was sent")
			})
			for _, side := range sides {
				p.oneKeyEach(side)
				completed := map[uint64]bool{}
				for _, e := range p.pick(side, sendDone) {
					completed[e.done.ID] = true
				}
				for _, k := range p.keysSent(side) {
					if completed[k.send.send.ID-1] {
						t.Errorf("%s: the bind under key %#x has a completion of its own", side, k.bind.rkey)
					}
				}
			}
			// Each write of the host uses a key that had arrived on the channel of the write.
			first := p.lent(unitSide)[0]
			came := filter(p.pick(hostSide, recvDone), func(e entry) bool {
				return e.done.Op == fabric.OpRecv && e.done.Flags == fabric.WithImm && e.done.Len == 0
			})
			for _, e := range p.pick(hostSide, sendPosted) {
				if e.send.Op != fabric.OpWrite && e.send.Op != fabric.OpWriteImm || e.send.Len == 0 ||
					e.send.RKey == first.RKey {
					continue
				}
				if !slices.ContainsFunc(came, func(c entry) bool {
					return c.done.Imm == e.send.RKey && c.qpn == e.qpn && c.at < e.at
				}) {
					t.Fatalf("a write with key %#x, which has not come on that channel", e.send.RKey)
				}
			}
			for _, side := range sides {
				if err := p.endpoints[side].conn.Err(); err != nil {
					t.Errorf("%s: %v", side, err)
				}
			}
		})
	}
}

// receives returns the number of receives that wait on a side's data channels.
func (o *observed) receives(side string) (n int) {
	o.t.Helper()
	for _, e := range o.pick(side, recvPosted) {
		if o.channel(side, e.qpn) > 0 {
			n++
		}
	}
	for _, e := range o.pick(side, recvDone) {
		if o.channel(side, e.qpn) > 0 {
			n--
		}
	}
	return n
}

// discard receives and discards the frames from a side's queue until stop is called.
func (p *pair) discard(side string) (stop func()) {
	ctx, cancel := context.WithCancel(p.alive())
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1<<17)
		for ctx.Err() == nil {
			_, _ = p.endpoints[side].wires[0].Receive(ctx, buf)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// request makes the host request the n-th additional pool, counted from 0: it sends frames that fit
// no other pool until the I/O unit has lent that pool.
func (p *pair) request(n int) {
	p.t.Helper()
	ctx, f := p.alive(), p.newFrame(5000)
	p.until(func() error {
		if len(p.keyless(unitSide)) > n {
			return nil
		}
		if err := p.endpoints[hostSide].wires[0].Send(ctx, f); err != nil {
			return err
		}
		return errors.New("no other pool is lent")
	})
}

// nextKey waits for the n-th key that the I/O unit sends, counted from 0, and returns it.
func (p *pair) nextKey(n int) uint32 {
	p.t.Helper()
	p.until(func() error {
		if keys := p.keysSent(unitSide); len(keys) <= n {
			return fmt.Errorf("%d keys were sent", len(keys))
		}
		return nil
	})
	return p.keysSent(unitSide)[n].send.send.Imm
}

// oneKeyEach checks that a side has lent each pool except the first with one post of a bind and a
// message, and has sent the key nowhere else.
func (p *pair) oneKeyEach(side string) {
	p.t.Helper()
	keys, keyless, lent := p.keysSent(side), p.keyless(side), p.lent(side)
	if len(keys) != len(keyless) || len(lent) != 1+len(keyless) {
		p.t.Errorf("%s: %d keys were sent for %d of %d pools", side, len(keys), len(keyless), len(lent))
	}
	if n := len(p.pick(side, bound)); n != len(lent) {
		p.t.Errorf("%s: %d windows were bound for %d pools", side, n, len(lent))
	}
	for _, k := range keys {
		posts := filter(p.pick(side, bound, sendPosted), func(e entry) bool { return e.batch == k.send.batch })
		if len(posts) != 2 || posts[0].what != bound || posts[1].what != sendPosted {
			p.t.Errorf("%s: the post with key %#x has %d requests", side, k.send.send.Imm, len(posts))
			continue
		}
		l := k.pool
		if !l.KeyFollows() || l.RKey != 0 || l.Addr != k.bind.addr || int(l.Bytes()) != k.bind.length ||
			p.channel(side, k.bind.qpn) != int(l.Channel()) || k.bind.qpn != k.send.qpn {
			p.t.Errorf("%s: pool %+v, bound as %+v, its key sent as %+v", side, l, k.bind, k.send)
		}
		if k.bind.access != fabric.RemoteWrite {
			p.t.Errorf("%s: key %#x grants %#x", side, k.bind.rkey, k.bind.access)
		}
	}
}

// unbindable returns a fabric whose device of the I/O unit refuses each bind to a region that is
// registered while from is true. Such regions are registered without the right fabric.WindowBind,
// which the I/O unit does not know.
func unbindable(on fabricOf, from *atomic.Bool) fabricOf {
	open := on.open
	on.open = func(t testing.TB) (fabric.Device, fabric.Device) {
		h, u := open(t)
		return h, withoutBind{u, from}
	}
	return on
}

type withoutBind struct {
	fabric.Device
	from *atomic.Bool
}

type withoutBindDomain struct {
	fabric.Domain
	from *atomic.Bool
}

func (d withoutBind) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return withoutBindDomain{dom, d.from}, err
}

func (d withoutBindDomain) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	if d.from.Load() {
		access &^= fabric.WindowBind
	}
	return d.Domain.Register(mem, access)
}

func TestCombinedBindFails(t *testing.T)     { inMemory(t, combinedBindFails) }
func TestRDMACombinedBindFails(t *testing.T) { onSoftRoCE(t, combinedBindFails) }

// The device refuses a bind. The message after the bind is flushed, so that the peer gets no key
// and does not write to the window. The session ends with an error that names the reason, and
// releases everything.
func combinedBindFails(t *testing.T, on fabricOf) {
	var from atomic.Bool
	var device fabric.Device
	open := on.open
	on.open = func(t testing.TB) (h, u fabric.Device) { h, device = open(t); return h, device }
	p := newPair(t, unbindable(on, &from), combined(time.Hour))
	from.Store(true)
	h, u := p.endpoints[hostSide].conn, p.endpoints[unitSide].conn
	if err := p.endpoints[hostSide].wires[0].Send(p.alive(), p.newFrame(5000)); err != nil { // it fits no pool
		t.Fatal(err)
	}
	select {
	case <-u.Done():
	case <-deadline(t).Done():
		t.Fatal("the session goes on")
	}
	err, status := u.Err(), badBind(t, device)
	if !errors.Is(err, &fabric.WCError{Status: status}) || status == fabric.StatusMWBindErr &&
		!strings.HasPrefix(err.Error(), "bind a memory window on data channel 1") {
		t.Errorf("the session has ended: %v", err)
	}
	if err := u.Close(); err != nil {
		t.Error(err)
	}
	if n := h.Stats().Channels[0].Remote.Elements; n > 4 {
		t.Errorf("the host may write to %d elements", n)
	}
	if len(p.keysSent(unitSide)) == 0 {
		t.Error("no key was posted")
	}
	for _, e := range p.pick(hostSide, recvDone) {
		if e.done.Err() == nil && e.done.Flags == fabric.WithImm && e.done.Op == fabric.OpRecv {
			t.Errorf("a key came: %+v", e.done)
		}
	}
}

func BenchmarkPoolOnRequest(b *testing.B) {
	benchPoolOnRequest(b, fabricOf{open: distant, plain: true})
}
func BenchmarkRDMAPoolOnRequest(b *testing.B) {
	benchPoolOnRequest(b, fabricOf{open: softRoCE, plain: true})
}

// distant opens two devices on a fabric in memory on which every message takes a millisecond.
func distant(t testing.TB) (fabric.Device, fabric.Device) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	h, u := n.Device("host"), n.Device("unit")
	n.Delay("unit", time.Millisecond)
	return h, u
}

// benchPoolOnRequest has a busy sender request b.N pools, alternately with key and bind in one post
// and in two posts. It measures the time until the first write into the pool is posted: from the
// request, and from the bind, where the two variants differ. The lender is idle, or sends as well,
// so that other send requests precede the bind.
func benchPoolOnRequest(b *testing.B, on fabricOf) {
	for _, load := range []string{"idle", "busy"} {
		b.Run(load, func(b *testing.B) { benchLoaded(b, on, load == "busy") })
	}
}

func benchLoaded(b *testing.B, on fabricOf, busy bool) {
	const each = 2 // pools per session
	type times struct{ request, bind []time.Duration }
	took := map[bool]*times{false: {}, true: {}}
	for len(took[true].request) < b.N || len(took[false].request) < b.N {
		for _, one := range []bool{false, true} {
			host, unit := combined(soonIdle), combined(soonIdle)
			host.KeySend, unit.KeySend = one, one
			host.Pools[0].Elements, unit.Pools[0].Elements = 64, 2 // two elements soon do not suffice
			p := newEndpoints(b, on, map[string]messaging.Config{hostSide: host, unitSide: unit})
			p.connect()
			p.start()
			stop := func() {}
			if busy {
				stop = p.keepBusy(unitSide)
			}
			for round := range each {
				p.flood(0, func() bool { return len(p.lent(unitSide)) > 1+round })
				key := p.lent(unitSide)[1+round].RKey
				if one {
					key = p.nextKey(round)
				}
				p.keyVoid(key, true)
				if request, bind, use := p.firstUse(key); !use.IsZero() {
					took[one].request = append(took[one].request, use.Sub(request))
					took[one].bind = append(took[one].bind, use.Sub(bind))
				}
			}
			stop()
			for _, side := range sides {
				if err := p.endpoints[side].conn.Close(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	report := func(d []time.Duration, what string) {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds()), "µs-"+what)
	}
	for one, name := range map[bool]string{false: "two-posts", true: "one-post"} {
		report(took[one].request, "from-request/"+name)
		report(took[one].bind, "from-bind/"+name)
	}
	b.ReportMetric(0, "ns/op") // most of it is waiting until the pool is idle
}

// keepBusy has a side send frames until stop is called.
func (p *pair) keepBusy(side string) (stop func()) {
	ctx, cancel := context.WithCancel(p.alive())
	var wg sync.WaitGroup
	f, stopped := p.newFrame(1500), p.discard(other(side))
	wg.Go(func() {
		for p.endpoints[side].wires[0].Send(ctx, f) == nil {
			continue
		}
	})
	return func() { cancel(); wg.Wait(); stopped() }
}

// firstUse returns for the I/O unit's pool with this key when the host requested the pool, when its
// window was bound, and when the first write to the pool was posted. use is zero if there was no
// write, which happens if the host got credits of other pools in the meantime.
func (p *pair) firstUse(key uint32) (request, bind, use time.Time) {
	p.t.Helper()
	for _, e := range p.pick(unitSide, bound) {
		if e.rkey == key {
			bind = e.when
		}
	}
	for _, m := range of(p.posted(hostSide), protocol.FuncBufferRecvPoolGet) {
		if m.when.Before(bind) {
			request = m.when
		}
	}
	for _, e := range p.pick(hostSide, sendPosted) {
		if e.send.RKey == key && e.send.Len > 0 {
			return request, bind, e.when
		}
	}
	return request, bind, use
}
