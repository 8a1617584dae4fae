package attacks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/scripts/measure/tools"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/test/attacks"
	"github.com/splitnic/splitnic/vnet"
)

// Native is the suite bench-attacks-native. At the full speed of this machine, it measures what
// scripts/bench-attacks-inside measures on RDMA devices. Two I/O units, an honest host and the
// attacker are in one process, with a fabric in memory between them. iperf3 and ping use the
// host's netdevice from outside. Native needs root, and makes its own network namespaces. The
// arguments are classes of attacks; without arguments it measures all classes.
type Native struct {
	pings bool // measure round trips only
}

// Flags implements results.Measure.
func (m *Native) Flags(flags *flag.FlagSet) {
	flags.BoolVar(&m.pings, "pings", false, "measure round trips only: more rounds in the same time")
}

// Measure implements results.Measure.
func (m *Native) Measure(ctx context.Context, rec *results.Recorder, rounds int, classes []string) (err error) {
	for _, name := range classes {
		if _, ok := attacks.ClassOf(name); !ok {
			return fmt.Errorf("there is no class %q", name)
		}
	}
	if err := testbed.Sweep(prefix); err != nil {
		return err
	}
	n := &environment{prefix: fmt.Sprintf("%s%d-", prefix, os.Getpid()), network: fabrictest.New(), pings: m.pings}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.open(ctx); err != nil {
		return err
	}
	for round := range rounds {
		for _, c := range attacks.Classes() {
			if len(classes) > 0 && !slices.Contains(classes, c.Name) {
				continue
			}
			for _, state := range results.InTurn(round, states) {
				if err := n.measure(ctx, c, state, rec.Of(c.Name, state, 1500)); err != nil {
					return fmt.Errorf("%s, %s: %w", c.Name, state, err)
				}
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", round+1, rounds, c.Name, state)
			}
		}
	}
	return nil
}

// prefix begins the names of all network namespaces that this package makes.
const prefix = "snatk-"

// lanAddr is the address of the station on the LAN.
const lanAddr = "10.77.0.1"

// environment has the endpoints, the LAN and the attacker of a run.
type environment struct {
	prefix  string // of the namespaces' names
	made    []string
	network *fabrictest.Network
	dir     string
	cancel  context.CancelFunc
	tasks   testbed.Tasks
	units   map[string]*iounit.Unit // by state: the I/O unit that is attacked in this state
	targets map[string]attacks.Target
	server  *exec.Cmd // iperf3
	dev     *tap.Device
	pings   bool // measure no throughput
}

func (n *environment) ns(name string) string { return n.prefix + name }

func (n *environment) open(ctx context.Context) error {
	ctx, n.cancel = context.WithCancel(ctx)
	for _, name := range []string{"host", "card", "other", "lan"} {
		if err := netns.New(n.ns(name)); err != nil {
			return err
		}
		n.made = append(n.made, n.ns(name))
	}
	err := errors.Join(testbed.Pair(n.ns("card"), "eth1", n.ns("lan"), "lan0"),
		testbed.Pair(n.ns("other"), "eth1", n.ns("other"), "far"), testbed.Address(n.ns("lan"), "lan0", lanAddr+"/24"))
	if err != nil {
		return err
	}
	if n.dir, err = os.MkdirTemp("", "splitnic-attacks"); err != nil {
		return err
	}
	if err := n.endpoints(ctx); err != nil {
		return err
	}
	n.server = exec.Command("ip", "netns", "exec", n.ns("lan"), "iperf3", "-s")
	if err := n.server.Start(); err != nil {
		return err
	}
	return n.until("the honest host's network", func() error {
		_, err := tools.TCP(ctx, n.ns("host"), lanAddr)
		return err
	})
}

