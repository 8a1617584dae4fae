package messaging_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// looked is an endpoint whose beats are made by the test. Its own beats are hours away.
type looked struct {
	*endpoint
	next  uint64       // number of the next beat
	due   uint64       // number of the next beat that is not left out, for resting
	hears atomic.Int32 // number of calls of OnHears
	heard atomic.Bool  // argument of the last call
}

func (l *looked) config(last bool) messaging.Config {
	hears := func(hears bool) {
		l.hears.Add(1)
		l.heard.Store(hears)
	}
	cfg := messaging.Config{KeepAlive: 8 * time.Hour, PeerTimeout: 33 * time.Hour, AskLast: last, OnHears: hears}
	cfg.Clock = new(ticker.Clock)
	return cfg
}

// beats makes n beats, and returns how many messages the endpoint sent at each.
func (l *looked) beats(n int) []uint64 {
	sent := make([]uint64, n)
	for i := range sent {
		before := l.conn.Stats().ControlSent
		l.conn.Pass()
		l.conn.Beat(l.next)
		l.next++
		sent[i] = l.conn.Stats().ControlSent - before
	}
	return sent
}

// lookedPair returns two idle endpoints, of which b leaves keep-alives to a, and a function
// that stalls b. Each endpoint has had a beat after its last message from the other.
func lookedPair(t *testing.T) (stall func(), a, b *looked) {
	a, b = &looked{}, &looked{}
	n, ha, hb := newPair(t, a.config(false), b.config(true))
	a.endpoint, b.endpoint = ha, hb
	settled(t, ha, hb)
	if _, err := ha.conn.Request(deadline(t), protocol.CfgKeepAlive, nil); err != nil {
		t.Fatal(err)
	}
	quiet(t, a, b)
	a.beats(1)
	b.beats(1)
	t.Cleanup(func() { n.Resume("b") })
	return func() { n.Stall("b") }, a, b
}

// quiet waits until all messages sent have arrived, and all requests are answered.
func quiet(t *testing.T, a, b *looked) {
	t.Helper()
	until(t, func() error {
		sa, sb := a.conn.Stats(), b.conn.Stats()
		if sa.ControlSent != sb.ControlReceived || sb.ControlSent != sa.ControlReceived {
			return fmt.Errorf("%d of %d and %d of %d messages have come", sb.ControlReceived, sa.ControlSent,
				sa.ControlReceived, sb.ControlSent)
		}
		return errors.Join(a.conn.Answered(), b.conn.Answered())
	})
}

// TestWhoAsks gives beats to two idle endpoints. The one with AskLast must not send
// keep-alives while the other one does, and must send one when the other one does not.
func TestWhoAsks(t *testing.T) {
	_, a, b := lookedPair(t)
	for round := range 3 {
		if d := cmp.Diff(make([]uint64, 6), b.beats(6)); d != "" {
			t.Fatalf("round %d, messages of the one that asks last: %s", round, d)
		}
		if d := cmp.Diff([]uint64{0, 0, 0, 0, 0, 1}, a.beats(6)); d != "" {
			t.Fatalf("round %d, messages upon each beat: %s", round, d)
		}
		quiet(t, a, b)
		a.beats(1)
		b.beats(1)
	}
	for _, l := range []*looked{a, b} {
		if l.hears.Load() != 1 || !l.heard.Load() {
			t.Errorf("%s was told %d times whether it hears, at last %v", l.name, l.hears.Load(), l.heard.Load())
		}
	}
	// a has no beats.
	if d := cmp.Diff([]uint64{0, 0, 0, 0, 0, 0, 1}, b.beats(7)); d != "" {
		t.Fatalf("messages upon each beat while the other one does not ask: %s", d)
	}
	if b.heard.Load() {
		t.Error("it hears the other one as before")
	}
	quiet(t, a, b)
	b.beats(1)
	if !b.heard.Load() {
		t.Error("it does not hear the reply")
	}
}

// TestTurn starts an endpoint at each of the seven beats between two common beats. The
// endpoint must hear something at least every six beats, and soon ask only at common beats.
func TestTurn(t *testing.T) {
	for first := range uint64(7) {
		t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
			_, a, b := lookedPair(t)
			a.next = first
			var asked []uint64
			for silence := 1; len(asked) < 5; silence++ {
				if silence > 6 {
					t.Fatalf("nothing heard for %d beats, asked at %v", silence, asked)
				}
				if a.beats(1)[0] == 0 {
					continue
				}
				asked = append(asked, (a.next-1)%7)
				quiet(t, a, b)
				a.beats(1)
				silence = 0
			}
			if d := cmp.Diff([]uint64{6, 6, 6}, asked[2:]); d != "" {
				t.Errorf("asked at the beats %v: %s", asked, d)
			}
		})
	}
}

