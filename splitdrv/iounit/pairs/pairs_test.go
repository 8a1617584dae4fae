package pairs

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// TestOffer checks the offers to two hosts, and what each host is told about the answer
// of the other host.
func TestOffer(t *testing.T) {
	for name, platform := range map[string]protocol.Platform{"first by number": 1001, "first by platform": 2001} {
		t.Run(name, func(t *testing.T) { offer(t, platform) })
	}
}

// offer checks the offers to host 1, with this platform, and host 2, with platform 1002.
func offer(t *testing.T, platform protocol.Platform) {
	f := newFixture(t)
	vlans := protocol.VLANSet{}
	vlans.Add(5)
	f.set(2, func(x *Facts) {
		x.MACs = append(x.MACs, protocol.MAC{2, 2, 2, 2, 2, 2})
		x.VLANs, x.Pools, x.Features = vlans, 2, []string{protocol.FeatureOneTouch, protocol.FeatureWindow}
	})
	f.set(1, func(x *Facts) { x.Platform = platform }).flows(2, 1, 1000)
	platforms := map[Host]protocol.Platform{1: platform, 2: facts(2).Platform}
	offers := f.said
	if f.said = nil; len(offers) != 2 {
		t.Fatalf("said %+v", offers)
	}
	if first := offers[0].To; platforms[first] > platforms[3-first] {
		t.Errorf("host %d has the first place", first)
	}
	a, b := offers[0].Message, offers[1].Message
	if !a.First || b.First || *a.Secret != *b.Secret || a.ID != b.ID {
		t.Errorf("%+v, %+v", a, b)
	}
	for _, o := range offers {
		d, own, other := o.Message, o.To, 3-o.To
		if p := d.Peer; p.Platform != platforms[other] || p.Name != facts(other).Shown || p.VLANs != vlans ||
			p.MACs[0] != facts(other).MACs[0] || p.Own[0] != facts(own).MACs[0] || len(p.MACs) != int(other) ||
			len(p.Own) != int(own) {
			t.Errorf("host %d is told %+v", own, p)
		}
		if d.Mode != protocol.ModeImm || d.MTU != 1500 || d.Pools != 2 ||
			!slices.Equal(d.Features, []string{protocol.FeatureWindow}) {
			t.Errorf("host %d is offered %+v", own, d)
		}
	}
	f.step(2, session.DirectAccept, 1).step(1, session.DirectAccept, 1)
	for _, act := range f.said {
		if m := act.Message; m.Step != session.DirectConnect || m.Channels[0].QPN != uint32(10*(3-act.To)) ||
			m.ControlReceives == 0 {
			t.Errorf("host %d connects to %+v", act.To, m)
		}
	}
}

// TestMode checks the mode and the number of pools that are offered to hosts with different modes.
func TestMode(t *testing.T) {
	imm, indicate, send := protocol.ModeImm, protocol.ModeIndicate, protocol.ModeSend
	for _, tt := range []struct {
		a, b       protocol.Mode
		modes      []protocol.Mode
		want       protocol.Mode
		pools      int
		notCommon  bool
		otherModes []protocol.Mode
	}{
		{a: send, b: send, modes: []protocol.Mode{imm, send}, want: send, pools: 1},
		{a: send, b: indicate, modes: protocol.Modes(), want: imm, pools: 4},
		{a: send, b: indicate, modes: []protocol.Mode{indicate, send}, want: indicate, pools: 4},
		{a: send, b: indicate, modes: []protocol.Mode{send}, otherModes: []protocol.Mode{indicate}, notCommon: true},
	} {
		f := newFixture(t)
		f.set(1, func(x *Facts) { x.Mode, x.Modes = tt.a, tt.modes })
		f.set(2, func(x *Facts) {
			x.Mode, x.Modes = tt.b, tt.modes
			if tt.otherModes != nil {
				x.Modes = tt.otherModes
			}
		})
		f.flows(1, 2, 1000)
		if tt.notCommon {
			f.is()
			continue
		}
		if d := f.is("1 offer", "2 offer")[0].Message; d.Mode != tt.want || d.Pools != tt.pools {
			t.Errorf("%s and %s: %s, %d pools", tt.a, tt.b, d.Mode, d.Pools)
		}
	}
}

