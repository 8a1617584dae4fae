// Package hosts makes many hosts connect to one I/O unit at the same moment, and counts what
// happens to them. Both endpoints are in this process, with a fabric in memory between them. The
// hosts' netdevices cost nothing. The I/O unit's ports are macvtaps in a separate network
// namespace, or cost nothing either.
package hosts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// Suite returns the suite of `make bench-hosts`.
func Suite() *results.Suite {
	// There are gaps: all hosts may never be connected in a round, and a reason has no figure in a
	// round in which it was not given.
	return &results.Suite{Name: "bench-hosts", Rounds: 3, Gaps: true, Goals: goals,
		Tables: results.BySubject("Hosts that connect at once"), Plots: plots}
}

// plots returns plots of what hosts cost over their number, with a curve for each kind of ports.
func plots(rs results.Rows) (list []results.Plot) {
	for _, c := range []struct{ name, title, metric, unit string }{
		{"hosts-idle", "Processor that idle hosts and their I/O unit use", idling, "% of a processor, both endpoints"},
		{"hosts-frame", "Processor for a frame of 64 bytes while all hosts flood", perFrame, "µs, both endpoints"},
	} {
		p := results.Plot{Name: c.name, Title: c.title, X: "hosts", Y: c.unit, LogX: true}
		p, drawn := p.Curves(rs, func(r *results.Row) (string, float64) {
			count, others, found := strings.Cut(r.Subject, " hosts, ")
			n, err := strconv.Atoi(count)
			if r.Metric != c.metric || !found || err != nil {
				return "", 0
			}
			return others, float64(n)
		})
		if drawn {
			list = append(list, p)
		}
	}
	return list
}

const (
	group   = "hosts"
	allIn   = "all in"
	silent  = "silent"
	crowded = "crowded"
	refused = "refused"
	busiest = "busiest"
	idling  = "processor while idle"

	perFrame = "processor for a frame"

	// quick is the subject whose hosts have to be connected within a second, at the first attempt.
	quick = "256 hosts, ports none, busy 0"
)

// goals returns the goals: hosts are connected soon, none is declared silent, and none is refused
// for want of room. 256 hosts connect at the first attempt.
func goals(rs results.Rows) (list []results.Goal) {
	for i := range rs {
		r := &rs[i]
		switch r.Metric {
		case allIn:
			bound := 5.
			if strings.HasPrefix(r.Subject, quick) {
				bound = 1
			}
			list = append(list, r.ReachMedian("all hosts connected", "<=", bound)...)
		case refused:
			if strings.HasPrefix(r.Subject, quick) {
				list = append(list, r.ReachMedian("hosts with more than one attempt", "<=", 0)...)
			}
		case silent:
			list = append(list, r.ReachMedian("sessions declared silent", "<=", 0)...)
		case crowded:
			list = append(list, r.ReachMedian("connections refused for want of room", "<=", 0)...)
		case idling:
			list = append(list, r.ReachMedian("processor that idle hosts use, %", "<=", 10)...)
		case busiest:
			list = append(list, r.ReachMedian("the busiest of many hosts that flood, to the mean", "<=", 1.5)...)
		}
	}
	return list
}

// Options says how many hosts connect, and to which kind of ports.
type Options struct {
	hosts counts
	load  load // without the number of hosts
	busy  int
	each  bool // show what the hosts logged
}

// Flags implements results.Measure.
func (o *Options) Flags(flags *flag.FlagSet) {
	o.hosts = counts{400}
	flags.Var(&o.hosts, "hosts", "hosts that connect at once, or several numbers, such as 8,64,512, for one after the other")
	flags.StringVar(&o.load.ports, "ports", macvtapPorts, "the I/O unit's ports: macvtap, or none")
	flags.IntVar(&o.busy, "busy", 0, "processes beside that use a processor each")
	flags.DurationVar(&o.load.stay, "stay", 3*time.Second, "how long the hosts stay once all of them are in")
	flags.DurationVar(&o.load.flood, "flood", 0, "how long all hosts send after that as fast as they can; with -ports none only")
	flags.DurationVar(&o.load.within, "within", time.Minute, "how long to wait for all of them")
	flags.BoolVar(&o.each, "v", false, "show what the hosts logged")
}

