package endpoints

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// directs is an I/O unit with peers that exchange the messages about direct connections but set up
// none.
type directs struct {
	*shared
	stop *running
}

func newDirect(t *testing.T, change ...func(*iounit.Config)) *directs {
	t.Helper()
	w := newWorld(t)
	w.patience = testenv.Patience
	on := func(c *iounit.Config) { c.Direct, c.DirectGrace, c.DirectAnswer = true, time.Hour, time.Hour }
	u, stop := w.unit(append([]func(*iounit.Config){on}, change...)...)
	return &directs{&shared{t: t, world: w, unit: u}, stop}
}

// willing makes h the hello of a host that supports direct connections.
func willing(h *session.Hello) {
	h.Features = append(h.Features, protocol.FeatureBind, protocol.FeatureDirect)
}

func (s *directs) peer(name string, change ...func(*session.Hello)) *peer {
	s.t.Helper()
	return s.shared.peer(name, append(change, willing)...)
}

// hears waits for the next message, which has to be of this step, and returns it.
func (p *peer) hears(step session.DirectStep) *session.Direct {
	p.t.Helper()
	select {
	case d := <-p.told:
		if d.Step != step {
			p.t.Fatalf("told %+v, want %q", d, step)
		}
		return d
	case <-p.c.Done():
		p.t.Fatalf("waiting for %q: %v", step, p.c.Err())
	case <-time.After(testenv.Patience):
		p.t.Fatalf("not told %q", step)
	}
	return nil
}

// says sends a message of this step about connection id.
func (p *peer) says(step session.DirectStep, id session.DirectID, change ...func(*session.Direct)) {
	p.t.Helper()
	d := &session.Direct{Step: step, ID: id}
	if step == session.DirectAccept {
		d.ControlReceives = protocol.ControlReceives(protocol.ModeImm, 1, protocol.MaxChannelPools)
		mac := p.welcome.MAC
		for i := range 2 {
			d.Channels = append(d.Channels, session.Channel{QPN: 100 + uint32(mac[5])<<1 + uint32(i), MTU: 1024})
		}
	}
	for _, c := range change {
		c(d)
	}
	if err := p.c.SendDirect(d, time.Minute); err != nil {
		p.t.Fatal(err)
	}
}

// flows sends a frame to another host.
func (p *peer) flows(to *peer) {
	p.t.Helper()
	f := from(p.t, p.welcome.MAC.String(), frame(100, 1))
	copy(f[vnet.HdrLen:], to.welcome.MAC[:])
	p.send(f)
}

// offered sends a frame now and then until both hosts have an offer, and returns the offer's ID.
func (s *directs) offered(a, b *peer) session.DirectID {
	s.t.Helper()
	var last time.Time
	testenv.Eventually(s.t, func() bool {
		if now := time.Now(); now.Sub(last) > 100*time.Millisecond { // the two hosts may rest
			last = now
			a.flows(b)
		}
		return len(a.told) > 0
	}, "an offer")
	x, y := a.hears(session.DirectOffer), b.hears(session.DirectOffer)
	if x.ID != y.ID || x.Peer.Platform != b.c.Platform() || y.Peer.Platform != a.c.Platform() {
		s.t.Fatalf("offered %+v and %+v", x, y)
	}
	return x.ID
}

func (s *directs) connecting(a, b *peer) session.DirectID {
	s.t.Helper()
	id := s.offered(a, b)
	a.says(session.DirectAccept, id)
	b.says(session.DirectAccept, id)
	a.hears(session.DirectConnect)
	b.hears(session.DirectConnect)
	return id
}

func (s *directs) started(a, b *peer) session.DirectID {
	s.t.Helper()
	id := s.connecting(a, b)
	a.says(session.DirectReady, id)
	b.says(session.DirectReady, id)
	a.hears(session.DirectStart)
	b.hears(session.DirectStart)
	return id
}

// ended expects the end of the connection at both hosts, and answers for them.
func (s *directs) ended(a, b *peer, id session.DirectID, reason string) {
	s.t.Helper()
	for _, p := range []*peer{a, b} {
		if d := p.hears(session.DirectEnd); d.ID != id || d.Reason != reason {
			s.t.Fatalf("told %+v, want the reason %q", d, reason)
		}
	}
	a.says(session.DirectEnded, id)
	b.hears(session.DirectEnded)
	b.says(session.DirectEnded, id)
	a.hears(session.DirectEnded)
}