// TestWithdrawn changes a fact about a host in each step of the host's connection. It expects the
// end of the connection at once, and no other connection until the fact is as before. If the host
// has changed it, the two hosts rest before that; if the policy has, they do not.
func TestWithdrawn(t *testing.T) {
	for cause, change := range map[Cause]func(*Facts){
		Rate: func(x *Facts) { x.No = Rate }, Policy: func(x *Facts) { x.Only = []string{"other"} },
		Promiscuous: func(x *Facts) { x.Promisc = true }, MTU: func(x *Facts) { x.MTU = 1400 },
		Offloads: func(x *Facts) { x.Offloads = 0 }, Shared: func(x *Facts) { x.MACs = append(x.MACs, facts(2).MACs[0]) },
		Mode: func(x *Facts) { x.Mode, x.Modes = protocol.ModeSend, []protocol.Mode{protocol.ModeSend} },
	} {
		steps := map[string]func(*fixture) *fixture{
			"offered": (*fixture).offered, "connecting": (*fixture).connecting, "started": (*fixture).started}
		for name, to := range steps {
			t.Run(string(cause)+" "+name, func(t *testing.T) {
				f := to(newFixture(t))
				b := func(x *Facts) { x.Modes = []protocol.Mode{protocol.ModeImm} }
				if cause == Mode {
					f.set(2, b).is()
				}
				f.set(1, change).is("1 end "+string(cause), "2 end "+string(cause))
				f.step(1, session.DirectEnded, 1).step(2, session.DirectEnded, 1).is("2 ended", "1 ended")
				f.none()
				f.flows(1, 2, 1000).is()
				if l := f.p.List(); len(l) != 1 || l[0].Why != cause || f.p.Counts().Ends[cause] != 1 {
					t.Errorf("%+v, %+v", l, f.p.Counts())
				}
				if f.set(1); cause != Rate && cause != Policy && cause != Shared {
					f.flows(1, 2, 1000).is()
					if l := f.p.List(); len(l) != 1 || l[0].Why != Resting {
						t.Errorf("%+v", l)
					}
					f.after(firstRest)
				}
				f.flows(1, 2, 1000).is("1 offer", "2 offer")
			})
		}
	}
}

// TestOfferedAgain changes a fact that the offer contains, some time after the start. It expects
// the end of the connection, and then a new offer.
func TestOfferedAgain(t *testing.T) {
	for cause, change := range map[Cause]func(*Facts){
		Address: func(x *Facts) { x.MACs = []protocol.MAC{{2, 9, 9, 9, 9, 9}} },
		VLANs:   func(x *Facts) { x.VLANs = protocol.VLANSet{} }, Name: func(x *Facts) { x.Shown = "gamma" },
		Mode: func(x *Facts) { x.Mode, x.Modes = protocol.ModeIndicate, []protocol.Mode{protocol.ModeIndicate} },
	} {
		f := newFixture(t).started().after(least)
		f.set(2, change).is("1 end "+string(cause), "2 end "+string(cause))
		f.flows(1, 2, 1000).is() // the first connection has not ended yet
		f.step(1, session.DirectEnded, 1).step(2, session.DirectEnded, 1).is("2 ended", "1 ended")
		f.flows(1, 2, 1000).is("1 offer", "2 offer")
	}
	f := newFixture(t).started()
	f.set(2).set(2, func(x *Facts) { x.Known = []string{"else"} }).is() // a fact that does not matter for the connection
}

