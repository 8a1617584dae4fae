package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/scripts/measure/tools"
)

// measurement is a measurement that is made of subjects.
type measurement struct {
	name  string
	size  int  // bytes: the MTU for streams, the payload of datagrams
	rough bool // also made of subjects that are not measured in full
	asked bool // made only if it is selected
	// load starts traffic, which goes on until it is stopped. It is nil if once makes the
	// measurement.
	load func(st *topology) (traffic, error)
	once func(ctx context.Context, st *topology, sink results.Sink) error
}

const (
	warm     = 200 * time.Millisecond // until traffic is steady
	loadTime = 800 * time.Millisecond // for which traffic is measured
	rttTime  = 400 * time.Millisecond
	pings    = 100
	idleTime = 2 * time.Second
)

// measurements returns all measurements. tx is from the host to the LAN, rx the other way.
func measurements() []measurement {
	var list []measurement
	for _, toLAN := range []bool{true, false} {
		way := map[bool]string{true: ".tx", false: ".rx"}[toLAN]
		// between returns the ends of the way, and the address and the first one of the flows at the second.
		between := func(st *topology) (from, to, addr, flows string) {
			if toLAN {
				return st.host, st.lan, lanAddr, firstOf(lanFlows)
			}
			return st.lan, st.host, hostAddr, firstOf(hostFlows)
		}
		tcp := func(name string, n int) measurement {
			return measurement{name: name, size: lanMTU, rough: n == 1, load: func(st *topology) (traffic, error) {
				from, to, addr, _ := between(st)
				return newStreams(from, to, addr, n)
			}}
		}
		udp := func(name string, flows int, rate float64) measurement {
			rough := flows == 1 && rate == asArrives
			return measurement{name: name, size: small.size, rough: rough, load: func(st *topology) (traffic, error) {
				from, to, _, first := between(st)
				return newTorrent(from, to, first, flows, small, rate)
			}}
		}
		list = append(list, tcp("tcp"+way, 1), tcp("tcp4"+way, 4), udp("udp"+way, 1, asArrives),
			udp("udp"+way+".64flows", 64, asArrives), udp("flood"+way, 1, asPossible),
			measurement{name: "vxlan" + way, size: 1450, asked: true,
				load: func(st *topology) (traffic, error) { return newTunnelled(st, toLAN) }})
		for _, d := range overloads {
			list = append(list, measurement{name: "overload" + way + "." + d.name, size: d.size, asked: true,
				once: func(ctx context.Context, st *topology, sink results.Sink) error {
					from, to, addr, _ := between(st)
					return d.overload(ctx, from, to, addr, sink)
				}})
		}
	}
	return append(list, measurement{name: roundTrip, size: small.size, once: rtt},
		measurement{name: "ping", size: 56, once: ping})
}

func firstOf(network string) string { return netip.MustParsePrefix(network).Addr().Next().String() }

// of reports whether the measurement is made of s.
func (m *measurement) of(s subject) bool {
	return s.full() || m.rough && (!s.plain || m.size != small.size) || s.network() && m.name == roundTrip
}

// state has the values of all counters at one time.
type state struct {
	at            time.Time
	count         uint64
	sent          uint64
	frames, bytes uint64        // of the host's netdevice, both ways
	cpu           time.Duration // processor time of the subject's processes
	machine       time.Duration // processor time of the whole machine
}

// look reads all counters.
func (r *fixture) look(t traffic) (s state, err error) {
	if r.subject.process() {
		l, err := testbed.Link(r.host, r.hostDev)
		if err != nil {
			return s, err
		}
		n := l.Attrs().Statistics
		s.frames, s.bytes = n.TxPackets+n.RxPackets, n.TxBytes+n.RxBytes
		if s.cpu, err = r.cpu(); err != nil {
			return s, err
		}
	}
	processors, err := results.Processors()
	if err != nil {
		return s, err
	}
	s.machine = processors.Busy
	if b, ok := t.(*torrent); ok {
		s.sent = b.sent.Load()
	}
	s.count, s.at = t.count(), time.Now()
	return s, nil
}

