package iounit

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/pairs"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// eligible returns a host that may have direct connections. It has no session.
func eligible(u *Unit, n byte) *directed {
	mac := protocol.MAC{2, 0, 0, 0, 9, n}
	h := &host{
		bound: true, peer: func() session.Identity { return session.Identity{Name: fmt.Sprintf("h%d", n)} },
		hello: session.Hello{Name: fmt.Sprintf("h%d", n), Modes: protocol.Modes(), Pools: 4}, cancel: func(error) {},
	}
	x := &directed{host: h, willing: true, platform: protocol.Platform(n), queue: make(chan *session.Direct, 100),
		facts: pairs.Facts{Name: h.hello.Name, Platform: protocol.Platform(n), Pools: 4}}
	u.direct.enter(x)
	u.direct.established(h, protocol.ModeImm)
	u.direct.changed(h, portFacts{macs: []protocol.MAC{mac}, mtu: 1500, up: true, link: true})
	return x
}

// queueOf returns a queue of a host, with the sampler of the frames that it sends.
func queueOf(flows guard.Sampler) messaging.Port {
	return ruled(&queue{Quiet: true}, flows, &guard.Rules{MAC: own, Host: hostWith("all"), MTU: protocol.MaxMTU})
}

// ruled returns a port with rules in front of a queue.
func ruled(q *queue, flows guard.Sampler, r *guard.Rules) messaging.Port {
	g := guard.New(guard.Options{Queues: []lan.Queue{q}, Taken: new(atomic.Pointer[protocol.MACSet]), Flows: flows})
	g.SetRules(r)
	return g.Ports()[0]
}

func (x *directed) mac() protocol.MAC { return x.port.macs[0] }

// TestSampling has a host send to two others, in several patterns. The sampled counts must be about
// as high as the numbers of packets.
func TestSampling(t *testing.T) {
	for name, tt := range map[string]struct {
		after  int
		frames func(b, c protocol.MAC) [][]byte
		b, c   uint64 // number of packets to each host in one batch
	}{
		"to one": {1000, func(b, _ protocol.MAC) [][]byte { return [][]byte{frame(b, own, 100)} }, 1, 0},
		"in turn": {1000, func(b, c protocol.MAC) [][]byte {
			return [][]byte{frame(b, own, 100), frame(c, own, 100)}
		}, 1, 1},
		"in bursts": {1000, func(b, c protocol.MAC) [][]byte {
			return append(slices.Repeat([][]byte{frame(b, own, 100)}, 15), frame(c, own, 100))
		}, 15, 1},
		"super-frames": {1000, func(b, _ protocol.MAC) [][]byte { return [][]byte{superFrameTo(b)} }, 42, 0},
		"all": {0, func(b, c protocol.MAC) [][]byte {
			return [][]byte{frame(b, own, 100), frame(c, own, 100), frame(c, own, 100)}
		}, 1, 2},
		"to nobody here": {0, func(_, _ protocol.MAC) [][]byte {
			return [][]byte{frame(broadcast, own, 100), frame(other, own, 100)}
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnit(t, Config{Direct: true, DirectAfter: tt.after})
			a, b, c := eligible(u, 1), eligible(u, 2), eligible(u, 3)
			p := queueOf(u.direct.sampler(a.host))
			frames := tt.frames(b.mac(), c.mac())
			ops := make([]vnet.WriteOp, len(frames))
			const times = 20_000
			for range times {
				for i, f := range frames {
					ops[i] = vnet.WriteOp{Head: f}
				}
				if p.WriteFrames(ops) != len(ops) || ops[0].Err != nil {
					t.Fatal(ops[0].Err)
				}
			}
			for x, n := range map[*directed]uint64{b: tt.b, c: tt.c} {
				want, slack := n*times, uint64(0)
				if tt.after > 0 {
					slack = want / 8
				}
				if got := a.seen.Take(x.seen.Slot); got < want-slack || got > want+slack {
					t.Errorf("%d packets to %s, of %d", got, x.facts.Name, want)
				}
			}
			if a.seen.Take(a.seen.Slot) != 0 {
				t.Error("packets to itself")
			}
		})
	}
}

// superFrameTo returns a super-frame of 42 packets.
func superFrameTo(to protocol.MAC) []byte {
	f := superFrame(60000, 1448)
	copy(f[vnet.HdrLen:], to[:])
	return f
}

