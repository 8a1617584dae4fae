// Package attacks measures how an honest host is affected while another host attacks its I/O
// unit.
package attacks

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

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

// The states in which the honest host is measured. They are the subjects of its figures: without
// an attack, while another I/O unit on the same machine and device is attacked in the same way,
// and while the host's own I/O unit is attacked. The second state already includes what the
// attacker and the kernel take from all processes.
const (
	none      = "none"
	elsewhere = "elsewhere"
	attack    = "attack"
)

// The metrics: throughput, where more is better; times, where less is better; and how many attacks
// per second the attacker completes.
const (
	throughput = "tcp"
	latency    = "ping"
	tail       = "ping-p99"
	rate       = "rate"
)

// Suite returns the suite of `make bench-attacks`. An honest host may lose a tenth to the attack
// itself.
func Suite() *results.Suite {
	var o options
	return &results.Suite{
		Name: "bench-attacks", Rounds: 5, Flags: o.flags, Measure: o.measure,
		// The figures of a round are measured within seconds of each other, while the machine has
		// the same other load.
		ByRound: true,
		References: func(r *results.Row) []results.Key {
			if r.Subject != attack || r.Metric == rate {
				return nil
			}
			k := r.Key
			k.Subject = elsewhere
			return []results.Key{k}
		},
		Aims: []results.Aim{
			{What: "TCP", Metric: throughput, Ratio: true, Op: ">=", Bound: 0.9},
			{What: "99th percentile of ping", Metric: tail, Ratio: true, Op: "<=", Bound: 1.1},
		},
		Remark: "none: without an attack; elsewhere: the same attack on another I/O unit of the machine",
	}
}

// options is the suite. Two I/O units, an honest host and the attacker are in one process, with a
// fabric in memory between them. iperf3 and ping use the host's netdevice from outside. The
// arguments are classes of attacks; without arguments all classes are measured.
type options struct {
	pings bool // measure round trips only
}

func (o *options) flags(flags *flag.FlagSet) {
	flags.BoolVar(&o.pings, "pings", false, "measure round trips only: more rounds in the same time")
}

func (o *options) measure(ctx context.Context, rec *results.Recorder, rounds int, names []string) (err error) {
	classes := attacks.Classes()
	if len(names) > 0 {
		classes = nil
	}
	for _, name := range names {
		c, ok := attacks.ClassOf(name)
		if !ok {
			return fmt.Errorf("there is no class %q", name)
		}
		classes = append(classes, c)
	}
	if err := testbed.Sweep(); err != nil {
		return err
	}
	b, ctx, err := testbed.New(ctx, "attacks")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	n := &environment{Bed: b, pings: o.pings, units: map[string]*iounit.Unit{}, targets: map[string]attacks.Target{}}
	if err := n.open(ctx); err != nil {
		return err
	}
	for round := range rounds {
		for _, c := range classes {
			for _, state := range results.InTurn(round, []string{none, elsewhere, attack}) {
				if err := n.measure(ctx, c, state, rec.Of(c.Name, state, 1500)); err != nil {
					return fmt.Errorf("%s, %s: %w", c.Name, state, err)
				}
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s\n", round+1, rounds, c.Name, state)
			}
		}
	}
	return nil
}

// lanAddr is the address of the station on the LAN.
const lanAddr = "10.77.0.1"

// environment has the endpoints, the LAN and the attacker of a run.
type environment struct {
	*testbed.Bed
	host    string                    // network namespace
	units   map[string]*iounit.Unit   // by state: the I/O unit that is attacked in this state
	targets map[string]attacks.Target // of that
	pings   bool                      // measure no throughput
}

