package native

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

// fixture is a subject in its topology.
type fixture struct {
	subject
	*topology
	processes []*process // none if the subject has no separate process
}

// newFixture makes a fixture, which ends with b.
func newFixture(ctx context.Context, b *testbed.Bed, s subject) (*fixture, error) {
	r := &fixture{subject: s}
	var err error
	if r.topology, err = newTopology(b, s); err != nil {
		return nil, err
	}
	if n, ok := networks[s.what]; ok {
		r.processes, err = n.join(ctx, b, r.host, r.lan)
	} else if s.process() {
		r.processes, err = r.serve(b)
	}
	if err != nil {
		return nil, err
	}
	return r, r.configure(ctx)
}

// serve starts the process of the subject.
func (r *fixture) serve(b *testbed.Bed) ([]*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := start(b, self, "serve", r.String(), r.host, r.middle, r.lan, r.nic)
	return []*process{p}, err
}

// cpu returns the processor time that all processes have used.
func (r *fixture) cpu() (sum time.Duration, err error) {
	for _, p := range r.processes {
		var ts unix.Timespec
		// MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel; clock_getcpuclockid(3).
		if err := unix.ClockGettime(int32(^p.pid<<3|2), &ts); err != nil {
			return 0, os.NewSyscallError("clock_gettime", err)
		}
		sum += time.Duration(ts.Nano())
	}
	return sum, nil
}

// pids returns the numbers of all processes.
func (r *fixture) pids() string {
	var list []string
	for _, p := range r.processes {
		list = append(list, strconv.Itoa(p.pid))
	}
	return strings.Join(list, ",")
}