// TestNobodyIsSampled checks that no frames are sampled while there are no two hosts that may have a
// direct connection, and otherwise those to all addresses of such hosts, and no others.
func TestNobodyIsSampled(t *testing.T) {
	u := newUnit(t, Config{Direct: true})
	sampled := func(from *directed, to protocol.MAC, of *directed) bool {
		ops := []vnet.WriteOp{{Head: frame(to, own, 100)}}
		if queueOf(u.direct.sampler(from.host)).WriteFrames(ops) != 1 || ops[0].Err != nil {
			t.Fatal(ops[0].Err)
		}
		return from.seen.Take(of.seen.Slot) > 0
	}
	a, b := eligible(u, 1), eligible(u, 2)
	if !sampled(a, b.mac(), b) || !sampled(b, a.mac(), a) || sampled(a, other, b) {
		t.Error("not the frames between two hosts are sampled")
	}
	old := b.mac()
	u.direct.changed(b.host, portFacts{macs: []protocol.MAC{old}, mtu: 1500, up: true, link: true, promisc: true})
	if sampled(a, old, b) || sampled(b, a.mac(), a) {
		t.Error("frames are sampled while one host is promiscuous")
	}
	u.direct.changed(b.host, portFacts{macs: []protocol.MAC{old}, mtu: 1500, link: true})
	if sampled(a, old, b) || sampled(b, a.mac(), a) {
		t.Error("frames are sampled while only one host may have a direct connection")
	}
	u.direct.changed(b.host, portFacts{macs: []protocol.MAC{other}, mtu: 1500, up: true, link: true})
	if !sampled(a, other, b) || sampled(a, old, b) {
		t.Error("another address of a host is sampled")
	}
	u.direct.leave(a.host)
	if sampled(b, a.mac(), a) {
		t.Error("frames to one who has left are sampled")
	}
	u.direct.leave(a.host)
	for n := range byte(200) { // more than there are slots at first
		eligible(u, 10+n)
	}
	for _, x := range u.direct.sessions {
		if x != b && (!sampled(b, x.mac(), x) || !sampled(x, other, b)) {
			t.Errorf("frames between b and %s are not sampled", x.facts.Name)
		}
	}
}