func (n *environment) open(ctx context.Context) error {
	ns := map[string]string{}
	for _, name := range []string{"host", attack, elsewhere, "lan"} {
		var err error
		if ns[name], err = n.NetNS(name); err != nil {
			return err
		}
	}
	n.host = ns["host"]
	err := errors.Join(testbed.Pair(ns[attack], "eth1", ns["lan"], "lan0"),
		testbed.Pair(ns[elsewhere], "eth1", ns[elsewhere], "far"), testbed.IP(ns["lan"], "addr add "+lanAddr+"/24 dev lan0"))
	if err != nil {
		return err
	}
	if err := n.endpoints(ctx, ns); err != nil {
		return err
	}
	server := exec.CommandContext(ctx, "ip", "netns", "exec", ns["lan"], "iperf3", "-s")
	if err := server.Start(); err != nil {
		return err
	}
	n.Go(func() error { _ = server.Wait(); return nil }) // killed at the end
	return testbed.Until(ctx, "the honest host's network", func() error {
		_, err := tools.TCP(ctx, n.host, lanAddr)
		return err
	})
}

// endpoints starts the I/O units and the honest host.
func (n *environment) endpoints(ctx context.Context, ns map[string]string) error {
	// As many Ps as the commands have for the workers of both I/O units, and of the host with the
	// attacker.
	runtime.GOMAXPROCS(runtime.NumCPU() + 3*4)
	keys := map[string]*session.Key{}
	for _, name := range []string{"unit", "host", "attacker"} {
		key, err := session.GenerateKey()
		if err != nil {
			return err
		}
		if err := session.SaveKey(filepath.Join(n.Dir, name), key); err != nil {
			return err
		}
		keys[name] = key
	}
	attacker, err := attacks.LoadKey(filepath.Join(n.Dir, "attacker"))
	if err != nil {
		return err
	}
	entry := func(name string) string { return name + "=" + keys[name].Fingerprint().String() }
	unitSecurity, err := testbed.Trusting(keys["unit"], entry("host"), entry("attacker"))
	if err != nil {
		return err
	}
	hostSecurity, err := testbed.Trusting(keys["host"], entry("unit"))
	if err != nil {
		return err
	}
	rules, err := policy.Parse("policy", []byte("default: {macs: any}\n"))
	if err != nil {
		return err
	}
	hostile := n.Network.Device("attacker")
	for _, state := range []string{attack, elsewhere} {
		unit, address, err := n.Unit(ctx, iounit.Config{Name: state, Policy: rules}, "macvtap:eth1", ns[state], unitSecurity,
			testbed.Loopback)
		if err != nil {
			return err
		}
		n.units[state] = unit
		n.targets[state] = attacks.Target{Address: address, From: "127.0.0.2", Key: attacker, Device: hostile,
			Patience: time.Minute}
	}
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: n.host, Offloads: vnet.AllOffloads})
	if err != nil {
		return err
	}
	n.Later(d.Close)
	_, err = n.Host(ctx, host.Config{
		Name: "host", IOUnits: []string{n.targets[attack].Address}, Security: hostSecurity, Netdev: host.TAP(d),
		Offloads: vnet.AllOffloads, MaxMTU: 1500,
	})
	return errors.Join(err, d.Up(), testbed.IP(n.host, "addr add 10.77.0.2/24 dev sn0"))
}

// measure measures the honest host in one of the states.
func (n *environment) measure(ctx context.Context, c attacks.Class, state string, sink results.Sink) (err error) {
	// Wait until the sessions of the attack before have ended.
	err = testbed.Until(ctx, "sessions to end", func() error {
		if a, b := len(n.units[attack].Status().Hosts), len(n.units[elsewhere].Status().Hosts); a != 1 || b != 0 {
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
		if err := testbed.Until(ctx, "the attack", func() error {
			if done.Load() < 2 {
				return errors.New("nothing done")
			}
			return nil
		}); err != nil {
			return err
		}
		done.Store(0)
	}
	from := time.Now()
	if !n.pings {
		mbps, err := tools.TCP(ctx, n.host, lanAddr)
		if err != nil {
			return err
		}
		sink.Add(throughput, "Mbit/s", mbps)
	}
	times, err := tools.Ping(ctx, n.host, lanAddr, 1000, time.Millisecond)
	if err != nil {
		return err
	}
	sink.Add(latency, "us", results.Median(times))
	sink.Add(tail, "us", results.Percentile(times, 0.99))
	if hostile {
		sink.Add(rate, "/s", float64(done.Load())/time.Since(from).Seconds())
	}
	return nil
}