// TestDirectExchange takes two hosts through all steps, twice.
func TestDirectExchange(t *testing.T) {
	s := newDirect(t)
	a, b := s.peer("alpha"), s.peer("beta")
	for range 2 {
		id := s.started(a, b)
		a.says(session.DirectEnd, id, func(d *session.Direct) { d.Reason = "no more" })
		if d := b.hears(session.DirectEnd); d.Reason != "no more" {
			t.Errorf("%+v", d)
		}
		a.says(session.DirectEnded, id)
		b.hears(session.DirectEnded)
		b.says(session.DirectEnded, id)
		a.hears(session.DirectEnded)
	}
}

// TestDirectWithdrawn expects the I/O unit to end a connection, for each cause, without any
// other event.
func TestDirectWithdrawn(t *testing.T) {
	for name, tt := range map[string]struct {
		do     func(s *directs, a, b *peer)
		reason string
	}{
		"policy":      {func(s *directs, _, _ *peer) { s.unit.SetPolicy(rules(s.t, "default: {direct: no}")) }, "policy"},
		"rate":        {func(s *directs, _, _ *peer) { s.unit.SetPolicy(rules(s.t, "default: {max-tx-rate: 1G}")) }, "rate"},
		"ips":         {func(s *directs, _, _ *peer) { s.unit.SetPolicy(rules(s.t, "default: {ips: 192.0.2.0/24}")) }, "ips"},
		"nested tags": {func(s *directs, _, _ *peer) { s.unit.SetPolicy(rules(s.t, "default: {nested-tags: no}")) }, "nested-tags"},
		"share":       {func(s *directs, _, _ *peer) { s.unit.SetPolicy(rules(s.t, "default: {share: x}")) }, "share"},
		"promiscuous": {func(_ *directs, a, _ *peer) { a.filter(protocol.ReceiveFilter{Promisc: true}, protocol.CfgOK) }, "promiscuous"},
		"VLANs":       {func(_ *directs, a, _ *peer) { a.vlans("5", protocol.CfgOK) }, "vlans"},
		"MTU": {func(_ *directs, _, b *peer) {
			b.ask("MTU", protocol.CfgMTU, protocol.AppendMTU(nil, 1400), protocol.CfgOK)
		}, "mtu"},
		"address": {func(_ *directs, a, _ *peer) {
			a.ask("address", protocol.CfgMAC, protocol.AppendMAC(nil, testMAC(9)), protocol.CfgOK)
		}, "address"},
		"further address": {func(_ *directs, _, b *peer) {
			b.filter(protocol.ReceiveFilter{AllMulti: true, Unicast: []protocol.MAC{testMAC(8)}}, protocol.CfgOK)
		}, "address"},
		"down": {func(_ *directs, a, _ *peer) { a.up(false) }, "down"},
		"link": {func(s *directs, _, _ *peer) {
			s.world.card.change(func(l *lan.LinkState) { l.Up = false })
		}, "link-down"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDirect(t, ruled(t, "default: {macs: any, promiscuous: yes}"))
			a, b := s.peer("alpha"), s.peer("beta")
			id := s.started(a, b)
			tt.do(s, a, b)
			s.ended(a, b, id, tt.reason)
		})
	}
}

// TestDirectGone ends or revokes one host. The other host has to be told the end of the
// connection, and that its peer has ended it, too.
func TestDirectGone(t *testing.T) {
	for name, do := range map[string]func(s *directs, b *peer){
		"bye":     func(_ *directs, b *peer) { b.close() },
		"dead":    func(_ *directs, b *peer) { b.c.Close() },
		"revoked": func(s *directs, _ *peer) { s.world.trusts(s.world.hostKey.Fingerprint().String()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newDirect(t)
			other := s.world.key()
			s.world.trusts(s.world.hostKey.Fingerprint().String(), other.Fingerprint().String())
			a := s.peer("alpha")
			s.world.hostKey, other = other, s.world.hostKey
			b := s.peer("beta")
			s.world.hostKey = other
			id := s.started(a, b)
			do(s, b)
			if d := a.hears(session.DirectEnd); d.ID != id || d.Reason != "gone" {
				t.Errorf("%+v", d)
			}
			a.hears(session.DirectEnded)
			a.says(session.DirectEnded, id)
		})
	}
}

