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
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// Options selects what is measured.
type Options struct{ only string }

// Flags implements results.Measure.
func (o *Options) Flags(flags *flag.FlagSet) {
	flags.StringVar(&o.only, "only", os.Getenv("BENCH_ONLY"),
		"what to measure: parts of names of subjects and measurements, or SUBJECT:MEASUREMENT, separated by commas")
}

// run measures the selected subjects.
type run struct {
	results.Selection
	rec      *results.Recorder
	fixtures []*fixture
}

// Measure implements results.Measure.
func (o *Options) Measure(ctx context.Context, rec *results.Recorder, rounds int, args []string) (err error) {
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