// TestSilence33 stalls the peer. The endpoint must ask it once, and declare it dead after the
// peer time-out of 33 beats and one more beat, in which the control handler polls for the last
// time.
func TestSilence33(t *testing.T) {
	stall, a, _ := lookedPair(t)
	stall()
	asked := uint64(0)
	for beat := 1; beat <= 33; beat++ {
		for _, n := range a.beats(1) {
			asked += n
		}
		if hears := beat < 7; a.heard.Load() != hears {
			t.Errorf("after beat %d it hears the peer: %v", beat, !hears)
		}
		until(t, a.conn.Look())
		if err := a.conn.Err(); err != nil {
			t.Fatalf("after beat %d: %v", beat, err)
		}
	}
	a.beats(1)
	if err := ended(t, a.endpoint); !errors.Is(err, messaging.ErrPeerSilent) {
		t.Error(err)
	}
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}

// resting makes n beats for each of ends, except those that the endpoint says can be left
// out. It returns for each endpoint the number of messages sent, by the number of the beat.
func resting(t *testing.T, n int, ends ...*looked) []map[uint64]uint64 {
	t.Helper()
	sent := make([]map[uint64]uint64, len(ends))
	for i := range ends {
		sent[i] = make(map[uint64]uint64)
	}
	for range n {
		for i, l := range ends {
			l.conn.Pass()
			if l.next >= l.due {
				before := l.conn.Stats().ControlSent
				l.due = l.next + 1 + uint64(l.conn.Beat(l.next))
				sent[i][l.next] = l.conn.Stats().ControlSent - before
			}
			l.next++
			until(t, l.conn.Look())
			if len(ends) > 1 {
				quiet(t, ends[0], ends[1])
			}
		}
	}
	return sent
}

// TestRest leaves out beats of two idle endpoints. They must ask at every common beat as
// before, and hear each other. The endpoint that asks must need only the common beat and the
// one after it.
func TestRest(t *testing.T) {
	_, a, b := lookedPair(t)
	resting(t, 20, a, b) // long enough that they ask at the common beats
	a.next, b.next = 70, 70
	a.due, b.due = 70, 70
	sent := resting(t, 70, a, b)
	asked := map[uint64]uint64{}
	for n := uint64(70); n < 140; n += 7 {
		asked[n] = 0 // a notices the reply
		asked[n+6] = 1
	}
	if d := cmp.Diff(asked, sent[0]); d != "" {
		t.Errorf("what the one sends that asks: %s", d)
	}
	looks := 0
	for n, m := range sent[1] {
		// b sends replies, but not at a beat.
		if looks++; m != 0 {
			t.Errorf("the one that asks last sends %d messages at beat %d", m, n)
		}
	}
	if looks > 11 {
		t.Errorf("the one that asks last looked %d times in 70 beats", looks)
	}
	for _, l := range []*looked{a, b} {
		if l.hears.Load() != 1 || !l.heard.Load() {
			t.Errorf("%s was told %d times whether it hears, at last %v", l.name, l.hears.Load(), l.heard.Load())
		}
	}
}

// TestRestSilence has the peer send a message at each possible beat between two checks, and
// then stalls it. The peer must be declared dead as soon as if no beat were left out.
func TestRestSilence(t *testing.T) {
	for said := range 7 {
		t.Run(fmt.Sprint("after ", said), func(t *testing.T) {
			stall, a, b := lookedPair(t)
			a.next = 0
			resting(t, said, a)
			if _, err := b.conn.Request(deadline(t), protocol.CfgKeepAlive, nil); err != nil {
				t.Fatal(err)
			}
			quiet(t, a, b)
			stall()
			// Without left-out beats, the message would be noticed at the first of these.
			resting(t, 34, a)
			if err := a.conn.Err(); err != nil {
				t.Fatalf("too early: %v", err)
			}
			a.beats(1)
			if err := ended(t, a.endpoint); !errors.Is(err, messaging.ErrPeerSilent) {
				t.Error(err)
			}
		})
	}
}