// TestOnlyWhenBothPermit checks that the policies of both hosts must permit a connection.
func TestOnlyWhenBothPermit(t *testing.T) {
	for _, tt := range []struct {
		a, b []string
		want bool
	}{
		{nil, nil, true}, {[]string{"h2"}, []string{"x", "h1"}, true}, {[]string{"h2"}, []string{}, false},
		{[]string{"x"}, nil, false}, {nil, []string{"h1"}, true},
	} {
		f := newFixture(t).set(1, func(x *Facts) { x.Only = tt.a }).set(2, func(x *Facts) { x.Only = tt.b })
		if f.flows(1, 2, 1000); tt.want {
			f.is("1 offer", "2 offer")
		} else {
			f.is()
		}
	}
}

// TestMessages passes each message of a host in each step of the host's connection.
func TestMessages(t *testing.T) {
	const broken, nothing = "broken", ""
	accept, ready, end, ended, held := session.DirectAccept, session.DirectReady, session.DirectEnd, session.DirectEnded,
		session.DirectHeld
	twice := func(f *fixture, s session.DirectStep) *fixture { return f.step(1, s, 1) }
	for name, tt := range map[string]struct {
		to   func(*fixture) *fixture
		want map[session.DirectStep]string
	}{
		"offered": {(*fixture).offered, map[session.DirectStep]string{
			accept: nothing, ready: broken, end: "2 end refused", ended: broken, held: broken}},
		"accepted": {func(f *fixture) *fixture { return twice(f.offered(), accept) }, map[session.DirectStep]string{
			accept: broken, ready: broken, end: "2 end refused", ended: broken, held: broken}},
		"connecting": {(*fixture).connecting, map[session.DirectStep]string{
			accept: broken, ready: nothing, end: "2 end refused", ended: broken, held: broken}},
		"ready": {func(f *fixture) *fixture { return twice(f.connecting(), ready) }, map[session.DirectStep]string{
			accept: broken, ready: broken, end: "2 end refused", ended: broken, held: broken}},
		"started": {(*fixture).started, map[session.DirectStep]string{
			accept: broken, ready: broken, end: "2 end host", ended: broken, held: broken}},
		"ending": {(*fixture).ending, map[session.DirectStep]string{
			accept: nothing, ready: nothing, end: nothing, ended: "2 ended", held: broken}},
		"ended": {func(f *fixture) *fixture {
			twice(f.ending(), ended).is("2 ended")
			return f
		}, map[session.DirectStep]string{
			accept: broken, ready: broken, end: broken, ended: broken, held: broken}},
		"forgotten": {(*fixture).ended, map[session.DirectStep]string{
			accept: nothing, ready: nothing, end: nothing, ended: nothing, held: "1 end rate,1 ended"}},
	} {
		for s, want := range tt.want {
			t.Run(name+" "+string(s), func(t *testing.T) {
				f := tt.to(newFixture(t))
				f.said = nil
				f.step(1, s, 1)
				switch want {
				case broken:
					f.broken(1, session.ErrUnexpected)
				case nothing:
					f.is()
				default:
					var all []string
					for start, i := 0, 0; i <= len(want); i++ {
						if i == len(want) || want[i] == ',' {
							all, start = append(all, want[start:i]), i+1
						}
					}
					f.is(all...)
				}
				f.said = nil
				f.step(3, s, 1) // a host without a connection
				f.is()
				f.set(3).step(3, s, 1)
				if s != held {
					f.is()
				}
			})
		}
	}
	least := protocol.ControlReceives(protocol.ModeImm, 1, mostPools)
	f := newFixture(t).offered().hears(1, &session.Direct{Step: accept, ID: 1, ControlReceives: least - 1})
	f.broken(1, session.ErrMessage)
}

// TestEndedByHost ends a connection by one host, and expects the other host to be told the reason.
func TestEndedByHost(t *testing.T) {
	f := newFixture(t).started()
	f.hears(2, &session.Direct{Step: session.DirectEnd, ID: 1, Reason: "it fell"}).is("1 end it fell")
	f.step(1, session.DirectEnd, 1).is() // host 1 has sent this before it was told
	f.step(1, session.DirectEnded, 1).is("2 ended")
	f.step(2, session.DirectEnded, 1).is("1 ended")
	f.none()
}