// endpoints starts the I/O units and the honest host.
func (n *environment) endpoints(ctx context.Context) error {
	// As many Ps as the commands have for the workers of both I/O units, and of the host with the
	// attacker.
	runtime.GOMAXPROCS(runtime.NumCPU() + 3*4)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	prints := map[string]session.Fingerprint{}
	keys := map[string]*session.Key{}
	for _, name := range []string{"unit", "host", "attacker"} {
		key, err := session.GenerateKey()
		if err != nil {
			return err
		}
		if err := session.SaveKey(filepath.Join(n.dir, name), key); err != nil {
			return err
		}
		keys[name], prints[name] = key, key.Fingerprint()
	}
	attacker, err := attacks.LoadKey(filepath.Join(n.dir, "attacker"))
	if err != nil {
		return err
	}
	trusting := func(name string, others ...string) (*session.Security, error) {
		var trust session.Trust
		for _, other := range others {
			if err := trust.Add(other + "=" + prints[other].String()); err != nil {
				return nil, err
			}
		}
		return session.NewSecurity(keys[name], "", &trust)
	}
	unitSecurity, err := trusting("unit", "host", "attacker")
	if err != nil {
		return err
	}
	hostSecurity, err := trusting("host", "unit")
	if err != nil {
		return err
	}
	n.units, n.targets = map[string]*iounit.Unit{}, map[string]attacks.Target{}
	hostile := n.network.Device("attacker")
	for state, card := range map[string]string{"attack": "card", "elsewhere": "other"} {
		address, err := n.unit(ctx, state, card, unitSecurity, log)
		if err != nil {
			return err
		}
		n.targets[state] = attacks.Target{Address: address, From: "127.0.0.2", Key: attacker, Device: hostile,
			Patience: time.Minute}
	}
	if n.dev, err = tap.Open(tap.Config{Name: "sn0", NetNS: n.ns("host"), Offloads: vnet.AllOffloads}); err != nil {
		return err
	}
	adapter := n.network.Device("host")
	h, err := host.New(host.Config{
		Name: "host", Software: "measure", IOUnits: []string{n.targets["attack"].Address}, Security: hostSecurity,
		Device: adapter, Netdev: host.TAP(n.dev), Offloads: vnet.AllOffloads, MaxMTU: 1500, Log: log,
	})
	if err != nil {
		return err
	}
	if err := n.dev.Up(); err != nil {
		return err
	}
	n.tasks.Go(func() error { return errors.Join(h.Run(ctx), adapter.Close()) })
	return testbed.Address(n.ns("host"), "sn0", "10.77.0.2/24")
}

// unit starts an I/O unit and returns its address.
func (n *environment) unit(
	ctx context.Context, state, card string, security *session.Security, log *slog.Logger,
) (string, error) {
	device := n.network.Device(card)
	rules, err := policy.Parse("policy", []byte("default: {macs: any}\n"))
	if err != nil {
		return "", err
	}
	unit, address, err := testbed.Serve(ctx, &n.tasks, iounit.Config{
		Name: card, Software: "measure", Device: device, Log: log, Policy: rules,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return lan.Open("macvtap:eth1", lan.Config{NetNS: n.ns(card), MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		LinkState: func() (lan.LinkState, error) {
			info, err := lan.LinkInfo("eth1", n.ns(card))
			return info.LinkState, err
		},
	}, security, testbed.Loopback)
	if err != nil {
		return "", err
	}
	n.units[state] = unit
	return address, nil
}

// until calls f until f succeeds, for 20 s at most.
func (n *environment) until(what string, f func() error) error {
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("waiting for %s: %w", what, err)
}

// measure measures the honest host in one of the states.
func (n *environment) measure(ctx context.Context, c attacks.Class, state string, sink results.Sink) (err error) {
	// Wait until the sessions of the attack before have ended.
	err = n.until("sessions to end", func() error {
		if a, b := len(n.units["attack"].Status().Hosts), len(n.units["elsewhere"].Status().Hosts); a != 1 || b != 0 {
			return fmt.Errorf("%d and %d hosts", a, b)
		}
		return nil
	})
	if err != nil {
		return err
	}
	to, hostile := n.targets[state]
	var done atomic.Uint64
	if hostile {
		ctx, cancel := context.WithCancel(ctx)
		result := make(chan error, 1)
		go func() { result <- c.Run(ctx, to, &done) }()
		defer func() {
			cancel()
			err = errors.Join(err, <-result)
		}()
		err := n.until("the attack", func() error {
			if done.Load() < 2 {
				return errors.New("nothing done")
			}
			return nil
		})
		if err != nil {
			return err
		}
		done.Store(0)
	}
	from := time.Now()
	if !n.pings {
		mbps, err := tools.TCP(ctx, n.ns("host"), lanAddr)
		if err != nil {
			return err
		}
		sink.Add(throughput, "Mbit/s", mbps)
	}
	times, err := tools.Ping(ctx, n.ns("host"), lanAddr, 1000, time.Millisecond)
	if err != nil {
		return err
	}
	sink.Add(latency, "us", results.Median(times))
	sink.Add(tail, "us", tools.Percentile(times, 0.99))
	if hostile {
		sink.Add(rate, "/s", float64(done.Load())/time.Since(from).Seconds())
	}
	return nil
}

// close ends everything.
func (n *environment) close() error {
	if n.server != nil && n.server.Process != nil {
		_ = n.server.Process.Kill()
		_ = n.server.Wait() // killed
	}
	if n.cancel != nil {
		n.cancel()
	}
	errs := []error{n.tasks.Wait()}
	if n.dev != nil {
		errs = append(errs, n.dev.Close())
	}
	for _, ns := range n.made {
		errs = append(errs, netns.Delete(ns))
	}
	if n.dir != "" {
		errs = append(errs, os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}
