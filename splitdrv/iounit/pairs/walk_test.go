package pairs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// walker is a host that follows the protocol. in and out are queues of messages to the
// host and from the host.
type walker struct {
	host   Host
	in     []*session.Direct
	out    []*session.Direct
	mine   map[session.DirectID]session.DirectStep // the host's last message about each connection
	owed   map[session.DirectID]bool               // connections whose message ended the host waits for
	silent bool                                    // the host does not answer
}

// answer handles the oldest message for the host. It returns an error if the message breaks the
// protocol.
func (w *walker) answer(r *rand.Rand) error {
	d := w.in[0]
	w.in = w.in[1:]
	say := func(s session.DirectStep) {
		w.mine[d.ID] = s
		m := &session.Direct{Step: s, ID: d.ID}
		if s == session.DirectAccept {
			m.ControlReceives = protocol.ControlReceives(protocol.ModeImm, 1, mostPools)
		}
		w.out = append(w.out, m)
	}
	is := w.mine[d.ID]
	over := is == session.DirectEnd || is == session.DirectEnded
	switch d.Step {
	case session.DirectOffer:
		if is != "" {
			return fmt.Errorf("an offer of %v, after %q", d.ID, is)
		}
		if r.IntN(8) == 0 {
			say(session.DirectEnd)
			say(session.DirectEnded)
			w.owed[d.ID] = true
			return nil
		}
		say(session.DirectAccept)
	case session.DirectConnect:
		if is != session.DirectAccept && !over {
			return fmt.Errorf("%q after %q", d.Step, is)
		}
		if !over {
			say(session.DirectReady)
		}
	case session.DirectStart:
		if is != session.DirectReady && !over {
			return fmt.Errorf("%q after %q", d.Step, is)
		}
		if !over && r.IntN(8) == 0 {
			w.owed[d.ID] = true
			say(session.DirectEnd)
			say(session.DirectEnded)
		}
	case session.DirectKeep:
		if is != session.DirectHeld && !over {
			return fmt.Errorf("%q after %q", d.Step, is)
		}
	case session.DirectEnd:
		if is == "" {
			return fmt.Errorf("an end of nothing")
		}
		w.owed[d.ID] = w.owed[d.ID] || is != session.DirectEnd && is != session.DirectEnded
		if is != session.DirectEnded {
			say(session.DirectEnded)
		}
	case session.DirectEnded:
		if is == "" {
			return fmt.Errorf("%v has ended, which was not", d.ID)
		}
		if w.owed[d.ID] {
			delete(w.owed, d.ID)
		} else if over {
			return fmt.Errorf("%v has ended twice", d.ID)
		}
	default:
		return fmt.Errorf("%q for a host", d.Step)
	}
	return nil
}

