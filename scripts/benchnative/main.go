// Command benchnative measures splitnic's software path at the speed of the
// machine it runs on: both halves in one process with a fabric in memory between
// them, from a host's TAP device to a port on a LAN, in network namespaces that
// it makes. Beside it, in turn and repeated, it measures a bare relay between
// the same devices, a veth pair and a bridge.
//
//	benchnative [-rounds N] [-only LIST] [-json FILE] [-markdown] [-cpuprofile DIR]
//	benchnative -overload full|segments|fragments [-time DURATION] FROM TO ADDRESS
//
// ROUNDS and BENCH_ONLY in the environment set the first two; LIST has parts of
// names of subjects and measurements, or SUBJECT:MEASUREMENT, separated by
// commas. It needs root, and a machine that does nothing else meanwhile. It
// fails if any of its measurements does.
//
// What is offered in measurements named "overload" is more than can be carried.
// They are made only if they are selected. With -overload one of them is made
// between network namespaces that are there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
)

// options are what the command line says.
type options struct {
	rounds   int
	only     selection
	json     string
	markdown bool
	profiles string // directory
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchnative:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	var only, subjectName, kind string
	flags := flag.NewFlagSet("benchnative", flag.ContinueOnError)
	rounds, err := strconv.Atoi(getenv("ROUNDS", "5"))
	if err != nil {
		return fmt.Errorf("ROUNDS: %w", err)
	}
	flags.IntVar(&o.rounds, "rounds", rounds, "how often everything is measured, in turn")
	flags.StringVar(&only, "only", os.Getenv("BENCH_ONLY"),
		"what to measure: parts of names of subjects and measurements, or SUBJECT:MEASUREMENT, separated by commas")
	flags.StringVar(&o.json, "json", "build/bench/native.json", "file for the figures")
	flags.BoolVar(&o.markdown, "markdown", false, "write the tables in Markdown")
	flags.StringVar(&o.profiles, "cpuprofile", "", "directory for profiles of splitnic's use of processors")
	flags.StringVar(&subjectName, "serve", "", "be the process of this subject, between the network namespaces and on the device in the arguments; not for people")
	flags.StringVar(&kind, "overload", "",
		"only send too many datagrams, full, segments or fragments, between two network namespaces: FROM TO ADDRESS")
	var dur time.Duration
	flags.DurationVar(&dur, "time", overloadTime, "how long each factor of -overload is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if kind != "" {
		if flags.NArg() != 3 {
			return errors.New("-overload needs the network namespaces from and to which it sends, and an address of the latter")
		}
		return overloadOnce(ctx, kind, flags.Arg(0), flags.Arg(1), flags.Arg(2), dur, os.Stdout)
	}
	if subjectName != "" {
		s, ok := parseSubject(subjectName)
		if !ok || flags.NArg() != 4 {
			return errors.New("-serve is for the command itself")
		}
		return serve(s, &site{host: flags.Arg(0), middle: flags.Arg(1), lan: flags.Arg(2), nic: flags.Arg(3), hostDev: "sn0"})
	}
	if flags.NArg() > 0 || o.rounds < 1 {
		return fmt.Errorf("%q: there are only flags, and at least one round", flags.Args())
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and TAP devices need root; type: sudo make bench-native")
	}
	o.only = parseSelection(only)
	return o.bench(ctx, newResults())
}

func getenv(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}

// rig is a subject at its site.
type rig struct {
	subject subject
	site    *site
	child   *child // nil for those without a process of their own
}

func newRig(ctx context.Context, prefix string, s subject) (r *rig, err error) {
	r = &rig{subject: s}
	if r.site, err = newSite(prefix, s); err != nil {
		return nil, err
	}
	if s.process() {
		if r.child, err = startChild(ctx, s, r.site); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", s, err), r.close())
		}
	}
	if err := r.site.configure(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s, err), r.close())
	}
	return r, nil
}

func (r *rig) close() error {
	var err error
	if r.child != nil {
		err = r.child.close()
	}
	return errors.Join(err, r.site.close())
}

// bench measures everything that is selected.
func (o *options) bench(ctx context.Context, res *results) (err error) {
	// Threads that wait in system calls must not wait for a P besides.
	runtime.GOMAXPROCS(runtime.NumCPU() + 16)
	begin, err := processors()
	if err != nil {
		return err
	}
	notes, err := quiet(ctx, "before")
	if err != nil {
		return err
	}
	if err := sweep(); err != nil {
		return err
	}
	var rigs []*rig
	defer func() {
		for _, r := range rigs {
			err = errors.Join(err, r.close())
		}
	}()
	for i, s := range subjects() {
		if !o.wants(s) {
			continue
		}
		r, err := newRig(ctx, fmt.Sprintf(prefix+"%d-%d", os.Getpid(), i), s)
		if err != nil {
			return err
		}
		rigs = append(rigs, r)
	}
	if len(rigs) == 0 {
		return errors.New("nothing is selected")
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		slices.Reverse(rigs) // nobody is always the first
		if err := o.each(rigs, func(m *measurement, r *rig) error {
			return m.measure(ctx, r, res.sink(m.name, r.subject, m.size))
		}); err != nil {
			return err
		}
	}
	if err := o.idle(ctx, rigs, res); err != nil {
		return err
	}
	more, err := o.events(ctx, rigs, res)
	if err != nil {
		return err
	}
	notes = append(notes, more...)
	if err := o.profile(ctx, rigs); err != nil {
		return err
	}
	if more, err = quiet(ctx, "after"); err != nil {
		return err
	}
	notes = append(notes, more...)
	end, err := processors()
	if err != nil {
		return err
	}
	if stolen := end.stolen - begin.stolen; stolen > (end.busy-begin.busy)/50 {
		notes = append(notes, fmt.Sprintf("the hypervisor took %.1f s of processor time away meanwhile, %.0f %% of what was used: not to be trusted",
			stolen.Seconds(), 100*stolen.Seconds()/(end.busy-begin.busy).Seconds()))
	}
	return o.report(res.rows(), notes)
}

