package native

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/tools"
)

// measurement is a measurement that is made of subjects.
type measurement struct {
	name  string
	size  int  // bytes: the MTU for streams, the payload of datagrams
	rough bool // also made of subjects that are not measured in full
	flood bool // more is sent than arrives
	asked bool // made only if it is selected
	// load starts traffic, which goes on until it is stopped. It is nil if once makes the
	// measurement.
	load func(st *topology) (traffic, error)
	once func(ctx context.Context, st *topology, sink results.Sink) error
	warm time.Duration // until the traffic is steady
	time time.Duration // for which the traffic is measured
}

const (
	tcpWarm, tcpTime = 200 * time.Millisecond, 800 * time.Millisecond
	udpWarm, udpTime = 100 * time.Millisecond, 500 * time.Millisecond
	rrTime           = 400 * time.Millisecond
	pings            = 100
)

// measurements returns all measurements.
func measurements() []measurement {
	tcp := func(name string, rough, toLAN bool, n int) measurement {
		return measurement{name: name, size: 1500, rough: rough, warm: tcpWarm, time: tcpTime,
			load: func(st *topology) (traffic, error) {
				if toLAN {
					return traffic1(newStreams(st.host, st.lan, lanAddr, n))
				}
				return traffic1(newStreams(st.lan, st.host, hostAddr, n))
			}}
	}
	udp := func(name string, rough, toLAN bool, flows int, flood bool) measurement {
		return measurement{name: name, size: udpPayload, rough: rough, flood: flood, warm: udpWarm, time: udpTime,
			load: func(st *topology) (traffic, error) {
				if toLAN {
					return traffic1(newBlast(st.host, st.lan, firstOf(lanFlows), flows, flood))
				}
				return traffic1(newBlast(st.lan, st.host, firstOf(hostFlows), flows, flood))
			}}
	}
	var over []measurement
	for _, d := range overloads {
		over = append(over, measurement{
			name: "overload.tx." + d.name, size: d.size, asked: true,
			once: func(ctx context.Context, st *topology, sink results.Sink) error {
				return d.measureOverload(ctx, st.host, st.lan, lanAddr, sink)
			},
		}, measurement{
			name: "overload.rx." + d.name, size: d.size, asked: true,
			once: func(ctx context.Context, st *topology, sink results.Sink) error {
				return d.measureOverload(ctx, st.lan, st.host, hostAddr, sink)
			},
		})
	}
	vxlan := func(name string, toLAN bool) measurement {
		return measurement{
			name: name, size: 1450, asked: true, warm: tcpWarm, time: tcpTime,
			load: func(st *topology) (traffic, error) {
				return newTunnelled(st, func() (traffic, error) {
					if toLAN {
						return traffic1(newStreams(st.host, st.lan, tunnelLAN, 1))
					}
					return traffic1(newStreams(st.lan, st.host, tunnelHost, 1))
				})
			},
		}
	}
	over = append(over, vxlan("vxlan.tx", true), vxlan("vxlan.rx", false))
	return slices.Concat([]measurement{
		tcp("tcp.tx", true, true, 1), tcp("tcp.rx", true, false, 1),
		tcp("tcp4.tx", false, true, 4), tcp("tcp4.rx", false, false, 4),
		udp("udp.tx", true, true, 1, false), udp("udp.tx.64flows", false, true, 64, false),
		udp("udp.rx", true, false, 1, false), udp("udp.rx.64flows", false, false, 64, false),
		udp("flood.tx", false, true, 1, true), udp("flood.rx", false, false, 1, true),
		{name: "rtt", size: udpPayload, once: rtt},
		{name: pingName, size: 56, once: ping},
	}, over)
}

func firstOf(network string) netip.Addr { return netip.MustParsePrefix(network).Addr().Next() }

// of reports whether the measurement is made of s.
func (m *measurement) of(s subject) bool {
	return s.full() || m.rough && (!s.plain || m.size != udpPayload)
}

// state has the values of all counters at one time.
type state struct {
	at       time.Time
	count    uint64
	sent     uint64
	counters counters
	cpu      time.Duration // processor time of the subject's process
	machine  time.Duration // processor time of the whole machine
	events   map[string]uint64
}

