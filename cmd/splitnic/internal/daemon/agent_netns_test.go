package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// agentFixture has an agent and an I/O unit in this process, on a fabric in memory. The
// netdevices and the bridge are those of the kernel.
type agentFixture struct {
	t      testing.TB
	fabric *fabrictest.Network
	unit   *iounit.Unit
	lan    string // namespace of the I/O unit's bridge
	store  *fdStore
	cfg    Agent
	sock   string
	agent  *agent
	stop   func()
}

// smallPools are small enough for many sessions in one process.
var smallPools = []messaging.PoolConfig{
	{ElementSize: 2048, Elements: 64}, {ElementSize: protocol.MaxImmElementSize, Elements: 4},
}

const agentPolicy = "default: {max-sessions: 1000, macs: any}"

func newAgentFixture(t testing.TB, change ...func(*iounit.Config)) *agentFixture {
	t.Helper()
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	return newAgentAt(t, t.TempDir(), agentLAN(t), &fdStore{held: map[string]int{}}, change...)
}

// agentLAN makes a bridge, br0, in a new namespace.
func agentLAN(t testing.TB) (ns string) {
	t.Helper()
	ns = testenv.NetNS(t)
	testenv.Bridge(t, ns, "br0")
	testenv.Address(t, ns, "br0", "10.78.0.1/16")
	return ns
}

