//go:build cgo

package e2e

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/hostiletest"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/verbs"
)

// attacks has the names of the attacks of package hostiletest that are made on the product, by
// mode. They have each way to break the protocol: in a message, in data, and at the device.
var attacks = map[protocol.Mode][]string{
	protocol.ModeImm: {
		"unknown function",
		"pool that wraps around the address space",
		"update with padding",
		"request with huge data",
		"pool lent twice",
		"update of an element that is not out",
		"return of a pool that was not lent",
		"reply to no request",
		"immediate data about a pool that was not lent",
		"element written twice",
		"more indicated than written",
		"frame with its checksum behind it",
		"write behind a pool",
		"control message longer than the receive",
	},
	protocol.ModeIndicate: {
		"immediate data where none belongs",
		"message where only writes belong",
		"more indications than elements",
	},
	protocol.ModeSend: {
		"message left out",
		"SendData of more than any frame",
		"flush where nothing is lent",
	},
	protocol.ModeSendUC: {
		"message far ahead",
		"more sent than there are elements",
	},
}

// attacker is a host that has the right key and breaks the protocol.
type attacker struct {
	r      *fixture
	device fabric.Device
	config session.ClientConfig
	// features has the features of the hello.
	features []string
}

func newAttacker(t testing.TB, r *fixture) *attacker {
	t.Helper()
	device, err := verbs.Open(hostDevice)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	key, err := session.LoadKey(r.keys.host)
	if err != nil {
		t.Fatal(err)
	}
	var trust session.Trust
	if err := trust.Add(r.keys.unitPrint); err != nil {
		t.Fatal(err)
	}
	security, err := session.NewSecurity(key, "", &trust)
	if err != nil {
		t.Fatal(err)
	}
	return &attacker{r, device, session.ClientConfig{Security: security, HandshakeTimeout: patience,
		PeerTimeout: patience}, []string{protocol.FeaturePack}}
}

// hello returns a valid hello.
func (a *attacker) hello(mode protocol.Mode) session.Hello {
	return session.Hello{Name: "attacker", Software: "test", Modes: []protocol.Mode{mode}, Queues: 1,
		Pools: mode.MaxPools(), MaxMTU: 1500, Features: a.features}
}

// attack opens a session correctly and then makes the attack. It returns the session's identifier
// and the bye with which the I/O unit ended it.
func (a *attacker) attack(
	t *testing.T, mode protocol.Mode, attack hostiletest.Attack,
) (id string, bye *session.ByeError) {
	t.Helper()
	return a.begin(t, mode, func(p *hostiletest.Peer, _ [session.BindingSize]byte) {
		p.Started()
		attack.Do(p)
	})
}

// begin is attack with a function that is called when the queue pairs are connected. do gets the
// binding secret of the connection.
func (a *attacker) begin(
	t *testing.T, mode protocol.Mode, do func(p *hostiletest.Peer, secret [session.BindingSize]byte),
) (id string, bye *session.ByeError) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := session.Dial(ctx, unitAddress, a.config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Hello(ctx, a.hello(mode))
	if err != nil {
		t.Fatal(err)
	}
	p := hostiletest.NewPeer(t, hostiletest.PeerConfig{
		Device: a.device, Mode: w.Mode, Channels: w.Queues, Timing: fabric.Timing{Timeout: 18},
	})
	accept := session.Accept{
		ControlReceives: protocol.ControlReceives(w.Mode, w.Queues, w.Pools), Channels: session.Channels(p.Addresses()),
	}
	if err := c.Accept(ctx, accept); err != nil {
		t.Fatal(err)
	}
	p.Connect(session.Addresses(w.Channels))
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	p.Watch(c.Done(), c.Err)
	secret, err := c.Binding()
	if err != nil {
		t.Fatal(err)
	}
	do(p, secret)
	select {
	case <-c.Done():
	case <-ctx.Done():
		t.Fatal("the I/O unit does not mind")
	}
	if err := c.Err(); !errors.As(err, &bye) {
		t.Fatalf("the session ended with %v and not with a bye", err)
	}
	return w.Session, bye
}

// violations returns the protocol violations that the I/O unit's status counts, by code.
func (r *fixture) violations() map[string]uint64 {
	r.t.Helper()
	var s struct {
		Violations map[string]uint64 `json:"protocol_violations"`
	}
	eventually(r.t, func() bool { return r.unit.toldInto(&s) }, "a status of the I/O unit")
	return s.Violations
}

// warnings returns the number of lines at level WARN that the I/O unit has logged about a session.
func (r *fixture) warnings(session string) int {
	r.t.Helper()
	text, err := os.ReadFile(r.unit.log)
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, session) {
			n++
		}
	}
	return n
}

// objects returns the RDMA objects of all processes, except memory regions. The number of regions
// changes with pools that are lent on request, and a leaked region would keep its protection domain.
func objects(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(userResources(t), func(object string) bool { return strings.HasPrefix(object, "mr ") })
}

// TestRDMAHostileHost makes each attack with the right key, on an I/O unit that serves another host.
// The I/O unit has to end the attacker's session with the right code, log one warning, count the
// violation and free everything. The other host must not be affected.
func TestRDMAHostileHost(t *testing.T) {
	r := newFixture(t, "macvtap")
	good := r.host(t)
	a := newAttacker(t, r)
	byName := make(map[string]hostiletest.Attack)
	for _, x := range hostiletest.Attacks() {
		byName[x.Name] = x
	}
	used := len(objects(t))
	if used == 0 {
		t.Fatal("there are no RDMA objects")
	}
	counted := map[string]uint64{}
	for _, mode := range protocol.Modes() {
		for _, name := range attacks[mode] {
			t.Run(string(mode)+"/"+name, func(t *testing.T) {
				x, ok := byName[name]
				if !ok || !x.In(mode) {
					t.Fatal("no such attack")
				}
				var beside sync.WaitGroup
				beside.Go(func() { ping(t, good.ns, addr(0), 5, 1000) })
				defer beside.Wait()
				id, bye := a.attack(t, mode, x)
				want := session.CodeFailed // only the device reports an error: it may not be the peer's fault
				if x.Code != "" {
					want = session.CodeProtocol
					counted[x.Code]++
				}
				if bye.Code != want {
					t.Errorf("the I/O unit says bye with code %q, not %q: %s", bye.Code, want, bye.Message)
				}
				eventually(t, func() bool { return len(r.macvtaps()) == 1 }, "what the I/O unit had for the attacker to go")
				eventually(t, func() bool { return r.warnings(id) > 0 }, "a warning about session %s", id)
				if n := r.warnings(id); n != 1 {
					t.Errorf("%d warnings about one session", n)
				}
				if got := r.violations(); !maps.Equal(got, counted) {
					t.Errorf("the status counts %v, not %v", got, counted)
				}
			})
		}
	}
	if s := good.hostStatus(); s.Sessions != 1 {
		t.Errorf("the host beside had to connect again: %d sessions", s.Sessions)
	}
	if now := objects(t); len(now) != used {
		t.Errorf("there are %d RDMA objects, %d before the attacks: %q", len(now), used, now)
	}
	t.Run("come back", func(t *testing.T) {
		n := r.host(t, "--host-name", "attacker")
		ping(t, n.ns, addr(0), 3, 1000)
		ping(t, n.ns, good.addr(), 3, 1000)
	})
}