// look reads all counters. c is nil without a process, events is nil if they are not counted.
func look(t traffic, c *child, events *tally) (s state, err error) {
	if events != nil {
		if s.events, err = events.read(); err != nil {
			return s, err
		}
	}
	if c != nil {
		if s.counters, err = c.do("stats"); err != nil {
			return s, err
		}
		if s.cpu, err = c.cpu(); err != nil {
			return s, err
		}
	}
	processors, err := results.Processors()
	if err != nil {
		return s, err
	}
	s.machine = processors.Busy
	if b, ok := t.(*blast); ok {
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
	before, after, err := m.run(ctx, r, nil)
	if err != nil {
		return err
	}
	d := after.at.Sub(before.at).Seconds()
	n := float64(after.count - before.count)
	if n == 0 {
		return errors.New("nothing arrived")
	}
	machine := (after.machine - before.machine).Seconds()
	process := (after.cpu - before.cpu).Seconds()
	if m.size == udpPayload {
		sink.Add(rate, "frames/s", n/d)
		if sent := float64(after.sent - before.sent); m.flood {
			sink.Add(offered, "frames/s", sent/d)
		}
		sink.Add(cpuMachine, "µs/frame", machine/n*1e6)
		if r.child != nil {
			sink.Add(cpuProcess, "µs/frame", process/n*1e6)
		}
	} else {
		sink.Add(throughput, "Gbit/s", n*8/d/1e9)
		sink.Add(cpuMachine, "s/GB", machine/n*1e9)
		if r.child != nil {
			sink.Add(cpuProcess, "s/GB", process/n*1e9)
		}
	}
	if r.child == nil {
		return nil
	}
	c := after.counters.sub(before.counters)
	if c.frames() == 0 {
		return errors.New("no frame went through the subject's process")
	}
	if m.size != udpPayload {
		sink.Add(frameRate, "frames/s", c.frames()/d)
		sink.Add(frameSize, "bytes", float64(c.Bytes[0]+c.Bytes[1])/c.frames())
	}
	// The command that reads the counters allocates, too. Its allocations are left out.
	mallocs := after.counters.MallocsBefore - before.counters.MallocsAfter
	sink.Add(allocations, "/frame", float64(mallocs)/c.frames())
	return nil
}

// run starts the traffic. It returns the state when the traffic is steady, and the state at the
// end. Between them it counts the given events of the subject's process.
func (m *measurement) run(ctx context.Context, r *fixture, events []event) (before, after state, err error) {
	t, err := m.load(r.topology)
	if err != nil {
		return before, after, err
	}
	err = func() error {
		if err := results.Pause(ctx, m.warm); err != nil {
			return err
		}
		var counted *tally
		if events != nil {
			var err error
			if counted, err = count(r.child.cmd.Process.Pid, events); err != nil {
				return err
			}
			defer counted.close()
		}
		if before, err = look(t, r.child, counted); err != nil {
			return err
		}
		if err := results.Pause(ctx, m.time); err != nil {
			return err
		}
		after, err = look(t, r.child, counted)
		return err
	}()
	return before, after, errors.Join(err, t.stop())
}

// countEvents counts the given events (system calls and instructions) of the subject's process
// while the traffic flows. It is separate from the measurement of the traffic, because counting
// costs time for every system call.
func (m *measurement) countEvents(ctx context.Context, r *fixture, events []event, sink results.Sink) error {
	if r.subject.what == splitnic {
		more, err := raised(r.child.cmd.Process.Pid)
		if err != nil {
			return err
		}
		events = slices.Concat(events, more)
	}
	before, after, err := m.run(ctx, r, events)
	if err != nil {
		return err
	}
	frames := after.counters.sub(before.counters).frames()
	if frames == 0 {
		return errors.New("no frame went through the subject's process")
	}
	for _, e := range events {
		n := float64(after.events[e.name] - before.events[e.name])
		switch {
		case e.name == instructions.name:
			sink.Add(e.name, "/frame", n/frames)
		case e.name == allCalls:
			sink.Add(allCalls, "/frame", n/frames)
			if r.subject.what == splitnic {
				others := float64(after.events[fabricEvents] - before.events[fabricEvents])
				sink.Add(endpointCalls, "/frame", (n-others)/frames/2)
			}
		case e.name == fabricEvents:
			sink.Add(e.name, "/frame", n/frames)
		case n > 0:
			sink.Add(callMetric+e.name, "/frame", n/frames)
		}
	}
	return nil
}

func rtt(_ context.Context, st *topology, sink results.Sink) error {
	times, err := roundTrips(st.host, st.lan, lanAddr, rrTime)
	if err != nil {
		return err
	}
	if len(times) < 100 {
		return fmt.Errorf("%d round trips only", len(times))
	}
	sink.Add(median50, "µs", times[len(times)/2].Seconds()*1e6)
	sink.Add(median99, "µs", times[len(times)*99/100].Seconds()*1e6)
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
