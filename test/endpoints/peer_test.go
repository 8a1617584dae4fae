package endpoints

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// peer is a host without a netdevice: the test sees all its frames and makes all its requests.
type peer struct {
	t       *testing.T
	name    string
	c       *session.Client
	conn    *messaging.Conn
	wire    *porttest.Wire
	welcome session.Welcome
	told    chan *session.Direct // about direct connections
}

// peer connects a peer and waits for it in the I/O unit's status. Its requests are answered a
// little before the status shows it.
func (s *shared) peer(name string, change ...func(*session.Hello)) *peer {
	s.t.Helper()
	p, err := s.tryPeer(name, change...)
	if err != nil {
		s.t.Fatal(err)
	}
	testenv.Eventually(s.t, func() bool {
		return slices.ContainsFunc(s.unit.Status().Hosts, func(h iounit.HostStatus) bool { return h.Name == name })
	}, "a status with the host %q", name)
	return p
}

func (s *shared) tryPeer(name string, change ...func(*session.Hello)) (*peer, error) {
	t, w := s.t, s.world
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	c, err := session.Dial(ctx, w.addr, session.ClientConfig{
		Security: w.security(w.hostKey, w.unitKey), HandshakeTimeout: testenv.Patience, PeerTimeout: testenv.Patience,
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	dev := w.fabric.Device(name)
	t.Cleanup(func() { dev.Close() })
	cfg := messaging.Config{Device: dev, PeerTimeout: time.Minute}
	hello := session.Hello{
		Name: name, Software: "test", Modes: []protocol.Mode{protocol.ModeImm}, Queues: 1, Pools: cfg.Lends(),
		MaxMTU: 1500, Offloads: vnet.AllOffloads, Features: []string{protocol.FeaturePack},
	}
	for _, f := range change {
		f(&hello)
	}
	p := &peer{t: t, name: name, c: c}
	if p.welcome, err = c.Hello(ctx, hello); err != nil {
		return nil, err
	}
	cfg.Mode, cfg.PeerPools, cfg.MTU = p.welcome.Mode, p.welcome.Pools, p.welcome.MTU
	cfg.NoPack = !slices.Contains(p.welcome.Features, protocol.FeaturePack)
	if p.welcome.Grants(protocol.FeatureBind) {
		secret, err := c.Binding()
		if err != nil {
			return nil, err
		}
		cfg.Bind = messaging.NewBinding(secret, true)
	}
	if p.welcome.Grants(protocol.FeatureDirect) {
		p.told = make(chan *session.Direct, 2*floodedWith) // the handler must not block the connection
		c.HandleDirect(func(d *session.Direct) { p.told <- d })
	}
	if p.conn, err = messaging.New(cfg); err != nil {
		return nil, err
	}
	t.Cleanup(p.close)
	accept := session.Accept{
		ControlReceives: p.conn.ControlReceives(), Channels: session.Channels(p.conn.Addresses()),
	}
	if err := c.Accept(ctx, accept); err != nil {
		return nil, err
	}
	err = errors.Join(p.conn.Connect(session.Addresses(p.welcome.Channels), p.welcome.ControlReceives), c.Ready(ctx))
	if err != nil {
		return nil, err
	}
	port, wire := porttest.New(t, 1<<20)
	p.wire = wire
	return p, p.conn.Start([]messaging.Port{porttest.Batched{Single: port}})
}

// close ends the session as a host that is told to end does.
func (p *peer) close() {
	_ = p.c.Bye(session.CodeShuttingDown, "") // the unit may be gone
	if err := p.conn.Close(); err != nil {
		p.t.Error(err)
	}
}

// ask makes a request and returns the reply, whose status has to be want.
func (p *peer) ask(what string, t protocol.CfgType, data []byte, want protocol.CfgStatus) []byte {
	p.t.Helper()
	reply, err := p.conn.Request(p.t.Context(), t, data)
	got := protocol.CfgOK
	var status *messaging.StatusError
	if errors.As(err, &status) {
		got = status.Status
	} else if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	if got != want {
		p.t.Fatalf("%s: %v, want %v", what, got, want)
	}
	return reply
}

func (p *peer) filter(f protocol.ReceiveFilter, want protocol.CfgStatus) {
	p.t.Helper()
	p.ask("filter", protocol.CfgFilter, protocol.AppendReceiveFilter(nil, f), want)
}

func (p *peer) vlans(list string, want protocol.CfgStatus) {
	p.t.Helper()
	set, err := protocol.ParseVLANs(list)
	if err != nil {
		p.t.Fatal(err)
	}
	p.ask("VLANs "+list, protocol.CfgVLAN, protocol.AppendVLANSet(nil, set), want)
}

func (p *peer) up(up bool) {
	p.t.Helper()
	p.ask("link state", protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: up}), protocol.CfgOK)
}

// send sends a frame from the host.
func (p *peer) send(f []byte) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), testenv.Patience)
	defer cancel()
	if err := p.wire.Send(ctx, f); err != nil {
		p.t.Fatal(err)
	}
}

// marks receives frames until the one with mark last, and returns all marks.
func (p *peer) marks(last byte) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), testenv.Patience)
	defer cancel()
	var got []byte
	buf := make([]byte, 1<<17)
	for {
		f, err := p.wire.Receive(ctx, buf)
		if err != nil {
			p.t.Fatalf("after the frames %q: %v", got, err)
		}
		if m, ok := markOf(f); ok {
			got = append(got, m)
			if m == last {
				return string(got)
			}
		}
	}
}