// TestTimeouts expects the end of a connection if a host does not answer, in each step.
func TestTimeouts(t *testing.T) {
	for name, to := range map[string]func(*fixture) *fixture{
		"offered": (*fixture).offered, "connecting": (*fixture).connecting,
		"accepted": func(f *fixture) *fixture { return f.offered().step(1, session.DirectAccept, 1) },
		"ready":    func(f *fixture) *fixture { return f.connecting().step(1, session.DirectReady, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			f := to(newFixture(t))
			f.after(2*time.Second - time.Millisecond).is()
			f.after(time.Millisecond).is("1 end timeout", "2 end timeout")
			f.step(1, session.DirectEnded, 1).is("2 ended")
			f.after(2 * time.Second).is("1 ended")
			f.none()
			f.step(2, session.DirectEnded, 1).is()
			if c := f.p.Counts(); c.Ends[Timeout] != 1 || c.Unanswered != 1 || c.Stray != 1 {
				t.Errorf("%+v", c)
			}
			// The pause of 1 s after the first failure is over. The pause after the
			// second failure is not.
			f.flows(1, 2, 1000).is("1 offer", "2 offer")
			f.after(2*time.Second).is("1 end timeout", "2 end timeout")
			f.step(1, session.DirectEnded, 2).step(2, session.DirectEnded, 2).is("2 ended", "1 ended")
			f.flows(1, 2, 1000).is()
			if l := f.p.List(); len(l) != 1 || l[0].Why != Resting {
				t.Errorf("%+v", l)
			}
		})
	}
	f := newFixture(t).ending().after(2*time.Second - 1)
	f.is()
	f.after(1).is("2 ended", "1 ended")
	f.none()
	if !f.after(time.Hour).p.Wake().IsZero() {
		t.Error("something is due, of nothing")
	}
}

// TestRests lets connections fail repeatedly. It expects the pauses between them to double up to a
// minute, and to begin anew after a connection that has lasted a minute.
func TestRests(t *testing.T) {
	f := newFixture(t).set(1).set(2)
	fail := func(lasts time.Duration) {
		t.Helper()
		f.flows(1, 2, 1000).is("1 offer", "2 offer")
		id := f.ids
		if lasts > 0 {
			f.step(1, session.DirectAccept, id).step(2, session.DirectAccept, id)
			f.step(1, session.DirectReady, id).step(2, session.DirectReady, id).after(lasts)
		}
		f.said = nil
		f.step(1, session.DirectEnd, id).step(1, session.DirectEnded, id).step(2, session.DirectEnded, id)
		f.said = nil
	}
	rests := func(d time.Duration) {
		t.Helper()
		f.after(d-200*time.Millisecond).flows(1, 2, 1000).is()
		if l := f.p.List(); len(l) != 1 || l[0].Why != Resting {
			t.Errorf("%+v", l)
		}
	}
	for _, d := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		fail(0)
		rests(d * time.Second)
	}
	fail(59 * time.Second)
	rests(time.Minute)
	fail(60 * time.Second)
	rests(time.Second)
	fail(0) // rests(time.Second) has let the pause end
	f.after(forgiven + 2*time.Second)
	fail(0)
	rests(time.Second)
}

