package messaging_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
)

// followed waits until every worker has applied the last change of its handler. It returns the
// statistics of the handlers.
func followed(t *testing.T, conn *messaging.Conn) []cq.HandlerStats {
	t.Helper()
	var all []cq.HandlerStats
	until(t, func() error {
		all = conn.Stats().Handlers
		for _, h := range all {
			for _, w := range h.Workers {
				if w.Pending {
					return fmt.Errorf("the %s of channel %d has not followed", w.Role, w.Channel)
				}
				if w.Error != "" {
					return fmt.Errorf("the %s of channel %d: %s", w.Role, w.Channel, w.Error)
				}
			}
		}
		return nil
	})
	return all
}

// maskOf and niceOf return the affinity mask and the nice value of a thread in the kernel.
func maskOf(t *testing.T, tid int) cpus.List {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(tid, &set); err != nil {
		t.Fatal(err)
	}
	return cpus.Of(&set)
}

func niceOf(t *testing.T, tid int) int {
	t.Helper()
	n, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err != nil {
		t.Fatal(err)
	}
	return 20 - n
}

// boundThreads returns the number of threads whose affinity mask differs from the allowed
// processors, or whose nice value differs from that of the main thread.
func boundThreads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	n, nice := 0, niceOf(t, os.Getpid())
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		if unix.SchedGetaffinity(tid, &set) != nil {
			continue // the thread has ended
		}
		p, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
		if err == nil && (!slices.Equal(cpus.Of(&set), cpus.Allowed()) || 20-p != nice) {
			n++
		}
	}
	return n
}

// TestHandlingDefaults checks which handlers exist by default, and which channel is assigned
// to which handler.
func TestHandlingDefaults(t *testing.T) {
	n := fabrictest.New()
	dev := n.Device("a") // which has four completion vectors
	defer dev.Close()
	for _, c := range []struct {
		name     string
		cfg      messaging.Config
		data     int
		assigned []int
	}{
		{"one channel", messaging.Config{}, 1, []int{1}},
		{"fewer channels than vectors", messaging.Config{Queues: 3}, 3, []int{1, 2, 3}},
		{"more channels than vectors", messaging.Config{Queues: 6}, 4, []int{1, 2, 3, 4, 1, 2}},
		{"fewer handlers", messaging.Config{Queues: 3, Handlers: []cq.Handler{{Number: 2}}}, 2, []int{1, 2, 1}},
		{"more handlers", messaging.Config{Queues: 2, Handlers: []cq.Handler{{Number: 7}}}, 7, []int{1, 2}},
		{"only that of control", messaging.Config{Queues: 2, Handlers: []cq.Handler{{Number: 0, Priority: 3}}}, 1,
			[]int{1, 1}},
		{"assigned", messaging.Config{Queues: 4, Assigned: []int{2, 0, 1}}, 4, []int{2, 2, 1, 4}},
		{"assigned too many", messaging.Config{Queues: 1, Handlers: []cq.Handler{{Number: 2}},
			Assigned: []int{2, 1, 1}}, 2, []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Device, c.cfg.Spin = dev, time.Microsecond
			if err := c.cfg.Check(); err != nil {
				t.Fatal(err)
			}
			g := c.cfg.Handling()
			if len(g.Handlers) != 1+c.data || !slices.Equal(g.Assigned, c.assigned) {
				t.Errorf("%+v", g)
			}
			listed := map[int]bool{0: true}
			for _, h := range c.cfg.Handlers {
				listed[h.Number] = true
			}
			for i, h := range g.Handlers {
				if h.Number != i || h.Budget != cq.DefaultBudget || (h.Spin == 0) != listed[i] {
					t.Errorf("handler %d: %+v", i, h)
				}
			}
		})
	}
}

