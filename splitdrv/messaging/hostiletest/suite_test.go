package hostiletest

import (
	"context"

	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// twoDevices is the fabric of the suite: two devices that reach each other.
type twoDevices struct {
	Victim, Attacker fabric.Device
	Timing           fabric.Timing
	// Traits has the traits of the attacker's device.
	Traits conform.Traits
	// RNR returns how often no receive was posted for a message to the victim.
	RNR func() uint64
}

// besides is the number of frames that another session exchanges in each direction during every
// attack.
const besides = 8

// attackAll makes all attacks that are wanted in every mode. It calls newFabric once for each mode. After an attack
// that has timed out it makes no others: they would probably time out for the same reason.
func attackAll(t *testing.T, newFabric func(t *testing.T) twoDevices, wanted func(a Attack) bool) {
	for _, mode := range protocol.Modes() {
		timely(t, string(mode), func(t *testing.T) {
			// Checked for all attacks together: the other sessions open descriptors when they first
			// wait, which may be during any attack.
			testenv.NoLeaks(t)
			f := newFabric(t)
			beside := newHealthy(t, f.Victim, f.Attacker, mode, f.Timing)
			other := newVictim(t, small(f.Victim, mode, f.Timing), nil)
			otherPeer := NewPeer(t, PeerConfig{Device: f.Attacker, Mode: mode, Channels: 1, Timing: f.Timing})
			other.connect(otherPeer, 1)
			otherPeer.send(otherPeer.lend(func(*protocol.Pool) {})) // so that the session does not ask for pools
			for _, a := range allAttacks() {
				if a.In(mode) && wanted(a.Attack) {
					timely(t, a.Name, func(t *testing.T) {
						a.run(t, f, mode, beside, otherPeer.Pools)
						otherPeer.renew(t)
						otherPeer.Alive()
					})
				}
			}
			if n := other.port.delivered.Load(); n != 0 {
				t.Errorf("%d frames reached a session that nobody attacked", n)
			}
		})
	}
}

// timely runs a subtest, and ends the test if the subtest has failed after a time-out.
func timely(t *testing.T, name string, part func(t *testing.T)) {
	t.Helper()
	begun := time.Now()
	if !t.Run(name, part) && time.Since(begun) >= patience {
		t.Fatalf("%s has waited too long: what comes after it is left out", name)
	}
}

// run makes the attack on a new session.
func (a *localAttack) run(t *testing.T, f twoDevices, mode protocol.Mode, beside *healthy, foreign []protocol.Pool) {
	notReady := f.RNR()
	queues := 1
	v := newVictim(t, small(f.Victim, mode, f.Timing), func(v *victim, cfg *messaging.Config) {
		if a.prepare != nil {
			a.prepare(v, cfg)
		}
		queues = max(cfg.Queues, 1)
	})
	p := &attacker{NewPeer(t, PeerConfig{
		Device: f.Attacker, Mode: mode, Channels: queues, Timing: f.Timing, OneReceive: v.oneReceive,
	}), v, foreign}
	if v.bound {
		p.Surly = true // a reply would be a message before the proof
		v.meet(p.Peer, queues)
	} else {
		v.connect(p.Peer, queues)
	}
	p.Watch(v.conn.Done(), v.conn.Err)

	exchanged := make(chan error, 1)
	go func() { exchanged <- beside.exchange(p.ctx, besides) }()
	a.do(p)
	a.check(p, f)
	if err := <-exchanged; err != nil {
		t.Errorf("the session beside: %v", err)
	}
	if n := v.port.delivered.Load(); n != int64(a.Delivered) && a.Delivered >= 0 {
		t.Errorf("%d frames were delivered, not %d", n, a.Delivered)
	}
	if n := f.RNR() - notReady; n != 0 {
		t.Errorf("%d messages found no receive posted", n)
	}
}

// check checks the result of the attack.
func (a *localAttack) check(p *attacker, f twoDevices) {
	conn := p.victim.conn
	switch {
	case a.Code != "":
		err := p.victim.ended(p.ctx)
		var broken *messaging.ProtocolError
		if !errors.As(err, &broken) || !errors.Is(err, rules[a.Code]) || broken.Code() != a.Code ||
			broken.Channel != a.Channel {
			p.t.Errorf("the session ended with %v, want rule %q broken on channel %d", err, a.Code, a.Channel)
			return
		}
		testenv.Explained(p.t, broken.Code())
		testenv.Explained(p.t, err.Error())
	case p.victim.silence:
		err := p.victim.ended(p.ctx)
		var broken *messaging.ProtocolError
		if !errors.Is(err, messaging.ErrPeerSilent) || errors.As(err, &broken) {
			p.t.Errorf("the session ended with %v, want a silent peer", err)
		}
		testenv.Explained(p.t, err.Error())
	case a.Refused != nil:
		p.until(p.ctx, func() bool { return len(p.Refused) > 0 || p.Sent == p.Posted }, "the device to refuse")
		if len(p.Refused) == 0 {
			p.t.Error("the device has refused nothing")
			return
		}
		a.checkFailed(p, p.victim.ended(p.ctx))
		a.checkRefused(p, f.Traits)
	case a.Dropped:
		p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgKeepAlive}))
		p.victim.until(p.ctx, func() bool {
			p.poll()
			return len(p.Inbox) > 0 || conn.Err() != nil
		})
		if err := conn.Err(); err != nil {
			a.checkFailed(p, err)
		}
	default:
		p.Alive()
		if n := int64(a.Delivered); n > 0 {
			p.victim.until(p.ctx, func() bool { return p.victim.port.delivered.Load() >= n })
		}
		if err := conn.Err(); err != nil {
			p.t.Errorf("the session ended: %v", err)
		}
	}
}