// TestRestsLast has a host change a fact, or come again in another session, all the time, to get
// rid of the pause. It expects as few offers as without that.
func TestRestsLast(t *testing.T) {
	vlans := func(n int) func(*Facts) {
		return func(x *Facts) {
			x.VLANs = protocol.VLANSet{}
			x.VLANs.Add(uint16(1 + n%2))
		}
	}
	mac := func(n int) func(*Facts) { return func(x *Facts) { x.MACs = []protocol.MAC{{2, 9, byte(n)}} } }
	down := func(n int) func(*Facts) { return func(x *Facts) { x.No = []Cause{"", Down}[n%2] } }
	name := func(n int) func(*Facts) { return func(x *Facts) { x.Name = fmt.Sprint(n) } }
	for what, tt := range map[string]struct {
		fails  bool // the host also fails to answer the offer
		change func(f *fixture, n int)
	}{
		"it only fails":            {true, func(*fixture, int) {}},
		"changes its VLANs":        {false, func(f *fixture, n int) { f.set(1, vlans(n)) }},
		"changes them, and fails":  {true, func(f *fixture, n int) { f.set(1, vlans(n)) }},
		"changes its address":      {false, func(f *fixture, n int) { f.set(1, mac(n)) }},
		"changes its name":         {false, func(f *fixture, n int) { f.set(1, name(n)) }},
		"changes its MTU":          {false, func(f *fixture, n int) { f.set(1, func(x *Facts) { x.MTU = 1500 - n%2 }) }},
		"goes down and up":         {false, func(f *fixture, n int) { f.set(1, down(n)) }},
		"comes again":              {false, func(f *fixture, _ int) { f.did(f.p.Leave(f.now, 1)).set(1) }},
		"comes again, by any name": {true, func(f *fixture, n int) { f.did(f.p.Leave(f.now, 1)).set(1, name(n)) }},
		"the other one changes":    {false, func(f *fixture, n int) { f.set(2, vlans(n)) }},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t).set(1).set(2)
			for n := range 200 { // 20 seconds
				f.flows(1, 2, 1000)
				if id := f.ids; tt.fails && f.p.byID[id] != nil && f.p.byID[id].step == Offered {
					f.step(1, session.DirectEnd, id)
				}
				if n%2 == 1 {
					tt.change(f, n/2)
				}
				for id := range f.p.byID {
					for h := range Host(3) {
						if q := f.p.byID[id]; q != nil && q.step == Ending {
							f.step(h, session.DirectEnded, id)
						}
					}
				}
			}
			if n := f.p.Counts().Offers; n < 2 || n > 5 {
				t.Errorf("%d offers", n)
			}
			f.set(3).flows(2, 3, 1000)
			if n := f.p.Counts().Offers; f.p.hosts[2].with(3) == nil {
				t.Errorf("a third host has to rest as well, after %d offers", n)
			}
		})
	}
}

// TestRestIsForgiven expects rests that double, and that begin again with the first one when nothing has
// happened for long enough since the last one was over.
func TestRestIsForgiven(t *testing.T) {
	const first = 10 * time.Second
	rs, k, now := make(rests), restKey{"a", "b"}, time.Unix(1000, 0)
	for i, step := range []struct{ after, want time.Duration }{ // after the end of the last rest
		{0, first}, {0, 2 * first}, {forgiven - 1, 4 * first}, {forgiven, first}, {time.Minute, 2 * first},
	} {
		now = now.Add(step.after)
		rs.begin(now, k, first, false)
		if d := rs[k].until.Sub(now); d != step.want {
			t.Errorf("rest %d takes %v, want %v", i, d, step.want)
		}
		now = rs[k].until
	}
}

// TestRestsOfOneKey expects that hosts with the same key do not rest because of each other.
func TestRestsOfOneKey(t *testing.T) {
	f := newFixture(t)
	for h := range Host(3) {
		f.set(h, func(x *Facts) { x.Key = "sha256:shared" })
	}
	f.flows(0, 1, 1000).is("0 offer", "1 offer")
	f.step(0, session.DirectEnd, 1).step(0, session.DirectEnded, 1).step(1, session.DirectEnded, 1)
	f.said = nil
	f.flows(0, 1, 1000).is()
	f.flows(0, 2, 1000).is("0 offer", "2 offer")
}

// TestRestsAreBounded has more hosts rest than are remembered. The rests that end first are
// forgotten first.
func TestRestsAreBounded(t *testing.T) {
	rs, now := make(rests), time.Unix(1000, 0)
	key := func(i int) restKey { return restKey{"a", fmt.Sprint(i)} }
	for i := range mostRests {
		rs.begin(now.Add(time.Duration(i)), key(i), firstRest, false)
	}
	later := now.Add(time.Second)
	rs.begin(later, key(mostRests), firstRest, false)
	if _, ok := rs[key(0)]; ok || len(rs) != mostRests {
		t.Errorf("%d rests", len(rs))
	}
	rs.begin(later, key(1), firstRest, false)
	if rs[key(1)].next != 4*firstRest || len(rs) != mostRests {
		t.Errorf("%+v, %d rests", rs[key(1)], len(rs))
	}
	rs.begin(later.Add(2*forgiven), key(0), firstRest, false)
	if len(rs) != 1 {
		t.Errorf("%d rests are kept that are over", len(rs))
	}
}

