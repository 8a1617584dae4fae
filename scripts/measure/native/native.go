// Package native measures splitnic's software path at the speed of the machine on which it runs.
// Both endpoints are in one process, with a fabric in memory between them. Frames go from a
// host's TAP device to a port on a LAN, in network namespaces that the package makes. For
// comparison, the package measures a bare relay between the same devices, a veth pair, a bridge, and
// other networks that encrypt. It measures all of them in turn, in several rounds.
//
// Measurements named "overload" offer more than can be carried. They, and TCP through tunnels,
// are measured only if they are selected.
package native

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// third is 1/3 in goals, as their tables show it.
const third = 0.333

// Suite returns the suite of `make bench-native`.
func Suite() *results.Suite {
	aim := func(what, group, subject, metric, op string, bound float64) results.Aim {
		return results.Aim{What: what, Group: group, Subject: subject, Metric: metric, Op: op, Bound: bound}
	}
	ratio := func(a results.Aim) results.Aim {
		a.Ratio = true
		return a
	}
	to := func(a results.Aim, change func(k *results.Key)) results.Aim {
		a.To = change
		return a
	}
	of := func(subject string) func(k *results.Key) { return func(k *results.Key) { k.Subject = subject } }
	inTheClear := func(k *results.Key) { k.Subject = strings.TrimSuffix(k.Subject, encryptedSuffix) }
	// Patterns for splitnic with each kind of LAN interface, with the offloads.
	const ours, encrypted = splitnic + "/*", splitnic + "/*" + encryptedSuffix
	var o options
	return &results.Suite{
		Name: "bench-native", Rounds: 5, Flags: o.flags, Measure: o.measure, References: references, Aims: []results.Aim{
			ratio(aim("TCP, to the relay", "tcp.*", ours, throughput, ">=", 0.8)),
			ratio(aim("small UDP, to the relay", "udp.?x", ours, rate, ">=", 0.6)),
			ratio(aim("an endpoint's processor time for TCP, without the fabric's copy, to the relay", "tcp.*", ours, noCopy,
				"<=", 0.9)),
			ratio(aim("round trip, to the relay", "rtt", ours, median50, "<=", 1.2)),
			ratio(aim("ping, to the relay", "ping", ours, average, "<=", 1.1)),
			to(aim("TCP, to that without offloads", "tcp.*", ours, throughput, ">=", 5),
				func(k *results.Key) { k.Subject += plainSuffix }),
			to(aim("TCP, encrypted, to that in the clear", "tcp.*", encrypted, throughput, ">=", 0.6), inTheClear),
			to(aim("small UDP, encrypted, to that in the clear", "udp.?x", encrypted, rate, ">=", 0.7), inTheClear),
			to(aim("an endpoint's processor time for TCP, encrypted, to WireGuard in user space", "tcp.*", encrypted,
				cpuEndpoint, "<=", third), of(wireguardGo)),
			to(aim("the machine's processor time for TCP, encrypted, to the kernel's WireGuard", "tcp.*", encrypted, cpuMachine,
				"<=", third), of(wireguard)),
			to(aim("small UDP of 64 flows, to one flow", "udp.*.64flows", ours, rate, ">=", 0.9),
				func(k *results.Key) { k.Group = strings.TrimSuffix(k.Group, ".64flows") }),
			aim("more UDP than can be carried: what arrives", "overload.*", ours, "arrived at *", ">=", 0.8),
			aim("system calls of an endpoint for a super-frame", "tcp.*", ours, callMetric, "<=", 1),
			aim("system calls of an endpoint for a small frame", "udp.?x", ours, callMetric, "<=", 0.5),
			aim("an endpoint without frames", idle, ours, idleMetric, "<", 0.5),
			ratio(aim("frames out of a vhost-user port, to a TAP device", vhostOut, portSubject, rate, ">=", 10)),
			ratio(aim("frames into a vhost-user port, to a TAP device", vhostIn, portSubject, rate, ">=", 20)),
			aim("frames through the card with vhost-user at both ends", vhostCard, portSubject, rate, ">=", 3000),
		},
		Remark: "processor time is that of an endpoint, which is half of the process with both endpoints, or of the " +
			"relay, and that of the whole machine with both ends of the traffic; the fabric in memory copies each frame " +
			"once, and makes a system call for each event, where an adapter would do it",
	}
}

// compared has the metrics of which a ratio is meaningful.
var compared = []string{throughput, rate, median50, median99, average, cpuEndpoint, noCopy, cpuMachine, callMetric}

// references returns the keys of the rows to which r is compared. They are those of the relay
// with the same kind of port for splitnic, and of the kernel's device for a vhost-user port.
func references(r *results.Row) []results.Key {
	k := r.Key
	s, ok := parseSubject(r.Subject)
	switch {
	case r.Subject == portSubject && r.Group == vhostCard:
		k.Subject = veth
	case r.Subject == portSubject:
		k.Subject = tapSubject
	case ok && s.what == splitnic && slices.Contains(compared, r.Metric):
		k.Subject = subject{what: relay, port: s.port}.String()
	default:
		return nil
	}
	return []results.Key{k}
}