// checkFailed checks that a session ended because of its device.
func (a *localAttack) checkFailed(p *attacker, err error) {
	var broken *messaging.ProtocolError
	var failed *fabric.WCError
	if errors.As(err, &broken) || !errors.As(err, &failed) {
		p.t.Errorf("the session ended with %v, want a queue pair that has failed", err)
	}
}

// checkRefused checks the status that the attacker's device reports.
func (a *localAttack) checkRefused(p *attacker, traits conform.Traits) {
	for _, e := range p.Refused {
		if !slices.Contains(a.Refused, e.Status) && !traits.Lost(e.Status) {
			p.t.Errorf("the device refused with %q, want one of %q", e.Status, a.Refused)
		}
	}
}

// covered fails the test unless there is an attack on every rule that a peer can break, in every mode
// in which the rule can be broken.
func covered(t *testing.T) {
	tried := make(map[string][]protocol.Mode)
	for _, a := range allAttacks() {
		tried[a.Code] = append(tried[a.Code], a.Modes...)
	}
	codes := messaging.Codes()
	for _, code := range codes {
		if rules[code] == nil {
			t.Errorf("rule %q is not known here", code)
		}
		for _, mode := range protocol.Modes() {
			if slices.Contains(tried[code], mode) == slices.Contains(meaningless[code], mode) {
				t.Errorf("rule %q in mode %s: an attack or a reason why there is none is missing, or there are both", code, mode)
			}
		}
	}
	for code := range rules {
		if !slices.Contains(codes, code) {
			t.Errorf("rule %q is none of package messaging's", code)
		}
	}
	for code := range tried {
		if code != "" && rules[code] == nil {
			t.Errorf("attacks on %q, which is no rule", code)
		}
	}
}

// healthy is a session of two correct endpoints, on the same devices as the sessions under attack.
type healthy struct {
	conns [2]*messaging.Conn
	wires [2]*porttest.Wire
}

func newHealthy(t testing.TB, a, b fabric.Device, mode protocol.Mode, timing fabric.Timing) *healthy {
	t.Helper()
	h := &healthy{}
	var ports [2]messaging.Port
	for i, dev := range []fabric.Device{a, b} {
		port, wire := porttest.New(t, 1<<18)
		ports[i], h.wires[i] = porttest.Batched{Single: port}, wire
		conn, err := messaging.New(small(dev, mode, timing))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := conn.Close(); err != nil {
				t.Errorf("close the session beside: %v", err)
			}
		})
		h.conns[i] = conn
	}
	for i, c := range h.conns {
		if err := c.Connect(h.conns[1-i].Addresses(), h.conns[1-i].ControlReceives()); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range h.conns {
		if err := c.Start([]messaging.Port{ports[i]}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// exchange sends n frames in each direction and expects them in order.
func (h *healthy) exchange(ctx context.Context, n int) error {
	var errs [4]error
	var wg sync.WaitGroup
	for i := range h.wires {
		from, to := h.wires[i], h.wires[1-i]
		wg.Go(func() {
			for k := 0; k < n && errs[2*i] == nil; k++ {
				f := frame(200)
				f[199] = byte(k)
				errs[2*i] = from.Send(ctx, f)
			}
		})
		wg.Go(func() {
			buf := make([]byte, vnet.MaxFrame)
			for k := 0; k < n && errs[2*i+1] == nil; k++ {
				var f []byte
				if f, errs[2*i+1] = to.Receive(ctx, buf); errs[2*i+1] == nil && (len(f) != 200 || f[199] != byte(k)) {
					errs[2*i+1] = errors.New("another frame arrived than was sent")
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs[:], h.conns[0].Err(), h.conns[1].Err())...)
}