// TestHandlerMistakes makes invalid changes of handlers and assignments, before and during a
// session. They must be refused, and change nothing.
func TestHandlerMistakes(t *testing.T) {
	_, a, _ := newPair(t, patient(messaging.Config{Queues: 2}), patient(messaging.Config{Queues: 2}))
	none := cpus.List{cpus.Max - 1}
	set := func(h cq.Handler) func(messaging.Config) error {
		return func(cfg messaging.Config) error {
			if cfg.Device == nil {
				return a.conn.SetHandler(h)
			}
			cfg.Handlers = []cq.Handler{h}
			return cfg.Check()
		}
	}
	assign := func(channel, handler int) func(messaging.Config) error {
		return func(cfg messaging.Config) error {
			if cfg.Device == nil {
				return a.conn.Assign(channel, handler)
			}
			cfg.Assigned = make([]int, 2)
			if channel < 1 || channel > 2 || handler == 0 {
				return cq.ErrHandler // Assigned has no such channel, and a handler of 0 means the default
			}
			cfg.Assigned[channel-1] = handler
			return cfg.Check()
		}
	}
	before := a.conn.Handling()
	for _, c := range []struct {
		name string
		do   func(messaging.Config) error
		want error
	}{
		{"a handler of no number", set(cq.Handler{Number: -1}), cq.ErrHandler},
		{"a handler of too high a number", set(cq.Handler{Number: cq.MaxHandlers + 1}), cq.ErrHandler},
		{"no budget", set(cq.Handler{Number: 1, Budget: -1}), cq.ErrHandler},
		{"too much budget", set(cq.Handler{Number: 1, Budget: cq.MaxBudget + 1}), cq.ErrHandler},
		{"polling for ever", set(cq.Handler{Number: 1, Spin: time.Hour}), cq.ErrHandler},
		{"polling into the past", set(cq.Handler{Number: 1, Spin: -1}), cq.ErrHandler},
		{"adaptively, for no time", set(cq.Handler{Number: 1, Adaptive: true}), cq.ErrHandler},
		{"a processor that is not there", set(cq.Handler{Number: 1, CPUs: none}), cq.ErrProcessor},
		{"more than last", set(cq.Handler{Number: 1, Priority: 20}), cq.ErrPriority},
		{"more than first", set(cq.Handler{Number: 0, Priority: -21}), cq.ErrPriority},
		{"the control channel", assign(0, 1), cq.ErrHandler},
		{"a channel that is not there", assign(3, 1), cq.ErrHandler},
		{"the control channel's handler", assign(1, 0), cq.ErrHandler},
		{"a handler that is not there", assign(1, 3), cq.ErrHandler},
	} {
		if err := c.do(messaging.Config{}); !errors.Is(err, c.want) {
			t.Errorf("%s, during a session: %v", c.name, err)
		}
		if err := c.do(messaging.Config{Device: a.dev, Queues: 2}); !errors.Is(err, c.want) {
			t.Errorf("%s, before: %v", c.name, err)
		}
	}
	twice := messaging.Config{Device: a.dev, Handlers: []cq.Handler{{Number: 1}, {Number: 1}}}
	if err := twice.Check(); !errors.Is(err, cq.ErrHandler) {
		t.Errorf("a handler twice: %v", err)
	}
	for _, g := range []cq.Handling{{}, {Handlers: make([]cq.Handler, 2)}} {
		if err := a.conn.SetHandling(g); !errors.Is(err, cq.ErrHandler) {
			t.Errorf("%+v: %v", g, err)
		}
	}
	if after := a.conn.Handling(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%+v has become %+v by mistakes", before, after)
	}
	a.conn.Close()
	if err := a.conn.Assign(1, 2); !errors.Is(err, net.ErrClosed) {
		t.Errorf("assign after close: %v", err)
	}
}

