// Package native measures splitnic's software path at the speed of the machine on which it runs.
// Both endpoints are in one process, with a fabric in memory between them. Frames go from a
// host's TAP device to a port on a LAN, in network namespaces that the package makes. For
// comparison, the package measures a bare relay between the same devices, a veth pair and a
// bridge. It measures all of them in turn, in several rounds.
//
// Measurements named "overload" offer more than can be carried. They, and TCP through tunnels,
// are measured only if they are selected.
package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// Measure implements results.Measure.
func (o *Options) Measure(ctx context.Context, rec *results.Recorder, rounds int, args []string) (err error) {
	if len(args) > 0 {
		return fmt.Errorf("%q: there are only flags", args)
	}
	o.rounds, o.sel = rounds, results.ParseSelection(o.only)
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and TAP devices need root; type: sudo make bench-native")
	}
	// Threads that block in system calls must not also have to wait for a P.
	runtime.GOMAXPROCS(runtime.NumCPU() + 16)
	if err := testbed.Sweep(prefix); err != nil {
		return err
	}
	var fixtures []*fixture
	defer func() {
		for _, r := range fixtures {
			err = errors.Join(err, r.close())
		}
	}()
	for i, s := range subjects() {
		if !o.wants(s) {
			continue
		}
		r, err := newFixture(ctx, fmt.Sprintf(prefix+"%d-%d", os.Getpid(), i), s)
		if err != nil {
			return err
		}
		fixtures = append(fixtures, r)
	}
	ports := o.wantsVhost()
	if _, err := exec.LookPath("dpdk-testpmd"); ports && err != nil {
		ports = false
		rec.Note("vhost-user ports are left out: %v", err)
	}
	guests := o.wantsGuests()
	if len(fixtures) == 0 && !ports && !guests {
		return errors.New("nothing is selected")
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		if err := o.each(results.InTurn(round, fixtures), func(m *measurement, r *fixture) error {
			return m.measure(ctx, r, rec.Of(m.name, r.subject.String(), m.size))
		}); err != nil {
			return err
		}
		if ports {
			if err := o.vhost(ctx, rec); err != nil {
				return err
			}
		}
		if guests {
			if err := o.guests(ctx, rec); err != nil {
				return err
			}
		}
	}
	return errors.Join(o.idle(ctx, fixtures, rec), o.events(ctx, fixtures, rec), o.profile(ctx, fixtures))
}

// each calls fn for every selected measurement of every subject: for all subjects of one
// measurement before the next measurement.
func (o *Options) each(fixtures []*fixture, fn func(m *measurement, r *fixture) error) error {
	all := measurements()
	for i := range all {
		m := &all[i]
		for _, r := range fixtures {
			if !m.of(r.subject) || !o.sel.Has(r.subject.String(), m.name, m.asked) {
				continue
			}
			if err := fn(m, r); err != nil {
				return fmt.Errorf("%s of %s: %w", m.name, r.subject, err)
			}
		}
	}
	return nil
}

// idle measures the resources that subjects without traffic use.
func (o *Options) idle(ctx context.Context, fixtures []*fixture, rec *results.Recorder) error {
	const d = 2 * time.Second
	fixtures = slices.DeleteFunc(slices.Clone(fixtures),
		func(r *fixture) bool { return r.child == nil || !o.sel.Has(r.subject.String(), idle, false) })
	if len(fixtures) == 0 {
		return nil
	}
	fmt.Fprintln(os.Stderr, "idle")
	if err := results.Pause(ctx, d); err != nil {
		return err
	}
	before, after := make([]state, len(fixtures)), make([]state, len(fixtures))
	// The command stats itself uses processor time. So it comes before the processor time is
	// read at the beginning, and after that at the end.
	stats := func(states []state) (err error) {
		for i, r := range fixtures {
			if states[i].counters, err = r.child.do("stats"); err != nil {
				return err
			}
		}
		return nil
	}
	cpu := func(states []state) (err error) {
		for i, r := range fixtures {
			states[i].at = time.Now()
			if states[i].cpu, err = r.child.cpu(); err != nil {
				return err
			}
		}
		return nil
	}
	for range o.rounds {
		if err := errors.Join(stats(before), cpu(before)); err != nil {
			return err
		}
		if err := results.Pause(ctx, d); err != nil {
			return err
		}
		if err := errors.Join(cpu(after), stats(after)); err != nil {
			return err
		}
		for i, r := range fixtures {
			b, a := before[i], after[i]
			seconds := a.at.Sub(b.at).Seconds()
			percent := 100 * (a.cpu - b.cpu).Seconds() / seconds
			sink := rec.Of(idle, r.subject.String(), 0)
			sink.Add(idleAll, "%", percent)
			if r.subject.what == splitnic {
				sink.Add(idleEndpoint, "%", percent/2)
			}
			sink.Add(allocations, "/s", float64(a.counters.MallocsBefore-b.counters.MallocsAfter)/seconds)
		}
	}
	return nil
}

// events counts system calls and instructions, in separate runs.
func (o *Options) events(ctx context.Context, fixtures []*fixture, rec *results.Recorder) error {
	all, err := systemCalls()
	if err != nil {
		rec.Note("%v", err)
	}
	events, why := countable(append(all, instructions))
	for _, w := range why {
		rec.Note("%s", w)
	}
	if len(events) == 0 {
		return nil
	}
	fmt.Fprintln(os.Stderr, "counting system calls and instructions")
	return o.each(fixtures, func(m *measurement, r *fixture) error {
		if r.child == nil || m.load == nil {
			return nil
		}
		return m.countEvents(ctx, r, events, rec.Of(m.name, r.subject.String(), m.size))
	})
}

// profile writes a profile of each of splitnic's measurements, in separate runs.
func (o *Options) profile(ctx context.Context, fixtures []*fixture) error {
	if o.profiles == "" {
		return nil
	}
	dir, err := filepath.Abs(o.profiles)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return o.each(fixtures, func(m *measurement, r *fixture) error {
		if r.subject.what != splitnic || m.load == nil {
			return nil
		}
		file := filepath.Join(dir, strings.ReplaceAll(r.subject.String(), "/", "-")+"-"+m.name+".pprof")
		fmt.Fprintln(os.Stderr, "profile", file)
		long := *m
		long.time = 3 * time.Second
		if _, err := r.child.do("profile " + file); err != nil {
			return err
		}
		_, _, err := long.run(ctx, r, nil)
		_, err2 := r.child.do("unprofile")
		return errors.Join(err, err2)
	})
}