// TestWalk simulates in random order that hosts join, leave, change, exchange frames, fail, report
// kept connections, and get messages late. It checks the invariants after each step.
func TestWalk(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { walk(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func walk(t *testing.T, r *rand.Rand) {
	f := newFixture(t, func(c *Config) { c.After, c.Peers = 0, 3 })
	hosts, next := make(map[Host]*walker), Host(0)
	var known []session.DirectID
	deliver := func() {
		t.Helper()
		for _, a := range f.said {
			w := hosts[a.To]
			switch {
			case w == nil:
				t.Fatalf("%+v is for a host that has left", a)
			case a.Broken != nil:
				t.Fatalf("host %d broke nothing: %v", a.To, a.Broken)
			}
			if a.Message.Step == session.DirectOffer {
				known = append(known, a.Message.ID)
			}
			w.in = append(w.in, a.Message)
		}
		f.said = nil
		consistent(t, f.p, hosts)
	}
	some := func() *walker {
		n := r.IntN(max(1, len(hosts)))
		for h := range next {
			if w := hosts[h]; w != nil {
				if n == 0 {
					return w
				}
				n--
			}
		}
		return nil
	}
	move := func(quiet bool) {
		w := some()
		switch k := r.IntN(100); {
		case w == nil || k < 3 && len(hosts) < 6 && !quiet:
			hosts[next] = &walker{host: next, mine: make(map[session.DirectID]session.DirectStep),
				owed: make(map[session.DirectID]bool), silent: r.IntN(10) == 0}
			f.set(next)
			next++
		case k < 5 && !quiet:
			delete(hosts, w.host)
			f.did(f.p.Leave(f.now, w.host))
		case k < 10 && !quiet:
			f.set(w.host, func(x *Facts) {
				x.No = []Cause{"", "", Rate, Down}[r.IntN(4)]
				x.MTU = []int{1500, 1500, 9000}[r.IntN(3)]
				x.Promisc = r.IntN(10) == 0
			})
		case k < 12:
			f.after(time.Duration(r.IntN(3000)) * time.Millisecond)
		case k < 25 && !quiet:
			f.flows(w.host, some().host, 1)
		case k < 28 && !quiet:
			id := session.DirectID(1000 + r.IntN(5))
			if o := some(); o != w && w.mine[id] == "" {
				w.mine[id] = session.DirectHeld
				w.out = append(w.out, &session.Direct{Step: session.DirectHeld, ID: id, Platform: facts(o.host).Platform})
			}
		case k < 64 && len(w.in) > 0 && !w.silent:
			if err := w.answer(r); err != nil {
				t.Fatalf("host %d: %v", w.host, err)
			}
		case len(w.out) > 0:
			d := w.out[0]
			w.out = w.out[1:]
			f.hears(w.host, d)
		}
		deliver()
	}
	for range 3000 {
		move(false)
	}
	for h := range next { // end all connections and permit no new ones
		if hosts[h] != nil {
			f.set(h, func(x *Facts) { x.No = Policy })
		}
	}
	deliver()
	for range 3000 {
		move(true)
	}
	f.after(time.Minute)
	deliver()
	for _, w := range hosts {
		for w.silent = false; len(w.in) > 0; {
			if err := w.answer(r); err != nil {
				t.Fatalf("host %d: %v", w.host, err)
			}
		}
		if len(w.owed) > 0 {
			t.Fatalf("host %d waits for %v", w.host, w.owed)
		}
	}
	f.none()
	if !f.p.Wake().IsZero() && f.after(time.Hour).said != nil {
		t.Error("something is due, of nothing")
	}
}

// consistent checks the invariants of p.
func consistent(t *testing.T, p *Pairs, hosts map[Host]*walker) {
	t.Helper()
	between := make(map[key]int)
	of := make(map[Host]int)
	for id, q := range p.byID {
		here := 0
		for i := range q.sides {
			s := &q.sides[i]
			if (hosts[s.host] == nil) != s.gone {
				t.Fatalf("%v: host %d is gone: %t", id, s.host, s.gone)
			}
			if !s.gone {
				here++
				of[s.host]++
			}
		}
		if between[q.key()]++; between[q.key()] > 1 {
			t.Fatalf("hosts %v have two connections", q.key())
		}
		if here == 0 || here == 1 && q.step != Ending {
			t.Fatalf("%v is %s, with %d hosts", id, q.step, here)
		}
		if _, waits := p.due[q]; waits != (q.step != Started) {
			t.Fatalf("%v is %s and waits: %t", id, q.step, waits)
		}
		if waits := !q.due.IsZero(); waits && (p.wake.IsZero() || p.wake.After(q.due)) {
			t.Fatalf("%v is due at %v, but nothing is before %v", id, q.due, p.wake)
		}
	}
	for h, n := range of {
		x := p.hosts[h]
		if n != len(x.pairs) || n+x.claims > p.cfg.Peers {
			t.Fatalf("host %d has %d connections, %d listed, and claims %d", h, n, len(x.pairs), x.claims)
		}
		if x.No != "" {
			for _, q := range x.pairs {
				if q.step != Ending {
					t.Fatalf("host %d has a connection: %s", h, x.No)
				}
			}
		}
	}
}