// newAgentAt starts an agent with its state and sockets in dir, which may have those of an
// earlier agent.
func newAgentAt(t testing.TB, dir, lan string, store *fdStore, change ...func(*iounit.Config)) *agentFixture {
	t.Helper()
	f := &agentFixture{t: t, fabric: fabrictest.New(), lan: lan, store: store}
	var keys [2]*session.Key
	for i := range keys {
		var err error
		if keys[i], err = session.GenerateKey(); err != nil {
			t.Fatal(err)
		}
	}
	keyFile := filepath.Join(dir, "key.pem")
	if err := errors.Join(os.RemoveAll(keyFile), session.SaveKey(keyFile, keys[1])); err != nil {
		t.Fatal(err)
	}
	addr := f.startUnit(keys[0], keys[1], change)
	f.sock = filepath.Join(dir, "agent.sock")
	f.cfg = Agent{MaxCards: 256, Host: Host{
		State: filepath.Join(dir, "state"),
		Common: Common{
			Keys: Keys{Key: keyFile, Trust: []string{keys[0].Fingerprint().String()}}, Queues: 1,
			Handlers: Handlers{Budget: cq.DefaultBudget}, HandshakeTimeout: time.Minute, StatusSocket: f.sock,
			Messaging: messaging.Config{PeerTimeout: time.Minute, Pools: smallPools},
		},
		IOUnits: []string{addr}, MaxMTU: 1500, Offloads: vnet.AllOffloads, Modes: []protocol.Mode{protocol.ModeImm},
		TxQueueLen: 512,
		Direct:     Direct{direct.Settings{On: true, Peers: 4, Idle: time.Minute, Grace: time.Second}, 64 << 20},
	}}
	f.cfg.Reread = func() (Sources, []string, error) { return Sources{Keys: f.cfg.Keys}, nil, nil }
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

// startUnit starts an I/O unit and returns its address.
func (f *agentFixture) startUnit(own, peer *session.Key, change []func(*iounit.Config)) (addr string) {
	t := f.t
	t.Helper()
	rules, err := policy.Parse("policy.yaml", []byte(agentPolicy))
	if err != nil {
		t.Fatal(err)
	}
	dev := f.fabric.Device("unit")
	card, err := lan.NewCard("tap:br0", f.lan)
	if err != nil {
		t.Fatal(err)
	}
	cfg := iounit.Config{
		Name: "unit", Software: "test", Device: dev, MaxHosts: 512, Policy: rules,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		LinkState: func() (lan.LinkState, error) { return lan.LinkState{Up: true, MTU: 1500}, nil },
		Messaging: messaging.Config{PeerTimeout: time.Minute, Pools: smallPools},
		Log:       slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	if f.unit, err = iounit.New(cfg); err != nil {
		t.Fatal(err)
	}
	trust := &session.Trust{}
	if err := trust.Add(peer.Fingerprint().String()); err != nil {
		t.Fatal(err)
	}
	security, err := session.NewSecurity(own, "", trust)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := session.Listen(testenv.Loopback()+":0", session.ServerConfig{
		Security: security, Burst: f.unit.Burst, Rejected: f.unit.Rejected, MaxHandshakes: 512,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- errors.Join(f.unit.Run(ctx, ln), ln.Close(), dev.Close()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

// start starts the agent, also after stop, and waits until it answers.
func (f *agentFixture) start() {
	f.t.Helper()
	log := slog.New(slog.DiscardHandler)
	c := f.cfg
	f.agent = newAgent(&c, f.store, log, func(name string) (fabric.Device, uint8, error) {
		switch name {
		case "":
			name = "host"
		case "missing0":
			_, err := ChooseDevice(name, []string{"host"})
			return nil, 0, err
		}
		return f.fabric.Device(name), 0, nil
	})
	state, err := cards.OpenStore(filepath.Join(c.State, "cards"))
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	a := f.agent
	go func() { done <- errors.Join(a.run(ctx, state), a.close(), state.Close()) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	})
	testenv.Eventually(f.t, func() bool { _, err := statussock.Read(f.t.Context(), f.sock); return err == nil },
		"the agent answering")
}

func (f *agentFixture) client() cards.Client { return cards.Client(f.sock) }

// connected waits until n cards are connected.
func (f *agentFixture) connected(n int) {
	f.t.Helper()
	// This takes long with the race detector beside other tests.
	deadline := time.Now().Add(2*time.Minute + time.Duration(n)*time.Second)
	for f.agent.states()[cards.Connected] != n {
		if time.Now().After(deadline) {
			f.t.Fatalf("%v instead of %d cards connected", f.agent.states(), n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestNetnsAgentMany adds and removes 50 cards in parallel, each in its own network namespace,
// all with the same netdevice name. It expects that nothing of them is left.
func TestNetnsAgentMany(t *testing.T) {
	const many = 50
	f := newAgentFixture(t)
	spaces := make([]string, many)
	for i := range spaces {
		spaces[i] = testenv.NetNS(t)
	}
	each := func(do func(ctx context.Context, i int) error) {
		t.Helper()
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				if err := do(context.Background(), i); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	add := func(ctx context.Context, i int) error {
		_, err := f.client().Add(ctx, &cards.Spec{Name: fmt.Sprint("pod", i), Netdevice: "eth0", NetNS: spaces[i]})
		return err
	}
	each(add)
	f.connected(many)
	each(add) // the cards exist already
	macs := map[string]bool{}
	l, _, err := f.client().List(t.Context())
	if err != nil || len(l.Cards) != many {
		t.Fatalf("%d cards, %v", len(l.Cards), err)
	}
	for _, c := range l.Cards {
		macs[c.Status.MAC] = true
	}
	if len(macs) != many {
		t.Errorf("%d cards have %d MAC addresses", many, len(macs))
	}
	testenv.Address(t, spaces[7], "eth0", "10.78.0.2/16")
	testenv.Run(t, spaces[7], "ping", "-c", "1", "-W", "10", "10.78.0.1")
	each(func(ctx context.Context, i int) error { return f.client().Del(ctx, fmt.Sprint("pod", i)) })
	for _, ns := range spaces {
		if links := testenv.Links(t, ns); !slices.Equal(links, []string{"lo"}) {
			t.Errorf("%v is left", links)
		}
	}
	testenv.Eventually(t, func() bool { return len(f.unit.Status().Hosts) == 0 }, "an I/O unit without hosts")
	if files, err := filepath.Glob(filepath.Join(filepath.Dir(f.sock), "host-*")); err != nil || len(files) > 0 {
		t.Errorf("sockets are left: %v, %v", files, err)
	}
	if files, err := os.ReadDir(filepath.Join(f.cfg.State, "cards")); err != nil || len(files) > 0 {
		t.Errorf("%v, %v in the state directory", files, err)
	}
}

// TestNetnsAgentFull adds as many cards as an agent may have by default, 256. It expects a
// session, carrier and a different MAC address for each, and one card more to be rejected until
// another one is removed.
func TestNetnsAgentFull(t *testing.T) {
	f := newAgentFixture(t)
	most := f.cfg.MaxCards
	if most != 256 {
		t.Fatalf("the agent may have %d cards", most)
	}
	spaces := make([]string, most)
	for i := range spaces {
		spaces[i] = testenv.NetNS(t)
	}
	add := func(i int) error {
		_, err := f.client().Add(t.Context(), &cards.Spec{Name: fmt.Sprint("card", i), Netdevice: "eth0",
			NetNS: spaces[i%most]})
		return err
	}
	del := func(i int) error { return f.client().Del(t.Context(), fmt.Sprint("card", i)) }
	each := func(do func(i int) error) {
		t.Helper()
		var all errgroup.Group
		all.SetLimit(8)
		for i := range most {
			all.Go(func() error { return do(i) })
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	each(add)
	f.connected(most)
	t.Logf("%d cards connected after %v", most, time.Since(began).Round(time.Millisecond))
	macs := map[string]bool{}
	for _, i := range f.agent.set.List() {
		macs[i.Status.MAC] = true
		if !i.Status.Carrier {
			t.Errorf("%s has no carrier", i.Spec.Name)
		}
	}
	if hosts := len(f.unit.Status().Hosts); len(macs) != most || hosts != most {
		t.Errorf("%d cards have %d MAC addresses, and the I/O unit has %d hosts", most, len(macs), hosts)
	}
	var refused *cards.Refused
	if err := add(most); !errors.As(err, &refused) || refused.Code != cards.Full {
		t.Errorf("one card more: %v", err)
	}
	if err := errors.Join(del(7), add(7)); err != nil {
		t.Error(err)
	}
	f.connected(most)
	each(del)
	for _, ns := range spaces {
		if links := testenv.Links(t, ns); !slices.Equal(links, []string{"lo"}) {
			t.Errorf("%v is left", links)
		}
	}
	testenv.Eventually(t, func() bool { return len(f.unit.Status().Hosts) == 0 }, "an I/O unit without hosts")
}

// TestNetnsAgentRestart restarts an agent without a service manager that keeps the netdevices.
// It expects the next agent to make the cards again.
func TestNetnsAgentRestart(t *testing.T) {
	f := newAgentFixture(t)
	ns, gone := testenv.NetNS(t), fmt.Sprintf("sntest-gone-%d", os.Getpid())
	if err := netns.New(gone); err != nil {
		t.Fatal(err)
	}
	// Container runtimes name namespaces by the number of a process.
	thread := fmt.Sprintf("/proc/%d/ns/net", os.Getpid())
	for name, spec := range map[string]cards.Spec{
		"pod": {NetNS: ns}, "gone": {NetNS: gone}, "own": {NetNS: thread, Netdevice: "sntest0", NewKey: true},
	} {
		spec.Name = name
		if _, err := f.client().Add(t.Context(), &spec); err != nil {
			t.Fatal(err)
		}
	}
	f.connected(2) // the I/O unit does not trust the new key
	before, _ := f.agent.set.Get("own")
	f.stop()
	if link := testenv.Link(t, ns, "pod"); link != nil {
		t.Errorf("%v is there without the agent", link.Attrs())
	}
	if err := netns.Delete(gone); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.connected(1)
	if i, _ := f.agent.set.Get("own"); i.Status.Fingerprint != before.Status.Fingerprint || i.Status.Fingerprint == "" {
		t.Errorf("the key made for a card was %s and is %s", before.Status.Fingerprint, i.Status.Fingerprint)
	}
	if i, _ := f.agent.set.Get("gone"); i.Status.State != cards.Failed || !strings.Contains(i.Status.Error, "netns: ") {
		t.Errorf("the card whose namespace is gone is %+v", i.Status)
	}
	metrics := scraped(f.agent.metrics())
	for _, want := range []string{`card="pod"} 1`, `card="own"} 0`, `card="gone"} 0`} {
		if want = "splitnic_connected{" + want + "\n"; !strings.Contains(metrics, want) {
			t.Errorf("there is no %s in\n%s", want, metrics)
		}
	}
	if link := testenv.Link(t, ns, "pod"); link == nil {
		t.Error("the netdevice is not there again")
	}
	for _, name := range []string{"pod", "gone", "own"} {
		if err := f.client().Del(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if files, err := os.ReadDir(filepath.Join(f.cfg.State, "keys")); err != nil || len(files) > 0 {
		t.Errorf("%v, %v: the key made for a card is left", files, err)
	}
}

// TestNetnsAgentDeleted deletes the netdevice of a card. It expects the card to be made again,
// and another card not to be affected.
func TestNetnsAgentDeleted(t *testing.T) {
	f := newAgentFixture(t)
	ns := testenv.NetNS(t)
	for _, name := range []string{"a", "b"} {
		if _, err := f.client().Add(t.Context(), &cards.Spec{Name: name, NetNS: ns}); err != nil {
			t.Fatal(err)
		}
	}
	f.connected(2)
	b, _ := f.agent.set.Get("b")
	index := testenv.Link(t, ns, "a").Attrs().Index
	link := testenv.Link(t, ns, "a")
	testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkDel(link) })
	testenv.Eventually(t, func() bool {
		link := testenv.Link(t, ns, "a")
		return link != nil && link.Attrs().Index != index
	}, "another a")
	f.connected(2)
	if i, _ := f.agent.set.Get("b"); !i.Status.Since.Equal(b.Status.Since) {
		t.Errorf("b is connected since %v, and was since %v", i.Status.Since, b.Status.Since)
	}
}

// TestNetnsAgentFields adds cards that this machine cannot have. It expects errors that name the
// field.
func TestNetnsAgentFields(t *testing.T) {
	f := newAgentFixture(t)
	ns := testenv.NetNS(t)
	if _, err := f.client().Add(t.Context(), &cards.Spec{Name: "a", NetNS: ns, Netdevice: "eth0"}); err != nil {
		t.Fatal(err)
	}
	refuses := func(field string, spec *cards.Spec) {
		t.Helper()
		_, err := f.client().Add(t.Context(), spec)
		var refused *cards.Refused
		if !errors.As(err, &refused) || refused.Code != cards.Invalid || refused.Field != field {
			t.Errorf("%s: %v", field, err)
			return
		}
		testenv.Ended(t, exit.Usage, err.Error())
	}
	for field, spec := range map[string]cards.Spec{
		"netns":     {Name: "b", NetNS: "no-such-namespace"},
		"netdevice": {Name: "b", NetNS: ns, Netdevice: "eth0"},
		"key":       {Name: "b", NetNS: ns, Key: "/no/such/key.pem"},
		"device":    {Name: "b", NetNS: ns, Device: "missing0"},
	} {
		refuses(field, &spec)
	}
	if links := testenv.Links(t, ns); !slices.Equal(links, []string{"lo", "eth0"}) {
		t.Errorf("%v is there", links)
	}
	f.stop()
	f.cfg.IOUnits = nil
	f.start()
	refuses("iounits", &cards.Spec{Name: "b", NetNS: ns})
}

// usage returns the processor time of this process, and how often its threads went to sleep.
func usage(t testing.TB) (used time.Duration, sleeps int64) {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Nvcsw
}

// reportCost reports, under the name what, the processor time that the process uses in d, in
// percent of one processor, and how often its threads go to sleep.
func reportCost(b *testing.B, d time.Duration, what string) {
	used, sleeps := usage(b)
	time.Sleep(d)
	used2, sleeps2 := usage(b)
	b.ReportMetric(100*float64(used2-used)/float64(d), "%"+what)
	b.ReportMetric(float64(sleeps2-sleeps)/d.Seconds(), what+"-sleeps/s")
}

// BenchmarkNetnsAgent makes CARDS cards (default 256) one after the other, each in its own
// network namespace, waits until all are connected, leaves them idle, and removes them. The
// costs are those of both endpoints together. They are measured for ten seconds ("settling"), in
// which the announcements of each card by the kernel and the I/O unit go to all others, and
// later, when IPv6 rarely sends router solicitations, for twenty seconds ("idle").
func BenchmarkNetnsAgent(b *testing.B) {
	many := 256
	if s := os.Getenv("CARDS"); s != "" {
		if _, err := fmt.Sscan(s, &many); err != nil {
			b.Fatal(err)
		}
	}
	f := newAgentFixture(b)
	spaces := make([]string, many)
	for i := range spaces {
		spaces[i] = testenv.NetNS(b)
	}
	for b.Loop() {
		began := time.Now()
		for i, ns := range spaces {
			if _, err := f.client().Add(b.Context(), &cards.Spec{
				Name: fmt.Sprint("pod", i), Netdevice: "eth0", NetNS: ns,
			}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(many)/time.Since(began).Seconds(), "made/s")
		f.connected(many)
		b.ReportMetric(float64(many)/time.Since(began).Seconds(), "connected/s")
		reportCost(b, 10*time.Second, "settling")
		time.Sleep(50 * time.Second)
		reportCost(b, 20*time.Second, "idle")
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapInuse)/float64(many)/1e6, "heap-MB/card")
		began = time.Now()
		for i := range spaces {
			if err := f.client().Del(b.Context(), fmt.Sprint("pod", i)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(many)/time.Since(began).Seconds(), "removed/s")
	}
}

// whileOpening is a device that calls do while a card is made on it.
type whileOpening struct {
	fabric.Device
	do func()
}

func (d whileOpening) Limits() fabric.Limits {
	d.do()
	return d.Device.Limits()
}

// TestNetnsAgentReloadsWhatIsMade withdraws trust with a reload while a card is made. It expects
// the card not to use the trust that it has read before.
func TestNetnsAgentReloadsWhatIsMade(t *testing.T) {
	f := newAgentFixture(t)
	other, err := session.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	before := f.cfg.Keys.Trust[0]
	f.agent.cfg.Reread = func() (Sources, []string, error) {
		keys := f.cfg.Keys
		keys.Trust = []string{other.Fingerprint().String()}
		return Sources{Keys: keys}, nil, nil
	}
	reload := sync.OnceFunc(func() {
		if _, err := f.agent.reload(); err != nil {
			t.Error(err)
		}
	})
	f.agent.mu.Lock()
	f.agent.devices["second"] = sharedDevice{Device: whileOpening{f.fabric.Device("second"), reload}}
	f.agent.mu.Unlock()
	spec := &cards.Spec{Name: "pod", NetNS: testenv.NetNS(t), Device: "second"}
	if _, err := f.client().Add(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	for _, c := range f.agent.present() {
		if c.reloads.security.Knows(before) {
			t.Error("the card trusts whom nobody trusts any more")
		}
	}
}

// TestNetnsAgentKeepsTheDamaged has a card record that the agent cannot read. It expects the
// agent to leave the card's file descriptor in the store for the next agent, and to remove both
// on request.
func TestNetnsAgentKeepsTheDamaged(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	dir := t.TempDir()
	records := filepath.Join(dir, "state", "cards")
	if err := os.MkdirAll(records, 0o700); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(records, "pod.json")
	if err := os.WriteFile(record, []byte(`{"version": 2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	fd, _ := pipeEnd(t)
	store := &fdStore{socket: path, held: map[string]int{"pod/0": fd}}
	store.enter("pod/0")
	f := newAgentAt(t, dir, agentLAN(t), store)
	if len(store.held) != 1 {
		t.Error("the descriptor of the card is gone")
	}
	if err := f.client().Del(t.Context(), "pod"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) || len(store.held) != 0 || len(store.stored) != 0 {
		t.Errorf("%v, %v, %v", err, store.held, store.stored)
	}
}
