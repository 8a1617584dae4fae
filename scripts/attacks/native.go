package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/test/attacks"
	"github.com/splitnic/splitnic/vnet"
)

// native measures at this machine's full speed what scripts/bench-attacks
// measures on RDMA devices: two I/O units, an honest host and the attacker in one
// process, with a fabric in memory between them; iperf3 and ping use the host's
// netdevice from outside. It needs root, and makes network namespaces of its own.
func native(rounds int, results string, classes []string) (err error) {
	n := &site{prefix: fmt.Sprintf("snatk%d", os.Getpid()), network: fabrictest.New()}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.open(); err != nil {
		return err
	}
	out, err := os.Create(results)
	if err != nil {
		return err
	}
	defer out.Close()
	for round := range rounds {
		for _, c := range attacks.Classes() {
			if len(classes) > 0 && !slices.Contains(classes, c.Name) {
				continue
			}
			order := slices.Clone(states)
			if round%2 == 1 {
				slices.Reverse(order)
			}
			for _, state := range order {
				line, err := n.measure(c, state)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.Name, state, err)
				}
				fmt.Print(line)
				if _, err := out.WriteString(line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// site is everything that is measured.
type site struct {
	prefix  string // of the namespaces' names
	made    []string
	network *fabrictest.Network
	dir     string
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	units   map[string]*iounit.Unit // by state: the one that is attacked in it
	targets map[string]attacks.Target
	server  *exec.Cmd // iperf3
	dev     *tap.Device

	mu   sync.Mutex
	errs []error
}

func (n *site) ns(name string) string { return n.prefix + name }

func (n *site) open() error {
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	for _, name := range []string{"host", "card", "other", "lan"} {
		if err := ip("netns", "add", n.ns(name)); err != nil {
			return err
		}
		n.made = append(n.made, n.ns(name))
	}
	for _, args := range [][]string{
		{"link", "add", "eth1", "netns", n.ns("card"), "type", "veth", "peer", "name", "lan0", "netns", n.ns("lan")},
		{"link", "add", "eth1", "netns", n.ns("other"), "type", "veth", "peer", "name", "far", "netns", n.ns("other")},
		{"-n", n.ns("card"), "link", "set", "eth1", "up"},
		{"-n", n.ns("other"), "link", "set", "eth1", "up"},
		{"-n", n.ns("other"), "link", "set", "far", "up"},
		{"-n", n.ns("lan"), "addr", "add", "10.77.0.1/24", "dev", "lan0"},
		{"-n", n.ns("lan"), "link", "set", "lan0", "up"},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	var err error
	if n.dir, err = os.MkdirTemp("", "splitnic-attacks"); err != nil {
		return err
	}
	if err := n.halves(ctx); err != nil {
		return err
	}
	n.server = exec.Command("ip", "netns", "exec", n.ns("lan"), "iperf3", "-s")
	if err := n.server.Start(); err != nil {
		return err
	}
	return n.until("the honest host's network", func() error {
		_, err := n.tcp()
		return err
	})
}

// halves starts the I/O units and the honest host.
func (n *site) halves(ctx context.Context) error {
	// As many as the commands have for their workers, of both I/O units, and of the
	// host with the attacker.
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
		Name: "host", Software: "attacks", IOUnits: []string{n.targets["attack"].Address}, Security: hostSecurity,
		Device: adapter, Netdev: host.TAP(n.dev), Offloads: vnet.AllOffloads, MaxMTU: 1500, Log: log,
	})
	if err != nil {
		return err
	}
	if err := n.dev.Up(); err != nil {
		return err
	}
	n.run(func() error { return errors.Join(h.Run(ctx), adapter.Close()) })
	return ip("-n", n.ns("host"), "addr", "add", "10.77.0.2/24", "dev", "sn0")
}

// unit starts an I/O unit and returns its address.
func (n *site) unit(
	ctx context.Context, state, card string, security *session.Security, log *slog.Logger,
) (string, error) {
	device := n.network.Device(card)
	rules, err := policy.Parse("policy", []byte("default: {macs: any}\n"))
	if err != nil {
		return "", err
	}
	unit, err := iounit.New(iounit.Config{
		Name: card, Software: "attacks", Device: device, Log: log, Policy: rules,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return lan.Open("macvtap:eth1", lan.Config{NetNS: n.ns(card), MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		LinkState: func() (lan.LinkState, error) {
			info, err := lan.LinkInfo("eth1", n.ns(card))
			return info.LinkState, err
		},
	})
	if err != nil {
		return "", err
	}
	ln, err := session.Listen("127.0.0.1:0", session.ServerConfig{Security: security, Burst: unit.Burst,
		Rejected: unit.Rejected})
	if err != nil {
		return "", err
	}
	n.units[state] = unit
	n.run(func() error { return errors.Join(unit.Run(ctx, ln), ln.Close(), device.Close()) })
	return ln.Addr().String(), nil
}

// run runs something until it ends.
func (n *site) run(f func() error) {
	n.wg.Go(func() {
		err := f()
		n.mu.Lock()
		n.errs = append(n.errs, err)
		n.mu.Unlock()
	})
}

// until tries something until it works.
func (n *site) until(what string, f func() error) error {
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("waiting for %s: %w", what, err)
}

// measure measures the honest host in one of the states, and returns lines for
// parse.
func (n *site) measure(c attacks.Class, state string) (lines string, err error) {
	// What the attack before has left is over.
	err = n.until("sessions to end", func() error {
		if a, b := len(n.units["attack"].Status().Hosts), len(n.units["elsewhere"].Status().Hosts); a != 1 || b != 0 {
			return fmt.Errorf("%d and %d hosts", a, b)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	var done atomic.Uint64
	from := time.Now()
	if to, ok := n.targets[state]; ok {
		ctx, cancel := context.WithCancel(context.Background())
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
			return "", err
		}
		from = time.Now()
		done.Store(0)
	}
	mbps, err := n.tcp()
	if err != nil {
		return "", err
	}
	us, slow, err := n.ping()
	if err != nil {
		return "", err
	}
	lines = fmt.Sprintf("%s %s %s %.1f\n%s %s %s %.1f\n%s %s %s %.1f\n",
		c.Name, state, throughput, mbps, c.Name, state, latency, us, c.Name, state, tail, slow)
	if rate := float64(done.Load()) / time.Since(from).Seconds(); rate > 0 {
		lines += fmt.Sprintf("%s %s %s %.1f\n", c.Name, state, costs[2], rate)
	}
	return lines, nil
}

// tcp is the throughput from the honest host to the LAN, in Mbit/s.
func (n *site) tcp() (float64, error) {
	out, err := exec.Command("ip", "netns", "exec", n.ns("host"), "iperf3", "-c", "10.77.0.1", "-t", "1", "-J").Output()
	if err != nil {
		return 0, fmt.Errorf("iperf3: %w", err)
	}
	var d struct {
		End struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	err = json.NewDecoder(bytes.NewReader(out)).Decode(&d)
	if err == nil && d.End.Received.Bits <= 0 {
		err = errors.New("iperf3: nothing was received")
	}
	return d.End.Received.Bits / 1e6, err
}

// ping is the median of the round trips from the honest host to the LAN, in us,
// and the one that one in a hundred exceeds.
func (n *site) ping() (mid, slow float64, err error) {
	out, err := exec.Command("ip", "netns", "exec", n.ns("host"), "ping", "-n", "-c", "500", "-i", "0.003", "-W", "2",
		"10.77.0.1").Output()
	if err != nil {
		return 0, 0, fmt.Errorf("ping: %w", err)
	}
	var times []float64
	for line := range strings.Lines(string(out)) {
		if _, after, ok := strings.Cut(line, " time="); ok {
			text, _, _ := strings.Cut(after, " ")
			ms, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return 0, 0, fmt.Errorf("ping: %w", err)
			}
			times = append(times, 1000*ms)
		}
	}
	if len(times) == 0 {
		return 0, 0, errors.New("ping: no answer")
	}
	slices.Sort(times)
	return median(times), times[len(times)*99/100], nil
}

// close ends everything.
func (n *site) close() error {
	if n.server != nil && n.server.Process != nil {
		_ = n.server.Process.Kill()
		_ = n.server.Wait() // killed
	}
	if n.cancel != nil {
		n.cancel()
	}
	n.wg.Wait()
	errs := n.errs
	if n.dev != nil {
		errs = append(errs, n.dev.Close())
	}
	for _, ns := range n.made {
		errs = append(errs, ip("netns", "delete", ns))
	}
	if n.dir != "" {
		errs = append(errs, os.RemoveAll(n.dir))
	}
	return errors.Join(errs...)
}

// ip runs ip(8).
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