// measure makes the measurement once, and adds its results to sink.
func (m *measurement) measure(ctx context.Context, r *fixture, sink results.Sink) error {
	if m.once != nil {
		return m.once(ctx, r.topology, sink)
	}
	before, after, err := m.run(ctx, r, func() error { return results.Pause(ctx, loadTime) })
	if err != nil {
		return err
	}
	d := after.at.Sub(before.at).Seconds()
	n := float64(after.count - before.count)
	if n == 0 {
		return errors.New("nothing arrived")
	}
	machine := (after.machine - before.machine).Seconds()
	cost, unit := 1e9/n, "s/GB"
	if m.size == small.size {
		n /= float64(small.size)
		cost, unit = 1e6/n, "µs/frame"
		sink.Add(rate, "frames/s", n/d)
		if strings.HasPrefix(m.name, "flood") {
			sink.Add(offered, "frames/s", float64(after.sent-before.sent)/float64(small.size)/d)
		}
	} else {
		sink.Add(throughput, "Gbit/s", n*8/d/1e9)
	}
	sink.Add(cpuMachine, unit, machine*cost)
	if r.subject.process() {
		process := (after.cpu - before.cpu).Seconds() * cost
		sink.Add(cpuEndpoint, unit, process/r.shares())
		if m.size != small.size {
			sink.Add(noCopy, unit, (process-r.copies()*copyCost())/r.shares())
		}
		if after.frames == before.frames {
			return errors.New("no frame went through the subject's process")
		}
		if m.size != small.size {
			sink.Add(frameSize, "bytes", float64(after.bytes-before.bytes)/float64(after.frames-before.frames))
		}
	}
	return nil
}

// copyCost returns how long it takes to copy a GB in memory, in seconds, in pieces as long as
// super-frames that are not in the first caches: the fastest of several tries.
var copyCost = sync.OnceValue(func() float64 {
	const piece, pieces = 64 << 10, 256
	from, to := bytes.Repeat([]byte{1}, piece*pieces), make([]byte, piece*pieces)
	fastest := time.Duration(math.MaxInt64)
	for range 20 {
		begin := time.Now()
		for i := range pieces {
			copy(to[i*piece:(i+1)*piece], from[i*piece:])
		}
		fastest = min(fastest, time.Since(begin))
	}
	return fastest.Seconds() / (piece * pieces / 1e9)
})

// run starts the traffic, and calls during when it is steady. It returns the states before and
// after that.
func (m *measurement) run(ctx context.Context, r *fixture, during func() error) (before, after state, err error) {
	t, err := m.load(r.topology)
	if err != nil {
		return before, after, err
	}
	err = results.Pause(ctx, warm)
	if err == nil {
		before, err = r.look(t)
	}
	if err == nil {
		err = during()
	}
	if err == nil {
		after, err = r.look(t)
	}
	return before, after, errors.Join(err, t.stop())
}

// countCalls counts the system calls of the subject's processes by perf(1) while the traffic flows. It
// is separate from the measurement of the traffic, because counting costs time for every system call.
func (m *measurement) countCalls(ctx context.Context, r *fixture, sink results.Sink) error {
	var perSecond float64
	before, after, err := m.run(ctx, r, func() (err error) {
		perSecond, err = calls(ctx, r.pids(), loadTime)
		return err
	})
	if err != nil {
		return err
	}
	frames := float64(after.frames-before.frames) / after.at.Sub(before.at).Seconds()
	if frames == 0 {
		return errors.New("no frame went through the subject's process")
	}
	sink.Add(callMetric, "/frame", perSecond/frames/r.shares())
	return nil
}

// calls returns how many system calls processes make in a second. pids has their numbers, separated by
// commas.
func calls(ctx context.Context, pids string, d time.Duration) (float64, error) {
	c := exec.CommandContext(ctx, "perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", pids, "--",
		"sleep", strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
	var out bytes.Buffer
	c.Stderr = &out
	err := c.Run()
	if err == nil {
		for line := range strings.Lines(out.String()) {
			count, _, _ := strings.Cut(line, ",")
			if n, err := strconv.ParseFloat(count, 64); err == nil {
				return n / d.Seconds(), nil
			}
		}
		err = errors.New("it did not count")
	}
	return 0, fmt.Errorf("perf stat: %w: %s", err, &out)
}

func rtt(_ context.Context, st *topology, sink results.Sink) error {
	times, err := roundTrips(st.host, st.lan, lanAddr, rttTime)
	if err != nil {
		return err
	}
	if len(times) < 100 {
		return fmt.Errorf("%d round trips only", len(times))
	}
	sink.Add(median50, "µs", results.Percentile(times, 0.5))
	sink.Add(median99, "µs", results.Percentile(times, 0.99))
	return nil
}

func ping(ctx context.Context, st *topology, sink results.Sink) error {
	times, err := tools.Ping(ctx, st.host, lanAddr, pings, 2*time.Millisecond)
	if err == nil && len(times) != pings {
		err = fmt.Errorf("ping: %d of %d were answered", len(times), pings)
	}
	if err != nil {
		return err
	}
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	sink.Add(average, "µs", sum/float64(len(times)))
	return nil
}