// TestGone removes a host in each step of the connection. It expects the other host to be told that
// the connection has ended, and the state of the connection to stay until the other host answers.
func TestGone(t *testing.T) {
	for name, to := range map[string]func(*fixture) *fixture{
		"offered": (*fixture).offered, "connecting": (*fixture).connecting, "started": (*fixture).started} {
		t.Run(name, func(t *testing.T) {
			f := to(newFixture(t))
			f.did(f.p.Leave(f.now, 1)).is("2 end gone", "2 ended")
			f.set(3, func(x *Facts) { x.Platform, x.Key = facts(1).Platform, facts(1).Key }) // the host connects again
			f.flows(2, 3, 1000).is()
			f.after(firstRest).flows(2, 3, 1000).is("3 offer", "2 offer") // their order follows from their platforms
			f.step(2, session.DirectEnded, 1).is()
			f.did(f.p.Leave(f.now, 3))
			f.did(f.p.Leave(f.now, 2))
			f.none()
			if len(f.p.hosts) != 0 {
				t.Error("hosts are left")
			}
		})
	}
	f := newFixture(t).ending()
	f.did(f.p.Leave(f.now, 2)).is("1 ended")
	f.did(f.p.Leave(f.now, 1)).is()
	f.none()
	f.did(f.p.Leave(f.now, 1)).is()
	f = newFixture(t).ending().step(1, session.DirectEnded, 1)
	f.is("2 ended")
	f.did(f.p.Leave(f.now, 2)).is("1 ended")
	f.none()
	f.did(f.p.Set(f.now, 2, Facts{Promisc: true}))
	if f.p.Leave(f.now, 2); f.p.listeners != 0 {
		t.Error("somebody listens who has left")
	}
}

// TestPromiscuous puts a third host in promiscuous mode, which has no direct connections itself. It
// expects the connection of the other two hosts to end.
func TestPromiscuous(t *testing.T) {
	f := newFixture(t).started()
	listen := func(x *Facts) { x.No, x.Promisc = Unwilling, true }
	f.set(3, listen).is("1 end promiscuous", "2 end promiscuous")
	if why := f.p.WhyNot(1); why != Promiscuous {
		t.Errorf("%q", why)
	}
	f.step(1, session.DirectEnded, 1).step(2, session.DirectEnded, 1).flows(1, 2, 1000)
	f.said = nil
	f.set(3, func(x *Facts) { x.No = Unwilling }).after(firstRest).flows(1, 2, 1000).is("1 offer", "2 offer")
	if why := f.p.WhyNot(1); why != "" {
		t.Errorf("%q", why)
	}
}

// TestTraffic checks the packet rate at which two hosts get a connection.
func TestTraffic(t *testing.T) {
	for name, tt := range map[string]struct {
		after   int
		packets []uint64
		want    int // number of the period with the offers; 0: none
	}{
		"enough at once": {1000, []uint64{200}, 1}, "in two periods": {1000, []uint64{100, 100}, 2},
		"not enough": {1000, []uint64{99, 100, 100, 99, 100}, 3}, "a pause": {1000, []uint64{190, 0, 190, 0, 190}, 0},
		"the first one": {0, []uint64{1}, 1}, "none": {0, []uint64{0}, 0}, "much": {10_000, []uint64{1999, 2000}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(c *Config) { c.After = tt.after }).set(1).set(2)
			got := 0
			for i, n := range tt.packets {
				if f.flows(Host(1+i%2), Host(2-i%2), n); got == 0 && len(f.said) > 0 {
					got = i + 1
				}
			}
			if got != tt.want {
				t.Errorf("after %d, want %d", got, tt.want)
			}
		})
	}
	f := newFixture(t).set(1).set(2).flows(1, 2, 150)
	f.after(time.Millisecond).flows(1, 2, 150).is() // the two periods are not adjacent
	f.flows(1, 1, 1e6).flows(1, 3, 1e6).is()
	f = newFixture(t).set(1).set(2)
	f.did(f.p.Traffic(f.now, f.now.Add(2*time.Second), []Flow{{1, 2, 1999}})).is() // a busy machine evaluates late
	f.did(f.p.Traffic(f.now, f.now.Add(2*time.Second), []Flow{{1, 2, 1000}, {2, 1, 1000}})).is("1 offer", "2 offer")
}