// wants reports whether anything is to be measured of s.
func (o *options) wants(s subject) bool {
	if s.process() && o.only.has(s.String(), idle) {
		return true
	}
	return slices.ContainsFunc(measurements(), func(m measurement) bool { return m.of(s) && o.only.wants(s.String(), &m) })
}

// each calls fn with every measurement of every subject, the subjects of one
// measurement after the other.
func (o *options) each(rigs []*rig, fn func(m *measurement, r *rig) error) error {
	all := measurements()
	for i := range all {
		m := &all[i]
		for _, r := range rigs {
			if !m.of(r.subject) || !o.only.wants(r.subject.String(), m) {
				continue
			}
			if err := fn(m, r); err != nil {
				return fmt.Errorf("%s of %s: %w", m.name, r.subject, err)
			}
		}
	}
	return nil
}

// quiet returns a remark if the machine has something else to do.
func quiet(ctx context.Context, when string) (notes []string, err error) {
	const d = time.Second
	before, err := busy()
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, d); err != nil {
		return nil, err
	}
	after, err := busy()
	if err != nil {
		return nil, err
	}
	if used := after - before; used > d/10 {
		note := fmt.Sprintf("something else used %.0f %% of a processor %s: the figures are worth nothing",
			100*used.Seconds()/d.Seconds(), when)
		fmt.Fprintln(os.Stderr, "benchnative:", note)
		notes = append(notes, note)
	}
	return notes, nil
}

// prefix begins the names of all network namespaces that this makes.
const prefix = "snbench-"

// sweep deletes the network namespaces of runs that were killed.
func sweep() error {
	found, err := filepath.Glob(filepath.Join(netns.Dir, prefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), "-")
		if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
			continue // it is at work
		}
		if err := netns.Delete(filepath.Base(path)); err != nil {
			return err
		}
	}
	return nil
}

// idle measures what subjects use that have nothing to do.
func (o *options) idle(ctx context.Context, rigs []*rig, res *results) error {
	const d = 2 * time.Second
	rigs = slices.DeleteFunc(slices.Clone(rigs),
		func(r *rig) bool { return r.child == nil || !o.only.has(r.subject.String(), idle) })
	if len(rigs) == 0 {
		return nil
	}
	fmt.Fprintln(os.Stderr, "idle")
	if err := pause(ctx, d); err != nil {
		return err
	}
	before, after := make([]state, len(rigs)), make([]state, len(rigs))
	// The command costs something itself, and so comes before what is measured
	// at the beginning, and after it at the end.
	stats := func(states []state) (err error) {
		for i, r := range rigs {
			if states[i].counters, err = r.child.do("stats"); err != nil {
				return err
			}
		}
		return nil
	}
	cpu := func(states []state) (err error) {
		for i, r := range rigs {
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
		if err := pause(ctx, d); err != nil {
			return err
		}
		if err := errors.Join(cpu(after), stats(after)); err != nil {
			return err
		}
		for i, r := range rigs {
			b, a := before[i], after[i]
			seconds := a.at.Sub(b.at).Seconds()
			percent := 100 * (a.cpu - b.cpu).Seconds() / seconds
			sink := res.sink(idle, r.subject, 0)
			sink.add(idleAll, "%", percent)
			if r.subject.what == splitnic {
				sink.add(idleHalf, "%", percent/2)
			}
			sink.add(allocations, "/s", float64(a.counters.MallocsBefore-b.counters.MallocsAfter)/seconds)
		}
	}
	return nil
}

// events counts system calls and instructions, in runs of their own. It
// returns what is to be said about the figures.
func (o *options) events(ctx context.Context, rigs []*rig, res *results) (notes []string, err error) {
	all, err := systemCalls()
	if err != nil {
		notes = append(notes, err.Error())
	}
	events, why := countable(append(all, instructions))
	notes = append(notes, why...)
	if len(events) == 0 {
		return notes, nil
	}
	fmt.Fprintln(os.Stderr, "counting system calls and instructions")
	return notes, o.each(rigs, func(m *measurement, r *rig) error {
		if r.child == nil || m.load == nil {
			return nil
		}
		return m.countEvents(ctx, r, events, res.sink(m.name, r.subject, m.size))
	})
}

// profile writes a profile of each of splitnic's measurements, in a run of its own.
func (o *options) profile(ctx context.Context, rigs []*rig) error {
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
	return o.each(rigs, func(m *measurement, r *rig) error {
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
