package endpoints

import (
	"errors"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestDirectHostile lets one of two hosts violate the protocol of direct connections. Its session
// has to end. The other host has to be told the end of the connection between them, and to keep
// its connection with a third host.
func TestDirectHostile(t *testing.T) {
	for name, do := range map[string]func(s *directs, bad, good *peer){
		"accepts twice": func(s *directs, bad, good *peer) {
			id := s.offered(bad, good)
			bad.says(session.DirectAccept, id)
			bad.says(session.DirectAccept, id)
		},
		"is ready too early": func(s *directs, bad, good *peer) {
			bad.says(session.DirectReady, s.offered(bad, good))
		},
		"accepts what has started": func(s *directs, bad, good *peer) {
			bad.says(session.DirectAccept, s.started(bad, good))
		},
		"says that it has ended what has not": func(s *directs, bad, good *peer) {
			bad.says(session.DirectEnded, s.started(bad, good))
		},
		"holds what is directed here": func(s *directs, bad, good *peer) {
			bad.says(session.DirectHeld, s.started(bad, good),
				func(d *session.Direct) { d.Platform = good.c.Platform() })
		},
		"posts too few receives": func(s *directs, bad, good *peer) {
			bad.says(session.DirectAccept, s.offered(bad, good), func(d *session.Direct) { d.ControlReceives = 1 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDirect(t)
			bad, good, third := s.peer("bad"), s.peer("good"), s.peer("third")
			other := s.started(good, third)
			do(s, bad, good)
			<-bad.c.Done()
			if bye := (*session.ByeError)(nil); !errors.As(bad.c.Err(), &bye) || bye.Code != session.CodeProtocol {
				t.Errorf("%v", bad.c.Err())
			}
			end := good.hears(session.DirectEnd)
			good.hears(session.DirectEnded)
			if end.ID == other || end.Reason != "gone" {
				t.Errorf("%+v", end)
			}
			good.says(session.DirectEnded, end.ID)
			s.stillThere(good, third, other)
			testenv.Eventually(t, func() bool { return len(s.unit.Status().Violations) == 1 }, "a violation that is counted")
		})
	}
}

// stillThere expects that the connection of two hosts is the only one and established, and that
// no message waits at either of them.
func (s *directs) stillThere(a, b *peer, id session.DirectID) {
	s.t.Helper()
	testenv.Eventually(s.t, func() bool {
		d := s.unit.Status().Direct
		return len(d.Pairs) == 1 && d.Pairs[0].ID == id && d.Pairs[0].Step == "started"
	}, "one connection: %+v", later(func() any { return s.unit.Status().Direct.Pairs }))
	for _, p := range []*peer{a, b} {
		if p.c.Err() != nil || len(p.told) > 0 {
			s.t.Errorf("%v, and %d messages", p.c.Err(), len(p.told))
		}
	}
}

// TestDirectStranger lets a host send messages about a connection of two other hosts, and expects
// that the connection stays and that the messages are counted as stray.
func TestDirectStranger(t *testing.T) {
	s := newDirect(t)
	a, b, stranger := s.peer("alpha"), s.peer("beta"), s.peer("stranger")
	id := s.started(a, b)
	for _, step := range []session.DirectStep{session.DirectAccept, session.DirectReady, session.DirectEnd,
		session.DirectEnded} {
		stranger.says(step, id)
	}
	stranger.says(session.DirectHeld, id, func(d *session.Direct) { d.Platform = a.c.Platform() })
	stranger.hears(session.DirectEnd)
	stranger.hears(session.DirectEnded)
	s.stillThere(a, b, id)
	if n := s.unit.Status().Direct.Stray; n != 4 {
		t.Errorf("%d stray messages", n)
	}
}

// floodedWith is the largest number of messages that TestDirectFlooded sends. Each gets one answer.
const floodedWith = 5000

// TestDirectFlooded lets a host claim more connections than a host may have. Its session has to
// end, as it does if the host does not read its messages, and the connection of two other hosts
// has to stay.
func TestDirectFlooded(t *testing.T) {
	s := newDirect(t)
	a, b, bad := s.peer("alpha"), s.peer("beta"), s.peer("bad")
	id := s.started(a, b)
	for i := range session.DirectID(floodedWith) {
		d := &session.Direct{Step: session.DirectHeld, ID: i + 1, Platform: 7}
		if bad.c.SendDirect(d, time.Minute) != nil {
			break
		}
	}
	<-bad.c.Done()
	s.stillThere(a, b, id)
}

// TestDirectStatus expects the status to show which hosts have a connection, and why a host has
// none.
func TestDirectStatus(t *testing.T) {
	s := newDirect(t)
	a, b := s.peer("alpha"), s.peer("beta")
	s.shared.peer("old")
	s.started(a, b)
	st := statusOf(t, s.unit.Status)
	if d := st.Direct; d == nil || d.Offers != 1 || d.Starts != 1 || len(d.Pairs) != 1 ||
		d.Pairs[0].Hosts != [2]string{"alpha", "beta"} || d.Pairs[0].Step != "started" || d.Pairs[0].Mode != "imm" {
		t.Fatalf("%+v", d)
	}
	for i, want := range []string{"", "", "unwilling"} {
		if h := st.Hosts[i]; h.NoDirect != want {
			t.Errorf("%s: %q", h.Name, h.NoDirect)
		}
	}
	s.unit.SetPolicy(rules(t, "default: {direct: no}"))
	if st := s.unit.Status(); st.Hosts[0].NoDirect != "policy" || st.Direct.Ended["policy"] != 1 {
		t.Errorf("%+v", st.Direct)
	}
	off := newDirect(t, func(c *iounit.Config) { c.Direct = false })
	off.peer("alpha")
	if st := off.unit.Status(); st.Direct != nil || st.Hosts[0].NoDirect != "unwilling" {
		t.Errorf("%+v", st)
	}
}