// TestHandlerBindsItsWorkers gives handlers processors and priorities, moves a channel from
// one handler to another, and undoes everything. It checks the threads' settings in the
// kernel.
func TestHandlerBindsItsWorkers(t *testing.T) {
	allowed := cpus.Allowed()
	first, last := allowed[:1], allowed[len(allowed)-1:]
	cfg := patient(messaging.Config{Queues: 2, Handlers: []cq.Handler{{Number: 1, CPUs: first}, {Number: 2}}})
	_, a, b := newPair(t, cfg, patient(messaging.Config{Queues: 2}))
	own := niceOf(t, os.Getpid())

	check := func(what string, want map[int]cq.Handler) {
		t.Helper()
		workers := 0
		for _, h := range followed(t, a.conn) {
			for _, w := range h.Workers {
				workers++
				x := want[w.Channel]
				if h.Number != x.Number {
					t.Errorf("%s: channel %d is with handler %d, not %d", what, w.Channel, h.Number, x.Number)
				}
				bound := len(x.CPUs) > 0 || x.Priority != 0
				if bound != (w.Thread != 0) {
					t.Errorf("%s: the %s of channel %d has thread %d", what, w.Role, w.Channel, w.Thread)
				}
				mask, nice := allowed, own
				if len(x.CPUs) > 0 {
					mask = x.CPUs
				}
				if x.Priority != 0 {
					nice = x.Priority
				}
				if bound {
					if got := maskOf(t, w.Thread); !slices.Equal(got, mask) {
						t.Errorf("%s: the %s of channel %d may run on %v, not %v", what, w.Role, w.Channel, got, mask)
					}
					if got := niceOf(t, w.Thread); got != nice {
						t.Errorf("%s: the %s of channel %d has priority %d, not %d", what, w.Role, w.Channel, got, nice)
					}
				}
				if !slices.Equal(w.CPUs, mask) || w.Priority != nice {
					t.Errorf("%s: the stats say %v, %d of the %s of channel %d", what, w.CPUs, w.Priority, w.Role, w.Channel)
				}
			}
		}
		if workers != 5 {
			t.Errorf("%s: %d workers", what, workers)
		}
		if err := stream(deadline(t), a.wires[0], b.wires[0], randomSizes(1, 50), 1500); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	control := cq.Handler{}
	one, two := cq.Handler{Number: 1, CPUs: first}, cq.Handler{Number: 2}
	check("at the beginning", map[int]cq.Handler{0: control, 1: one, 2: two})

	two.Priority = 5
	do(a.conn.SetHandler(two))
	check("a priority", map[int]cq.Handler{0: control, 1: one, 2: two})

	do(a.conn.Assign(1, 2))
	check("the other handler", map[int]cq.Handler{0: control, 1: two, 2: two})

	two.CPUs, two.Priority = last, own
	if os.Geteuid() == 0 { // other users cannot raise a priority again
		do(a.conn.SetHandler(two))
		check("its processors", map[int]cq.Handler{0: control, 1: two, 2: two})
	}

	do(a.conn.Assign(1, 1))
	control.CPUs = first
	do(a.conn.SetHandler(control))
	if os.Geteuid() == 0 {
		check("back, and the control channel", map[int]cq.Handler{0: control, 1: one, 2: two})
		two.CPUs, two.Priority, control.CPUs, one.CPUs = nil, 0, nil, nil
		for _, h := range []cq.Handler{control, one, two} {
			do(a.conn.SetHandler(h))
		}
		check("as it was", map[int]cq.Handler{0: {}, 1: {Number: 1}, 2: {Number: 2}})
		until(t, func() error {
			if n := boundThreads(t); n > 0 {
				return fmt.Errorf("%d threads are still bound", n)
			}
			return nil
		})
	}
}

// TestHandlerBindsAgain takes a bound thread off its processor, as the kernel does when the processor goes
// offline. It must be bound again without any call.
func TestHandlerBindsAgain(t *testing.T) {
	allowed := cpus.Allowed()
	if len(allowed) < 2 {
		t.Skip("needs two processors")
	}
	cfg := patient(messaging.Config{Queues: 1, Handlers: []cq.Handler{{Number: 1, CPUs: allowed[:1]}}})
	_, a, _ := newPair(t, cfg, patient(messaging.Config{Queues: 1}))
	var threads []int
	for _, w := range followed(t, a.conn)[1].Workers {
		threads = append(threads, w.Thread)
	}
	anywhere := allowed.Set()
	for _, tid := range threads {
		if err := unix.SchedSetaffinity(tid, &anywhere); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() error {
		for _, tid := range threads {
			if got := maskOf(t, tid); !slices.Equal(got, allowed[:1]) {
				return fmt.Errorf("thread %d may run on %v", tid, got)
			}
		}
		return nil
	})
	followed(t, a.conn) // without an error
}

// TestHandlerFreesItsWorkers takes a channel away from its handler, and closes a session with a
// handler. The threads of the workers that are free must lose the processors and the nice value of
// the handler.
func TestHandlerFreesItsWorkers(t *testing.T) {
	testenv.NeedRoot(t) // to raise a priority again
	allowed, own := cpus.Allowed(), niceOf(t, os.Getpid())
	other := own + 1
	if own == 19 { // the last one
		other = own - 1
	}
	h := cq.Handler{Number: 2, CPUs: allowed[:1], Priority: other}
	cfg := patient(messaging.Config{Queues: 2, Handlers: []cq.Handler{h}})
	_, a, _ := newPair(t, cfg, patient(messaging.Config{Queues: 2}))
	threads := func() (all []int) {
		t.Helper()
		for _, w := range followed(t, a.conn)[2].Workers {
			all = append(all, w.Thread)
			if got := maskOf(t, w.Thread); !slices.Equal(got, h.CPUs) || niceOf(t, w.Thread) != h.Priority {
				t.Fatalf("the %s may run on %v, with priority %d", w.Role, got, niceOf(t, w.Thread))
			}
		}
		if len(all) != 2 {
			t.Fatalf("the handler has threads %d", all)
		}
		return all
	}
	was := threads()
	if err := a.conn.Assign(2, cq.Unassigned); err != nil {
		t.Fatal(err)
	}
	for _, tid := range was {
		if got := maskOf(t, tid); !slices.Equal(got, allowed) || niceOf(t, tid) != own {
			t.Errorf("a freed thread may run on %v, with priority %d, not on %v with %d", got, niceOf(t, tid), allowed, own)
		}
	}
	if err := a.conn.Assign(2, 2); err != nil {
		t.Fatal(err)
	}
	threads()
	if err := a.conn.Close(); err != nil {
		t.Fatal(err)
	}
	if n := boundThreads(t); n > 0 {
		t.Errorf("%d threads of workers that have ended are bound", n)
	}
}

// TestHandlerPriorities runs two channels on one processor with different priorities, and then
// exchanges the priorities.
func TestHandlerPriorities(t *testing.T) {
	cpu := cpus.Allowed()[:1]
	cfg := patient(messaging.Config{Queues: 2, Handlers: []cq.Handler{
		{Number: 1, CPUs: cpu, Priority: 1}, {Number: 2, CPUs: cpu, Priority: 10},
	}})
	_, a, _ := newPair(t, cfg, patient(messaging.Config{Queues: 2}))
	before := func(x, y int) {
		t.Helper()
		nice := map[int][]int{}
		for _, h := range followed(t, a.conn) {
			for _, w := range h.Workers {
				nice[w.Channel] = append(nice[w.Channel], niceOf(t, w.Thread))
			}
		}
		if slices.Max(nice[x]) >= slices.Min(nice[y]) {
			t.Errorf("channel %d has priorities %d, channel %d has %d", x, nice[x], y, nice[y])
		}
	}
	before(1, 2)
	if os.Geteuid() != 0 {
		if err := a.conn.Assign(2, 1); !errors.Is(err, cq.ErrPriority) {
			t.Errorf("an ordinary user's thread goes first again: %v", err)
		}
		return
	}
	g, err := a.conn.Handling().Change(cq.HandlerChange{Assign: map[int]int{1: 2, 2: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.conn.SetHandling(g); err != nil {
		t.Fatal(err)
	}
	before(2, 1)
}

// TestHandlerOfPollingWorkers binds the polling worker of a channel, which never sleeps, and
// unbinds it again.
func TestHandlerOfPollingWorkers(t *testing.T) {
	cfg := patient(messaging.Config{Queues: 2, Poll: true})
	_, a, b := newPair(t, cfg, cfg)
	cpu := cpus.Allowed()[:1]
	for _, list := range []cpus.List{cpu, nil} {
		if err := a.conn.SetHandler(cq.Handler{Number: 2, CPUs: list}); err != nil {
			t.Fatal(err)
		}
		h := followed(t, a.conn)[2]
		if len(h.Workers) != 1 || h.Workers[0].Role != cq.RoleBoth || (h.Workers[0].Thread != 0) != (list != nil) {
			t.Errorf("on processors %v: %+v", list, h)
		}
		if list != nil && !slices.Equal(maskOf(t, h.Workers[0].Thread), cpu) {
			t.Errorf("the worker may run on %v", maskOf(t, h.Workers[0].Thread))
		}
		for i := range 2 {
			if err := stream(deadline(t), a.wires[i], b.wires[i], randomSizes(uint64(i), 50), 1500); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReassignUnderTraffic moves channels between handlers, and changes the handlers, while
// frames are sent in both directions. No frame may be lost or overtake another.
func TestReassignUnderTraffic(t *testing.T) {
	const queues, handlers = 2, 3
	cfg := patient(messaging.Config{Queues: queues, Handlers: []cq.Handler{{Number: handlers}}})
	n, a, b := newPair(t, cfg, cfg)
	ctx := deadline(t)
	streams := streamBothWays(ctx, t, a, b, 2000)
	allowed := cpus.Allowed()
	for i := range 100 {
		for _, h := range []*endpoint{a, b} {
			if err := h.conn.Assign(1+i%queues, 1+i%handlers); err != nil {
				t.Error(err)
			}
			x := cq.Handler{Number: i % (1 + handlers), Budget: 1 + i%50,
				Spin: time.Duration(i%3) * 10 * time.Microsecond}
			if i%2 == 0 {
				x.CPUs = allowed[i%len(allowed):][:1]
			}
			if err := h.conn.SetHandler(x); err != nil {
				t.Error(err)
			}
		}
		followed(t, a.conn)
		followed(t, b.conn)
	}
	streams.Wait()
	settled(t, a, b)
	untroubled(t, n, a, b)
	for _, h := range []*endpoint{a, b} {
		var byHandler, byWorker uint64
		for _, x := range h.conn.Stats().Handlers {
			byHandler += x.Completions
			for _, w := range x.Workers {
				byWorker += w.Completions
			}
		}
		if byWorker == 0 || byHandler < byWorker {
			t.Errorf("%s: the handlers count %d completions, the workers %d", h.name, byHandler, byWorker)
		}
	}
}

// vectorDevice records the completion vectors of the completion queues created.
type vectorDevice struct {
	fabric.Device
	made *[]int
}

type vectorDomain struct {
	fabric.Domain
	made *[]int
}

func (d vectorDevice) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return vectorDomain{dom, d.made}, err
}

func (d vectorDomain) NewCQ(depth, vector int) (fabric.CQ, error) {
	*d.made = append(*d.made, vector)
	return d.Domain.NewCQ(depth, vector)
}

// TestVectorOfTheHandler checks that completion queues use the vectors of the handlers to
// which the channels are assigned at first. A channel that moves to another handler must keep
// its vector, and report it. In the next session it must have the vector of the new handler.
func TestVectorOfTheHandler(t *testing.T) {
	dev := fabrictest.New().Device("a")
	defer dev.Close()
	var made []int
	cfg := messaging.Config{
		Device: vectorDevice{dev, &made}, Queues: 3,
		Handlers: []cq.Handler{{Number: 6}}, Assigned: []int{6, 1, 3},
	}
	open := func(cfg messaging.Config, want ...int) *messaging.Conn {
		t.Helper()
		made = nil
		conn, err := messaging.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(made, want) {
			t.Errorf("queues on vectors %d, want %d", made, want)
		}
		return conn
	}
	// One queue of the control channel, and two of each data channel.
	conn := open(cfg, 0, 2, 2, 1, 1, 3, 3)
	defer conn.Close()
	if err := conn.Assign(2, 6); err != nil {
		t.Fatal(err)
	}
	s := conn.Stats()
	if ch := s.Channels[1]; s.CompVectors != 4 || ch.Handler != 6 || ch.CompVector != 1 || s.Handlers[6].Vector != 2 {
		t.Errorf("of %d vectors channel 2 is on %d, with handler %d, whose vector is %d", s.CompVectors, ch.CompVector,
			ch.Handler, s.Handlers[6].Vector)
	}
	if got := s.Handlers[6].Channels; !slices.Equal(got, []int{1, 2}) {
		t.Errorf("handler 6 has channels %d", got)
	}
	if got := s.Handlers[0].Channels; !slices.Equal(got, []int{0}) {
		t.Errorf("handler 0 has channels %d", got)
	}
	next := cfg
	next.SetHandling(conn.Handling())
	defer open(next, 0, 2, 2, 2, 2, 3, 3).Close()
}