// options selects what is measured.
type options struct{ only string }

func (o *options) flags(flags *flag.FlagSet) {
	flags.StringVar(&o.only, "only", os.Getenv("BENCH_ONLY"),
		"what to measure: parts of names of subjects and measurements, or SUBJECT:MEASUREMENT, separated by commas")
}

// run measures the selected subjects.
type run struct {
	results.Selection
	rec      *results.Recorder
	fixtures []*fixture
}

func (o *options) measure(ctx context.Context, rec *results.Recorder, rounds int, args []string) (err error) {
	if len(args) > 0 {
		return fmt.Errorf("%q: there are only flags", args)
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and TAP devices need root; type: sudo make bench-native")
	}
	// Threads that block in system calls must not also have to wait for a P.
	runtime.GOMAXPROCS(runtime.NumCPU() + 16)
	if err := testbed.Sweep(); err != nil {
		return err
	}
	s := &run{Selection: results.ParseSelection(o.only), rec: rec}
	for i, sub := range subjects() {
		if !s.wants(sub) {
			continue
		}
		b, ctx, err := testbed.New(ctx, strconv.Itoa(i))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		switch r, err := newFixture(ctx, b, sub); {
		case errors.Is(err, errLacking):
			rec.Note("%s is left out: %v", sub, err)
		case err != nil:
			return fmt.Errorf("%s: %w", sub, err)
		default:
			s.fixtures = append(s.fixtures, r)
		}
	}
	ports := slices.DeleteFunc(slices.Clone(vhostRuns), func(r vhostRun) bool { return !s.Has(r.subject, r.name, false) })
	if _, err := exec.LookPath("dpdk-testpmd"); len(ports) > 0 && err != nil {
		ports = nil
		rec.Note("vhost-user ports are left out: %v", err)
	}
	if len(s.fixtures) == 0 && len(ports) == 0 {
		return errors.New("nothing is selected that can be measured here")
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
		if err := s.each(round, func(m *measurement, r *fixture, sink results.Sink) error {
			return m.measure(ctx, r, sink)
		}); err != nil {
			return err
		}
		for _, p := range ports {
			if err := p.measure(ctx, rec); err != nil {
				return fmt.Errorf("%s of %s: %w", p.name, p.subject, err)
			}
		}
		if err := s.idle(ctx); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("perf"); err != nil {
		rec.Note("system calls are not counted: %v", err)
		return nil
	}
	return s.each(0, func(m *measurement, r *fixture, sink results.Sink) error {
		if !r.process() || m.load == nil {
			return nil
		}
		return m.countCalls(ctx, r, sink)
	})
}

// wants reports whether any measurement of s is selected.
func (s *run) wants(sub subject) bool {
	name := sub.String()
	return sub.process() && s.Has(name, idle, false) ||
		slices.ContainsFunc(measurements(), func(m measurement) bool { return m.of(sub) && s.Has(name, m.name, m.asked) })
}

// each calls fn for every selected measurement of every subject: for all subjects of one
// measurement before the next measurement.
func (s *run) each(round int, fn func(m *measurement, r *fixture, sink results.Sink) error) error {
	for _, m := range measurements() {
		for _, r := range results.InTurn(round, s.fixtures) {
			if !m.of(r.subject) || !s.Has(r.String(), m.name, m.asked) {
				continue
			}
			if err := fn(&m, r, s.rec.Of(m.name, r.String(), m.size)); err != nil {
				return fmt.Errorf("%s of %s: %w", m.name, r.subject, err)
			}
		}
	}
	return nil
}

// idle measures the processor time that subjects without traffic use, all at the same time.
func (s *run) idle(ctx context.Context) error {
	var quiet []*fixture
	for _, r := range s.fixtures {
		if r.process() && s.Has(r.String(), idle, false) {
			quiet = append(quiet, r)
		}
	}
	if len(quiet) == 0 {
		return nil
	}
	used := func() (all []time.Duration, err error) {
		for _, r := range quiet {
			d, err := r.cpu()
			if err != nil {
				return nil, err
			}
			all = append(all, d)
		}
		return all, nil
	}
	if err := results.Pause(ctx, idleTime); err != nil { // for what measurements have left behind
		return err
	}
	begin := time.Now()
	before, err := used()
	if err != nil {
		return err
	}
	if err := results.Pause(ctx, idleTime); err != nil {
		return err
	}
	after, err := used()
	for i := range after {
		percent := 100 * (after[i] - before[i]).Seconds() / time.Since(begin).Seconds()
		s.rec.Of(idle, quiet[i].String(), 0).Add(idleMetric, "%", percent/quiet[i].shares())
	}
	return err
}
