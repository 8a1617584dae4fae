package pairs

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// holds passes the report of host h that it has kept the connection id to another host.
func (f *fixture) holds(h, other Host, id session.DirectID) *fixture {
	return f.hears(h, &session.Direct{Step: session.DirectHeld, ID: id, Platform: facts(other).Platform})
}

// TestHeld passes the reports of two hosts about the same kept connection, and expects both hosts
// to be told to keep the connection.
func TestHeld(t *testing.T) {
	f := newFixture(t).set(2).set(1).holds(2, 1, 7)
	f.is()
	said := f.holds(1, 2, 7).is("1 keep", "2 keep")
	for i, a := range said {
		own, other := Host(1+i), Host(2-i)
		if p := a.Message.Peer; p.Platform != facts(other).Platform || p.Own[0] != facts(own).MACs[0] {
			t.Errorf("host %d keeps %+v", own, p)
		}
	}
	if c := f.p.Counts(); c.Kept != 1 || c.Starts != 1 || c.Offers != 0 {
		t.Errorf("%+v", c)
	}
	f.flows(1, 2, 1000).is()
	f.after(time.Hour).set(1, func(x *Facts) { x.No = Rate }).is("1 end rate", "2 end rate")
	f.step(1, session.DirectEnded, 7).step(2, session.DirectEnded, 7).is("2 ended", "1 ended")
	f.none()
}

// TestHeldBefore passes the reports of two hosts about a kept connection before their
// sessions are in use. It expects both hosts to be told to keep the connection as soon as
// both sessions are in use.
func TestHeldBefore(t *testing.T) {
	for _, why := range []Cause{Opening, Down, LinkDown} {
		f := newFixture(t)
		not := func(x *Facts) { x.No = why }
		f.set(1, not).set(2, not).holds(1, 2, 7).holds(2, 1, 7).set(2).is()
		f.after(2*time.Second).set(1).is("1 keep", "2 keep")
	}
}

// TestHeldRefused passes reports of hosts about connections that they may not keep, and expects the
// end of these connections.
func TestHeldRefused(t *testing.T) {
	no := func(f *fixture) *fixture { return f }
	for name, tt := range map[string]struct {
		before func(*fixture) *fixture
		want   []string
	}{
		"alone":             {no, []string{"1 end unconfirmed", "1 ended"}},
		"of another":        {func(f *fixture) *fixture { return f.holds(2, 3, 7) }, []string{"1 end unconfirmed", "1 ended", "2 end unconfirmed", "2 ended"}},
		"not willing":       {func(f *fixture) *fixture { return f.set(1, func(x *Facts) { x.No = Policy }) }, []string{"1 end policy", "1 ended"}},
		"somebody listens":  {func(f *fixture) *fixture { return f.set(3, func(x *Facts) { x.Promisc = true }) }, []string{"1 end promiscuous", "1 ended"}},
		"not with that one": {func(f *fixture) *fixture { return f.set(1, func(x *Facts) { x.Only = []string{} }).holds(2, 1, 7) }, []string{"1 end policy", "1 ended", "2 end policy", "2 ended"}},
		"another MTU":       {func(f *fixture) *fixture { return f.set(1, func(x *Facts) { x.MTU = 9000 }).holds(2, 1, 7) }, []string{"1 end mtu", "1 ended", "2 end mtu", "2 ended"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := tt.before(newFixture(t).set(1).set(2)).holds(1, 2, 7)
			f.after(3 * time.Second)
			got := make(map[string]bool)
			for _, a := range f.said {
				got[string(rune('0'+a.To))+" "+string(a.Message.Step)] = true
			}
			if len(f.said) != len(tt.want) {
				t.Errorf("said %d, want %q", len(f.said), tt.want)
			}
			if len(tt.want) == 2 {
				f.is(tt.want...)
			}
			f.none()
			if !got["1 end"] || !got["1 ended"] {
				t.Errorf("the host is told %v", got)
			}
			f.said = nil
			f.step(1, session.DirectEnded, 7).is()
		})
	}
}

// TestHeldDenied denies one of two hosts the connection that both hosts report. It expects the
// other host to be told at once, not when the time for a confirmation is over.
func TestHeldDenied(t *testing.T) {
	for name, denied := range map[string]func(*Facts){
		"policy": func(x *Facts) { x.No = Policy },
		"mtu":    func(x *Facts) { x.MTU = 9000 },
	} {
		first, second := []string{"1 end " + name, "1 ended"}, []string{"2 end " + name, "2 ended"}
		f := newFixture(t).set(1).set(2, func(x *Facts) { x.No = Opening }).holds(1, 2, 7)
		f.is()
		f.set(2, denied).is(first...) // before the report of host 2
		f.holds(2, 1, 7).is(second...)
		f.holds(1, 2, 7).is(first...) // a report after the denial
		f.none()
		f.after(time.Minute).is()
	}
}

// TestHeldTwice passes reports of a connection that was reported before, of an identifier that
// other hosts use, and of a second connection between two hosts.
func TestHeldTwice(t *testing.T) {
	f := newFixture(t).set(1).set(2).set(3).holds(1, 2, 7).holds(1, 2, 7)
	f.broken(1, session.ErrUnexpected)
	f.did(f.p.Leave(f.now, 1)).holds(2, 1, 7).set(1).holds(1, 2, 7).is("1 keep", "2 keep")
	f.holds(3, 1, 7).is("3 end gone", "3 ended")
	f.holds(1, 2, 7)
	f.broken(1, session.ErrUnexpected)
	f.holds(1, 2, 8).holds(2, 1, 8).is("2 end full", "2 ended", "1 end full", "1 ended") // they have connection 7
	f.ids = 6
	if id := f.p.newID(); id == 7 {
		t.Error("an identifier is used again")
	}
}

// TestHeldMany checks the bound on the number of connections that a host reports and no other host
// has confirmed yet.
func TestHeldMany(t *testing.T) {
	f := newFixture(t).set(1)
	for id := range session.DirectID(4) {
		f.holds(1, 2, id+1).is()
	}
	if id := f.p.newID(); id <= 4 {
		t.Error("an identifier of what is held is used again")
	}
	f.holds(1, 2, 9).is("1 end full", "1 ended")
	f.step(1, session.DirectEnd, 2).is("1 ended")
	f.step(1, session.DirectEnded, 2).holds(1, 2, 9).is()
	f.did(f.p.Leave(f.now, 1)).is()
	f.none()
}

// TestHeldExpires reports two connections at different times that no other host confirms. It
// expects each connection to end when its own time for a confirmation is over.
func TestHeldExpires(t *testing.T) {
	f := newFixture(t).set(1).holds(1, 2, 7).after(time.Second).holds(1, 2, 8)
	f.is()
	f.after(2*time.Second).is("1 end unconfirmed", "1 ended")
	f.after(time.Second - 1).is()
	f.after(1).is("1 end unconfirmed", "1 ended")
	f.none()
}