// TestDirectHeld connects two hosts that have a direct connection since they were at another I/O
// unit, and expects that they may keep it.
func TestDirectHeld(t *testing.T) {
	s := newDirect(t)
	a, b := s.peer("alpha"), s.peer("beta")
	for p, other := range map[*peer]*peer{a: b, b: a} {
		p.says(session.DirectHeld, 77, func(d *session.Direct) { d.Platform = other.c.Platform() })
	}
	for p, other := range map[*peer]*peer{a: b, b: a} {
		if d := p.hears(session.DirectKeep); d.Peer.Name != other.name || !slices.Contains(d.Peer.MACs, other.welcome.MAC) {
			t.Errorf("%+v", d.Peer)
		}
	}
	s.unit.SetPolicy(rules(t, "default: {direct: no}"))
	s.ended(a, b, 77, "policy")
}

// TestDirectNames connects a host with one that has chosen the name of a third. It must be told a name
// that the other one has not chosen, unless they have the same key. The I/O unit shows both names.
func TestDirectNames(t *testing.T) {
	for name, c := range map[string]struct {
		as    string // name of the other host's entry in the list of trusted keys
		alike bool   // both have the same key
		want  func(k *session.Key) string
	}{
		"trusted under a name": {as: "beta", want: func(*session.Key) string { return "beta" }},
		"trusted by its key": {want: func(k *session.Key) string {
			return strings.ReplaceAll(k.Fingerprint().String(), ":", "-")
		}},
		"the same key": {as: "alpha", alike: true, want: func(*session.Key) string { return "gamma" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDirect(t)
			own, other := s.world.hostKey, s.world.key()
			if c.alike {
				other = own
			}
			s.world.trusts("gamma="+s.world.key().Fingerprint().String(), "alpha="+own.Fingerprint().String(),
				strings.TrimPrefix(c.as+"="+other.Fingerprint().String(), "="))
			a := s.peer("alpha")
			s.world.hostKey = other
			b := s.peer("gamma")
			a.says(session.DirectHeld, 77, func(d *session.Direct) { d.Platform = b.c.Platform() })
			b.says(session.DirectHeld, 77, func(d *session.Direct) { d.Platform = a.c.Platform() })
			if got, want := a.hears(session.DirectKeep).Peer.Name, c.want(other); got != want {
				t.Errorf("told %q, want %q", got, want)
			}
			if got := b.hears(session.DirectKeep).Peer.Name; got != "alpha" {
				t.Errorf("the other host is told %q", got)
			}
			for _, h := range s.unit.Status().Hosts {
				if h.Name == "gamma" && h.TrustedAs != c.as {
					t.Errorf("the I/O unit shows that it is trusted as %q", h.TrustedAs)
				}
			}
		})
	}
}

// TestDirectKeptAtTheEnd stops the I/O unit, and expects that its hosts are not told to end their
// directs connection.
func TestDirectKeptAtTheEnd(t *testing.T) {
	s := newDirect(t)
	a, b := s.peer("alpha"), s.peer("beta")
	s.started(a, b)
	if err := s.stop.stop(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*peer{a, b} {
		<-p.c.Done()
		select {
		case d := <-p.told:
			t.Errorf("told %+v", d)
		default:
		}
	}
}

// TestDirectNotGranted expects that the feature is not granted if it is off, or if the hello does
// not have all that it requires, and that a message about it is then a protocol violation.
func TestDirectNotGranted(t *testing.T) {
	t.Run("off", func(t *testing.T) {
		off := newDirect(t, func(c *iounit.Config) { c.Direct = false })
		if p := off.peer("alpha"); p.welcome.Grants(protocol.FeatureDirect) {
			t.Error("granted, although it is off")
		}
	})
	s := newDirect(t) // after that subtest: a world checks for goroutines that are newer than it
	unbound := s.shared.peer("unbound", func(h *session.Hello) { h.Features = append(h.Features, protocol.FeatureDirect) })
	old := s.shared.peer("old", func(h *session.Hello) { h.Features = append(h.Features, protocol.FeatureBind) })
	for _, p := range []*peer{unbound, old} {
		if p.welcome.Grants(protocol.FeatureDirect) {
			t.Error("granted to a host without what it takes")
		}
	}
	if err := old.c.SendDirect(&session.Direct{Step: session.DirectEnd, ID: 1}, time.Minute); err != nil {
		t.Fatal(err)
	}
	<-old.c.Done()
	if bye := (*session.ByeError)(nil); !errors.As(old.c.Err(), &bye) || bye.Code != session.CodeProtocol {
		t.Errorf("%v", old.c.Err())
	}
}