// TestBounds checks the bounds on the connections of a host, and on the offers at a time.
func TestBounds(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Peers = 2 })
	for h := range Host(5) {
		f.set(h)
	}
	f.starts(0, 1).after(time.Second)
	f.starts(0, 2)
	f.after(8*time.Second).flows(0, 3, 1000).is()
	if l := f.p.List(); len(l) != 3 || l[2].Why != Full || l[2].Hosts != [2]Host{0, 3} {
		t.Errorf("%+v", l)
	}
	f.after(time.Second).flows(0, 3, 1000).is("0 end full", "1 end full") // the oldest connection ends
	f.flows(0, 3, 1000).is()
	f.step(0, session.DirectEnded, 1).step(1, session.DirectEnded, 1).is("1 ended", "0 ended")
	f.starts(0, 3)

	for _, hub := range []Host{0, 19} {
		f = newFixture(t, func(c *Config) { c.Peers = 64 })
		var flows []Flow
		for h := range Host(20) {
			f.set(h)
			flows = append(flows, Flow{hub, h, 1000}, Flow{17, 18, 1000})
		}
		f.did(f.p.Traffic(f.now, f.now, flows))
		if n := len(f.said) / 2; n != opening+1 {
			t.Errorf("%d offers at a time", n)
		}
	}
}

// TestSameProcess expects no connection between two sessions of one process.
func TestSameProcess(t *testing.T) {
	f := newFixture(t).set(1).set(2, func(x *Facts) { x.Platform = facts(1).Platform })
	f.flows(1, 2, 1000).is()
}

// TestOldestEnds gives two hosts each the largest number of connections, all of which have lasted
// long enough to be replaced. It expects the oldest one of a host to end, also if an older one of
// that host was replaced before, and if it is the host's peer that has too many.
func TestOldestEnds(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Peers = 3 })
	for h := range Host(8) {
		f.set(h)
	}
	for h := range Host(3) {
		f.starts(0, h+1).after(time.Second)
	}
	f.after(2 * least)
	f.flows(0, 4, 1000).is("0 end full", "1 end full")
	f.step(0, session.DirectEnded, 1).step(1, session.DirectEnded, 1).is("1 ended", "0 ended")
	f.starts(0, 4).after(2 * least)
	f.flows(5, 0, 1000).is("0 end full", "2 end full")
	f.step(0, session.DirectEnded, 2).step(2, session.DirectEnded, 2).is("2 ended", "0 ended")
	f.starts(0, 5)
}

// TestNotesAreBounded reports traffic between many hosts that may not have connections. It expects
// a bounded number of recorded reasons, and none when all hosts have left.
func TestNotesAreBounded(t *testing.T) {
	f := newFixture(t)
	for h := range Host(60) {
		f.set(h, func(x *Facts) { x.Only, x.Offloads = []string{}, vnet.AllOffloads })
	}
	for a := range Host(60) {
		for b := range a {
			f.flows(a, b, 1000)
		}
	}
	if f.is(); len(f.p.why) != notes {
		t.Errorf("%d notes", len(f.p.why))
	}
	for h := range Host(60) {
		f.p.Leave(f.now, h)
	}
	if len(f.p.why) != 0 {
		t.Errorf("%d notes of nobody", len(f.p.why))
	}
}