// Measure implements results.Measure. The hosts connect in each round.
func (o *Options) Measure(ctx context.Context, rec *results.Recorder, rounds int, args []string) error {
	if o.busy < 0 || len(args) > 0 {
		return errors.New("-busy must be 0 at least")
	}
	if o.load.flood < 0 || o.load.flood > 0 && o.load.ports != noPorts {
		return fmt.Errorf("-flood must be 0 at least, and counts what ports take that cost nothing: -ports %s", noPorts)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	for _, n := range o.hosts {
		if err := (load{hosts: n}).fits(limit.Cur); err != nil {
			return err
		}
	}
	idle, err := occupy(o.busy)
	if err != nil {
		return err
	}
	defer idle()
	for round := range rounds {
		for _, n := range results.InTurn(round, o.hosts) {
			now := *o
			now.load.hosts = n
			r, err := gather(ctx, now.load)
			if err != nil {
				return err
			}
			now.record(r, rec, round)
		}
	}
	return nil
}

// counts are numbers of hosts, separated by commas.
type counts []int

// String implements flag.Value.
func (c *counts) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(*c)), " ", ","), "[]")
}

// Set implements flag.Value.
func (c *counts) Set(s string) error {
	*c = nil
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("%q is no number above 0", word)
		}
		*c = append(*c, n)
	}
	return nil
}

// perHost is the greatest number of descriptors that both endpoints of a host need: 33, and 36
// with a macvtap.
const perHost = 36

// fits returns an error if the hosts need more than this number of descriptors. Without enough
// descriptors, hosts would be refused again and again.
func (c load) fits(descriptors uint64) error {
	const others = 100
	if need := uint64(c.hosts)*perHost + others; need > descriptors {
		return fmt.Errorf("%d hosts take %d descriptors, of which this process may have %d: raise `ulimit -Hn`, "+
			"or ask for %d hosts", c.hosts, need, descriptors, (descriptors-min(descriptors, others))/perHost)
	}
	return nil
}

// record records what happened to the hosts.
func (o *Options) record(r result, rec *results.Recorder, round int) {
	sink := rec.Of(group, fmt.Sprintf("%d hosts, ports %s, busy %d", o.load.hosts, o.load.ports, o.busy), 0)
	in := "never"
	if r.allIn > 0 {
		in = r.allIn.String()
		sink.Add(allIn, "s", r.allIn.Seconds())
	} else {
		rec.Note("round %d: not all hosts were connected within %v", round+1, o.load.within)
	}
	fmt.Fprintf(os.Stderr, "round %d: all in: %s\n", round+1, in)
	sink.Add("processor", "s", r.processor.Seconds())
	sink.Add(silent, "sessions", float64(r.silent))
	sink.Add(crowded, "connections", float64(r.crowded))
	sink.Add(refused, "hosts", float64(r.refused))
	sink.Add("refused more than once", "hosts", float64(r.again))
	if r.allIn > 0 {
		sink.Add(idling, "%", 100*r.idle.processor)
		sink.Add("wake-ups while idle", "/s/host", r.idle.wakeups)
		sink.Add("goroutines", "/host", r.idle.goroutines)
		sink.Add("descriptors", "/host", r.idle.descriptors)
		sink.Add("resident memory", "MB/host", r.idle.memory/1e6)
		sink.Add("registered memory", "MB/host", r.idle.registered/1e6)
	}
	if f := r.flood; f != nil {
		sink.Add("frames of 64 bytes", "/s", f.rate)
		sink.Add(perFrame, "µs", 1e6*f.processor)
		sink.Add(busiest, "of the mean", f.busiest)
		sink.Add("least", "of the mean", f.least)
		sink.Add("registered memory after the flood", "MB/host", f.registered/1e6)
		for _, t := range []struct {
			what string
			*trips
		}{{"alone", f.alone}, {"beside floods", f.beside}} {
			if t.trips != nil {
				sink.Add("round trip of a host "+t.what+", median", "µs", 1e6*t.median)
				sink.Add("round trip of a host "+t.what+", p99", "µs", 1e6*t.p99)
			}
		}
	}
	for _, counted := range []struct {
		what  string
		times map[string]uint64
	}{{"ended: ", r.ended}, {"refusals: ", r.refusals}} {
		for _, why := range slices.Sorted(maps.Keys(counted.times)) {
			if n := counted.times[why]; n > 0 {
				sink.Add(counted.what+why, "times", float64(n))
			}
		}
	}
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		if o.each {
			fmt.Fprintf(os.Stderr, "%9d x %s\n", r.reasons[why], why)
		}
	}
}

// occupy starts n processes that use a processor each, and returns a function that ends them.
func occupy(n int) (end func(), err error) {
	// Pdeathsig is sent when the thread that has started a process ends. So this thread must not
	// end.
	runtime.LockOSThread()
	var loops []*exec.Cmd
	end = func() {
		for _, c := range loops {
			_ = c.Process.Kill()
			_ = c.Wait() // the error says that it was killed
		}
	}
	for range n {
		c := exec.Command("sh", "-c", "while :; do :; done")
		// The processes end with this process, in whatever way it ends.
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			end()
			return nil, fmt.Errorf("starting a process that is busy: %w", err)
		}
		loops = append(loops, c)
	}
	return end, nil
}