// TestSamplingAllocates counts the allocations for sampled frames.
func TestSamplingAllocates(t *testing.T) {
	u := newUnit(t, Config{Direct: true})
	a, b := eligible(u, 1), eligible(u, 2)
	p := queueOf(u.direct.sampler(a.host))
	ops := slices.Repeat([]vnet.WriteOp{{Head: frame(b.mac(), own, 100)}}, 64)
	if n := testing.AllocsPerRun(100, func() {
		if p.WriteFrames(ops) != len(ops) {
			t.Error("held back")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestFlowsAreWatched has a flow of frames, a pause and another flow. The hosts must soon get an
// offer, and while there is no flow, flows must not be watched.
func TestFlowsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUnit(t, Config{Direct: true, DirectAfter: 1000})
		a, b := eligible(u, 1), eligible(u, 2)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			u.direct.run(ctx)
		}()
		p := queueOf(u.direct.sampler(a.host))
		flow := func(perSecond int, d time.Duration) {
			for range d / time.Millisecond {
				ops := slices.Repeat([]vnet.WriteOp{{Head: frame(b.mac(), own, 100)}}, perSecond/1000)
				p.WriteFrames(ops)
				time.Sleep(time.Millisecond)
			}
		}
		for round := range 2 {
			flow(4000, 250*time.Millisecond)
			synctest.Wait()
			if len(a.queue) != 1 || len(b.queue) != 1 {
				t.Fatalf("round %d: %d and %d messages", round, len(a.queue), len(b.queue))
			}
			offer := <-a.queue
			if <-b.queue; offer.Step != session.DirectOffer {
				t.Errorf("%+v", offer)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if u.direct.flows.Watched.Load() {
				t.Error("somebody still looks")
			}
			for _, x := range []*directed{a, b} {
				u.direct.heard(x, &session.Direct{Step: session.DirectEnd, ID: offer.ID})
			}
			for _, x := range []*directed{a, b} {
				u.direct.heard(x, &session.Direct{Step: session.DirectEnded, ID: offer.ID})
			}
			time.Sleep(time.Minute)
			for _, x := range []*directed{a, b} {
				for len(x.queue) > 0 {
					<-x.queue
				}
			}
		}
		cancel()
		<-done
	})
}

// TestUnread has a host that does not read messages. Its session must end, and sending must not
// wait.
func TestUnread(t *testing.T) {
	u := newUnit(t, Config{Direct: true})
	a := eligible(u, 1)
	var why error
	a.host.cancel = func(err error) { why = err }
	for id := range session.DirectID(200) {
		u.direct.heard(a, &session.Direct{Step: session.DirectHeld, ID: id + 1, Platform: 7})
	}
	if why == nil || ending(why) != "gone" {
		t.Errorf("%v", why)
	}
}

// TestWhyNotDirect checks the reasons why a host may not have direct connections: those of its
// policy, its port and its session.
func TestWhyNotDirect(t *testing.T) {
	u := newUnit(t, Config{Direct: true})
	x := eligible(u, 1)
	for text, want := range map[string]string{
		"": "", "default: {direct: no}": "policy", "default: {direct: [h2]}": "", "default: {max-tx-rate: 1G}": "rate",
		"default: {max-rx-rate: 1G}": "rate", "default: {max-tx-pps: 1k}": "rate", "default: {max-rx-pps: 1k}": "rate",
		"default: {max-tx-group-pps: 1k}": "", "default: {ips: 192.0.2.1}": "ips",
		"default: {nested-tags: no}": "nested-tags",
		"default: {untagged: no}":    "untagged",
		"default: {share: x}":        "share", "hosts: {h1: {direct: no}}": "policy", "hosts: {h2: {direct: no}}": "",
	} {
		p, err := policy.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		u.direct.govern(x.host, p)
		if got := u.direct.whyNot(x.host); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	u.direct.govern(x.host, policy.Default())
	up := portFacts{macs: []protocol.MAC{own}, mtu: 1500, up: true, link: true}
	for want, change := range map[string]func(){
		"down":        func() { p := up; p.up = false; u.direct.changed(x.host, p) },
		"link-down":   func() { p := up; p.link = false; u.direct.changed(x.host, p) },
		"promiscuous": func() { p := up; p.promisc = true; u.direct.changed(x.host, p) },
	} {
		change()
		if got := u.direct.whyNot(x.host); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for want, change := range map[pairs.Cause]func(*directed){
		pairs.Unwilling: func(x *directed) { x.willing = false }, pairs.Unbound: func(x *directed) { x.host.bound = false },
		pairs.Platform: func(x *directed) { x.platform = 0 }, pairs.Opening: func(x *directed) { x.open = false },
	} {
		u := newUnit(t, Config{Direct: true})
		x := eligible(u, 1)
		if change(x); x.why() != want {
			t.Errorf("%q, want %q", x.why(), want)
		}
	}
	if got := newUnit(t, Config{}).direct.whyNot(x.host); got != "unwilling" {
		t.Errorf("without direct connections: %q", got)
	}
}

// BenchmarkSampling measures the cost of a frame to the LAN if hosts may have direct connections, so
// that the I/O unit looks up the destinations of frames, and if they may not. There are 64 hosts, and
// frames to one of them.
func BenchmarkSampling(b *testing.B) {
	for _, direct := range []bool{false, true} {
		b.Run(fmt.Sprintf("direct=%t", direct), func(b *testing.B) {
			u := newUnit(b, Config{Direct: true, DirectAfter: 1000})
			var all []*directed
			for n := range byte(64) {
				all = append(all, eligible(u, n))
			}
			flows := u.direct.sampler(all[0].host)
			if !direct {
				flows = guard.Sampler{}
			}
			p := queueOf(flows)
			ops := slices.Repeat([]vnet.WriteOp{{Head: frame(all[1].mac(), own, 100)}}, 64)
			for b.Loop() {
				p.WriteFrames(ops)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/frame")
		})
	}
}

// TestSlotsAreUsedAgain has many hosts enter and leave. The number of slots for counting must not
// grow.
func TestSlotsAreUsedAgain(t *testing.T) {
	u := newUnit(t, Config{Direct: true})
	most := len(u.direct.slots)
	for range most + 3 {
		x := eligible(u, 1)
		u.direct.leave(x.host)
	}
	if n := len(u.direct.slots); n != most || slices.Contains(u.direct.slots, true) {
		t.Errorf("%d slots, %d before", n, most)
	}
}

// TestFactsOfPolicy checks that the facts about a host have only the modes that the policy permits,
// and only names that the host has proved.
func TestFactsOfPolicy(t *testing.T) {
	u := newUnit(t, Config{Direct: true})
	x := eligible(u, 1)
	p, err := policy.Parse("policy.yaml", []byte("default: {modes: [send, imm]}"))
	if err != nil {
		t.Fatal(err)
	}
	u.direct.govern(x.host, p)
	modes := slices.Clone(x.facts.Modes)
	if slices.Sort(modes); !slices.Equal(modes, []protocol.Mode{protocol.ModeImm, protocol.ModeSend}) {
		t.Errorf("modes %v", modes)
	}
	if !slices.Contains(x.facts.Known, "h1") {
		t.Errorf("known as %q", x.facts.Known)
	}
	x.host.peer = func() session.Identity { return session.Identity{Name: "h1", Insecure: true} }
	u.direct.govern(x.host, p)
	if len(x.facts.Known) > 0 {
		t.Errorf("known as %q without a key", x.facts.Known)
	}
}
