package pairs

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

const firstRest = time.Second

// fixture has a Pairs, the clock of the Pairs, and the returned actions that the test has
// not checked yet.
type fixture struct {
	t    *testing.T
	p    *Pairs
	now  time.Time
	said []Action
	ids  session.DirectID
}

func newFixture(t *testing.T, change ...func(*Config)) *fixture {
	f := &fixture{t: t, now: time.Unix(1000, 0)}
	cfg := Config{After: 1000, Peers: 4, Answer: 2 * time.Second, Grace: 3 * time.Second, Rest: firstRest,
		NewID:  func() session.DirectID { f.ids++; return f.ids },
		Secret: func() session.DirectSecret { return session.DirectSecret{1} },
	}
	for _, c := range change {
		c(&cfg)
	}
	f.p = New(cfg)
	return f
}

// facts returns the facts of a host that may have direct connections with all other hosts.
func facts(h Host) Facts {
	return Facts{
		Name: fmt.Sprintf("chosen%d", h), Shown: fmt.Sprintf("h%d", h), Key: fmt.Sprintf("sha256:%d", h),
		Platform: protocol.Platform(1000 + h),
		MACs:     []protocol.MAC{{2, 0, 0, 0, 0, byte(h)}},
		VLANs:    protocol.AllVLANs(), MTU: 1500, Mode: protocol.ModeImm, Modes: protocol.Modes(), Offloads: vnet.AllOffloads,
		Pools: 8, Features: []string{protocol.FeaturePack, protocol.FeatureWindow}, Known: []string{fmt.Sprintf("h%d", h)},
	}
}

func (f *fixture) set(h Host, change ...func(*Facts)) *fixture {
	x := facts(h)
	for _, c := range change {
		c(&x)
	}
	return f.did(f.p.Set(f.now, h, x))
}

func (f *fixture) did(a []Action) *fixture {
	f.said = append(f.said, a...)
	return f
}

// after advances the clock by d, with a tick at each time at which something is due.
func (f *fixture) after(d time.Duration) *fixture {
	until := f.now.Add(d)
	for w := f.p.Wake(); !w.IsZero() && !w.After(until); w = f.p.Wake() {
		f.now = w
		f.did(f.p.Tick(w))
	}
	f.now = until
	return f
}

// flows advances the clock by 100 ms, and reports packets from one host to another in this time.
func (f *fixture) flows(from, to Host, packets uint64) *fixture {
	began := f.now
	f.after(100 * time.Millisecond)
	return f.did(f.p.Traffic(began, f.now, []Flow{{from, to, packets}}))
}

func (f *fixture) hears(h Host, d *session.Direct) *fixture { return f.did(f.p.Heard(f.now, h, d)) }

func (f *fixture) step(h Host, s session.DirectStep, id session.DirectID) *fixture {
	d := &session.Direct{Step: s, ID: id}
	if s == session.DirectAccept {
		d.ControlReceives = protocol.ControlReceives(protocol.ModeImm, 1, mostPools)
		d.Channels = []session.Channel{{QPN: uint32(10 * h), MTU: 1024}, {QPN: uint32(10*h + 1), MTU: 1024}}
	}
	return f.hears(h, d)
}

// is expects the messages since the last call, each as a host, a step, and the reason if there is
// one. It returns the actions with these messages.
func (f *fixture) is(want ...string) []Action {
	f.t.Helper()
	var got []string
	for _, a := range f.said {
		switch {
		case a.Broken != nil:
			got = append(got, fmt.Sprintf("%d broken", a.To))
		case a.Message.Reason != "":
			got = append(got, fmt.Sprintf("%d %s %s", a.To, a.Message.Step, a.Message.Reason))
		default:
			got = append(got, fmt.Sprintf("%d %s", a.To, a.Message.Step))
		}
	}
	if !slices.Equal(got, want) {
		f.t.Fatalf("said %q, want %q", got, want)
	}
	said := f.said
	f.said = nil
	return said
}

// offered, connecting, started, ending and ended bring a connection of hosts 1 and 2 to that step.
func (f *fixture) offered() *fixture {
	f.t.Helper()
	f.set(1).set(2).flows(1, 2, 1000).is("1 offer", "2 offer")
	return f
}

func (f *fixture) connecting() *fixture {
	f.t.Helper()
	f.offered().step(1, session.DirectAccept, 1).step(2, session.DirectAccept, 1).is("1 connect", "2 connect")
	return f
}

func (f *fixture) started() *fixture {
	f.t.Helper()
	f.connecting().step(2, session.DirectReady, 1).step(1, session.DirectReady, 1).is("1 start", "2 start")
	return f
}

func (f *fixture) ending() *fixture {
	f.t.Helper()
	f.started().set(1, func(x *Facts) { x.No = Rate }).is("1 end rate", "2 end rate")
	return f
}

func (f *fixture) ended() *fixture {
	f.t.Helper()
	f.ending().step(1, session.DirectEnded, 1).step(2, session.DirectEnded, 1).is("2 ended", "1 ended")
	f.none()
	return f
}

// starts starts a connection of hosts a and b, of which b has the greater number.
func (f *fixture) starts(a, b Host) *fixture {
	f.t.Helper()
	f.flows(a, b, 1000).is(fmt.Sprintf("%d offer", a), fmt.Sprintf("%d offer", b))
	id := f.ids
	f.step(a, session.DirectAccept, id).step(b, session.DirectAccept, id)
	f.is(fmt.Sprintf("%d connect", a), fmt.Sprintf("%d connect", b))
	f.step(a, session.DirectReady, id).step(b, session.DirectReady, id)
	f.is(fmt.Sprintf("%d start", a), fmt.Sprintf("%d start", b))
	return f
}

// none expects that no state of any connection is left.
func (f *fixture) none() {
	f.t.Helper()
	if p := f.p; len(p.byID) != 0 || len(p.due) != 0 || len(p.claims) != 0 {
		f.t.Fatalf("left: %v, %v, %v", p.byID, p.due, p.claims)
	}
	for h, x := range f.p.hosts {
		if len(x.pairs) != 0 || x.claims != 0 {
			f.t.Fatalf("host %d: %v, %d", h, x.pairs, x.claims)
		}
	}
}

// broken expects one action: the end of host h's session with an error that wraps want.
func (f *fixture) broken(h Host, want error) {
	f.t.Helper()
	if a := f.is(fmt.Sprintf("%d broken", h)); !errors.Is(a[0].Broken, want) {
		f.t.Errorf("%v, want %v", a[0].Broken, want)
	}
}
