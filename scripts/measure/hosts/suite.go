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
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// quick is the pattern of the subject whose hosts have to be connected within a second, at the
// first attempt.
const quick = "256 hosts, ports none, busy 0"

// Suite returns the suite of `make bench-hosts`.
func Suite() *results.Suite {
	// There are gaps: all hosts may never be connected in a round.
	var o options
	aims := []results.Aim{
		{What: "all hosts connected", Metric: allIn, Op: "<=", Bound: 5},
		{What: "256 hosts connected", Subject: quick, Metric: allIn, Op: "<=", Bound: 1},
		{What: "hosts with more than one attempt", Subject: quick, Metric: refused, Op: "<=", Bound: 0},
		{What: "sessions declared silent", Metric: silent, Op: "<=", Bound: 0},
		{What: "connections refused for want of room", Metric: crowded, Op: "<=", Bound: 0},
		{What: "processor that idle hosts use", Metric: idling, Op: "<=", Bound: 10},
		{What: "the busiest of many hosts that flood", Metric: busiest, Op: "<=", Bound: 1.5},
	}
	return &results.Suite{Name: "bench-hosts", Rounds: 3, Gaps: true, Flags: o.flags, Measure: o.measure, Aims: aims}
}

// options says how many hosts connect, and to which kind of ports.
type options struct {
	hosts []int
	load  load // without the number of hosts
	busy  int
}

func (o *options) flags(flags *flag.FlagSet) {
	o.hosts = []int{400}
	flags.Func("hosts", "hosts that connect at once, or several numbers, such as 8,64,512, for one after the other (default 400)",
		func(s string) (err error) { o.hosts, err = numbers(s); return err })
	flags.StringVar(&o.load.ports, "ports", macvtapPorts, "the I/O unit's ports: macvtap, or none")
	flags.IntVar(&o.busy, "busy", 0, "processes beside that use a processor each")
	flags.DurationVar(&o.load.stay, "stay", 3*time.Second, "how long the hosts stay once all of them are in")
	flags.DurationVar(&o.load.flood, "flood", 0, "how long all hosts send after that as fast as they can; with -ports none only")
	flags.DurationVar(&o.load.within, "within", time.Minute, "how long to wait for all of them")
}

// measure has the hosts connect in each round.
func (o *options) measure(ctx context.Context, rec *results.Recorder, rounds int, args []string) error {
	switch {
	case o.busy < 0 || len(args) > 0:
		return errors.New("-busy must be 0 at least")
	case o.load.ports != macvtapPorts && o.load.ports != noPorts:
		return fmt.Errorf("-ports %s: use %s or %s", o.load.ports, macvtapPorts, noPorts)
	case o.load.flood < 0 || o.load.flood > 0 && o.load.ports != noPorts:
		return fmt.Errorf("-flood must be 0 at least, and counts what ports take that cost nothing: -ports %s", noPorts)
	}
	var limit syscall.Rlimit
	err := os.NewSyscallError("getrlimit", syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	for _, n := range o.hosts {
		err = errors.Join(err, fits(n, limit.Cur))
	}
	if err = errors.Join(err, testbed.Sweep()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the busy processes
	for range o.busy {
		if err := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done").Start(); err != nil {
			return err
		}
	}
	for round := range rounds {
		for _, n := range results.InTurn(round, o.hosts) {
			c := o.load
			c.hosts = n
			subject := fmt.Sprintf("%d hosts, ports %s, busy %d", n, c.ports, o.busy)
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, subject)
			if err := gather(ctx, c, rec.Of("hosts", subject, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbers parses numbers of hosts, separated by commas.
func numbers(s string) (list []int, err error) {
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no number above 0", word)
		}
		list = append(list, n)
	}
	return list, nil
}

// perHost is the greatest number of descriptors that both endpoints of a host need: 33, and 36
// with a macvtap.
const perHost = 36

// fits returns an error if the hosts need more than this number of descriptors. Without enough
// descriptors, hosts would be refused again and again.
func fits(hosts int, descriptors uint64) error {
	const others = 100
	if need := uint64(hosts)*perHost + others; need > descriptors {
		return fmt.Errorf("%d hosts take %d descriptors, of which this process may have %d: raise `ulimit -Hn`, "+
			"or ask for %d hosts", hosts, need, descriptors, (descriptors-min(descriptors, others))/perHost)
	}
	return nil
}
