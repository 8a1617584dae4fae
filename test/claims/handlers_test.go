package claims

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/vnet"
)

// change changes the handlers of a session.
func change(conn *messaging.Conn, what cq.HandlerChange) error {
	g, err := conn.Handling().Change(what)
	if err != nil {
		return err
	}
	return conn.SetHandling(g)
}

// assign assigns a data channel to a handler.
func assign(conn *messaging.Conn, channel, handler int) error {
	return change(conn, cq.HandlerChange{Assign: map[int]int{channel: handler}})
}

// vectorsOf returns the completion vectors of the completion queues of a side's channels, indexed
// by channel. Channel 0 is the control channel.
func (p *pair) vectorsOf(side string) []int {
	p.t.Helper()
	made := map[int]int{}
	for _, e := range p.pick(side, cqMade) {
		made[e.cq] = e.vector
	}
	vectors := make([]int, p.channels())
	for _, e := range p.pick(side, qpMade) {
		if made[e.cq] != made[e.sendCQ] {
			p.t.Errorf("%s: a channel is on completion vectors %d and %d", side, made[e.cq], made[e.sendCQ])
		}
		vectors[p.channel(side, e.qpn)] = made[e.cq]
	}
	return vectors
}

// handlersFollowed waits until all workers of a side have applied the configuration of their
// handlers. It returns the handlers.
func (p *pair) handlersFollowed(side string) []cq.HandlerStats {
	p.t.Helper()
	var all []cq.HandlerStats
	p.until(func() error {
		all = p.endpoints[side].conn.Stats().Handlers
		for _, h := range all {
			for _, w := range h.Workers {
				if w.Pending || w.Error != "" {
					return fmt.Errorf("%s: the %s of channel %d has not followed: %s", side, w.Role, w.Channel, w.Error)
				}
			}
		}
		return nil
	})
	return all
}

func TestHandlersQueried(t *testing.T)     { inMemory(t, handlersQueried) }
func TestRDMAHandlersQueried(t *testing.T) { onSoftRoCE(t, handlersQueried) }

// A device reports its number of completion vectors. A session without configured handlers has one
// handler for each vector, but not more than data channels, and a handler of the control channel.
func handlersQueried(t *testing.T, on fabricOf) {
	cfg := answering
	cfg.Queues = 5
	p := newPair(t, on, cfg)
	for _, side := range sides {
		vectors := p.devices[side].Limits().CompVectors
		if vectors < 1 {
			t.Fatalf("%s: %d completion vectors", side, vectors)
		}
		s := p.endpoints[side].conn.Stats()
		if want := 1 + min(vectors, cfg.Queues); s.CompVectors != vectors || len(s.Handlers) != want {
			t.Errorf("%s: %d handlers for %d completion vectors of %d, want %d", side, len(s.Handlers), s.CompVectors, vectors,
				want)
		}
		for i, h := range s.Handlers {
			if h.Number != i || h.Vector != i%vectors || (i == 0) != slices.Equal(h.Channels, []int{0}) || len(h.Channels) == 0 {
				t.Errorf("%s: handler %d: %+v", side, i, h)
			}
		}
	}
}

func TestHandlersChosen(t *testing.T)     { inMemory(t, handlersChosen) }
func TestRDMAHandlersChosen(t *testing.T) { onSoftRoCE(t, handlersChosen) }

// The number of a channel's handler selects the completion vector on which the channel's queues are
// created. Several channels can share one handler. The control channel has its own handler.
func handlersChosen(t *testing.T, on fabricOf) {
	cfg := answering
	cfg.Queues, cfg.Handlers, cfg.Assigned = 4, []cq.Handler{{Number: 3}}, []int{3, 2, 2, 1}
	p := newPair(t, on, cfg)
	p.traffic()
	for _, side := range sides {
		n := p.devices[side].Limits().CompVectors
		if got, want := p.vectorsOf(side), []int{0, 3 % n, 2 % n, 2 % n, 1 % n}; !slices.Equal(got, want) {
			t.Errorf("%s: channels on completion vectors %d of %d, want %d", side, got, n, want)
		}
		handlers := p.endpoints[side].conn.Stats().Handlers
		for i, want := range [][]int{{0}, {4}, {2, 3}, {1}} {
			workers := 2 * len(want)
			if i == cq.ControlHandler {
				workers = 1
			}
			if h := handlers[i]; !slices.Equal(h.Channels, want) || h.Completions == 0 || len(h.Workers) != workers {
				t.Errorf("%s: handler %d has channels %d, %d workers, %d completions", side, i, h.Channels, len(h.Workers),
					h.Completions)
			}
		}
	}
}

func TestHandlerReassigned(t *testing.T)     { inMemory(t, handlerReassigned) }
func TestRDMAHandlerReassigned(t *testing.T) { onSoftRoCE(t, handlerReassigned) }

// While frames cross in both directions, channels are repeatedly assigned to other handlers, which
// have other processors and other budgets. No frame is lost, and the kernel reports the processors
// of the handlers as the affinity of the workers. The queues of the channels stay on the vector on
// which they were created. The queues of the next session are created on the vector of the new
// handler.
func handlerReassigned(t *testing.T, on fabricOf) {
	allowed := cpus.Allowed()
	cfg := answering
	cfg.Queues = 2
	cfg.Handlers = []cq.Handler{{Number: 1, CPUs: allowed[:1]},
		{Number: 2, CPUs: allowed[len(allowed)-1:], Budget: 8, Spin: 20 * time.Microsecond}}
	p := newPair(t, on, cfg)
	before := p.vectorsOf(hostSide)
	done := make(chan struct{})
	moved := make(chan int, 1)
	go func() {
		n := 0
		for {
			for _, side := range sides {
				for ch := range cfg.Queues {
					if err := assign(p.endpoints[side].conn, 1+ch, 1+(n+ch)%2); err != nil {
						t.Error(err)
					}
				}
			}
			n++
			select {
			case <-done:
				moved <- n
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	for range 3 {
		p.traffic()
	}
	close(done)
	if n := <-moved; n < 2 {
		t.Errorf("the channels were moved %d times", n)
	}
	// At last assign both channels to the second handler.
	for _, side := range sides {
		conn := p.endpoints[side].conn
		for ch := range cfg.Queues {
			if err := assign(conn, 1+ch, 2); err != nil {
				t.Fatal(err)
			}
		}
		h := p.handlersFollowed(side)[2]
		if !slices.Equal(h.Channels, []int{1, 2}) || len(h.Workers) != 4 {
			t.Errorf("%s: the second handler has channels %d and %d workers", side, h.Channels, len(h.Workers))
		}
		for _, w := range h.Workers {
			var mask unix.CPUSet
			if err := unix.SchedGetaffinity(w.Thread, &mask); err != nil {
				t.Fatal(err)
			}
			if got := cpus.Of(&mask); w.Thread == 0 || !slices.Equal(got, allowed[len(allowed)-1:]) {
				t.Errorf("%s: the %s of channel %d, thread %d, may run on processors %v", side, w.Role, w.Channel, w.Thread, got)
			}
		}
	}
	p.traffic()
	if after := p.vectorsOf(hostSide); !slices.Equal(before, after) {
		t.Errorf("queues on completion vectors %d have moved to %d", before, after)
	}
	vectors := p.devices[hostSide].Limits().CompVectors
	for i, v := range stats(p, hostSide).Vectors() {
		if v.Handler != 2 || v.Vector != before[1+i] || v.HandlerVector != 2%vectors {
			t.Errorf("the status says %+v of a channel on completion vector %d", v, before[1+i])
		}
	}
	next := cfg
	next.SetHandling(p.endpoints[hostSide].conn.Handling())
	again := newPair(t, on, next)
	again.traffic()
	if got, want := again.vectorsOf(hostSide), []int{0, 2 % vectors, 2 % vectors}; !slices.Equal(got, want) {
		t.Errorf("in the next session: completion vectors %d, want %d", got, want)
	}
}

func stats(p *pair, side string) *messaging.Stats {
	s := p.endpoints[side].conn.Stats()
	return &s
}

func TestHandlerPriorities(t *testing.T)     { inMemory(t, handlerPriorities) }
func TestRDMAHandlerPriorities(t *testing.T) { onSoftRoCE(t, handlerPriorities) }

// Two channels have handlers on one processor, with different priorities. The kernel gives the
// threads of each handler the nice value of its priority. Then the order of the two priorities is
// reversed, under traffic.
func handlerPriorities(t *testing.T, on fabricOf) {
	cpu := cpus.Allowed()[:1]
	cfg := answering
	cfg.Queues = 2
	cfg.Handlers = []cq.Handler{{Number: 1, CPUs: cpu, Priority: 10}, {Number: 2, CPUs: cpu, Priority: 10}}
	p := newPair(t, on, cfg)
	// Priorities only get lower, which needs no privilege.
	for _, priorities := range [][]int{{12, 15}, {18, 15}} {
		for _, side := range sides {
			for i, priority := range priorities {
				if err := change(p.endpoints[side].conn, cq.HandlerChange{
					Handlers: []cq.HandlerPatch{{Number: 1 + i, Priority: &priority}}}); err != nil {
					t.Fatal(err)
				}
			}
			for _, h := range p.handlersFollowed(side)[1:] {
				for _, w := range h.Workers {
					n, err := unix.Getpriority(unix.PRIO_PROCESS, w.Thread)
					if err != nil {
						t.Fatal(err)
					}
					if nice := 20 - n; nice != priorities[w.Channel-1] || w.Priority != nice {
						t.Errorf("%s: the %s of channel %d has priority %d, %d in the status, want %d", side, w.Role, w.Channel, nice,
							w.Priority, priorities[w.Channel-1])
					}
				}
			}
		}
		p.traffic()
	}
}

func TestHandlerRemoved(t *testing.T)     { inMemory(t, handlerRemoved) }
func TestRDMAHandlerRemoved(t *testing.T) { onSoftRoCE(t, handlerRemoved) }

// The association of a channel with its handler is removed during a session, and traffic goes on.
// The handler has no workers of the channel any more, whose threads may run on all processors, and
// does not count its completions. Then the association is made again.
func handlerRemoved(t *testing.T, on fabricOf) {
	cfg := answering
	cfg.Queues, cfg.Handlers = 2, []cq.Handler{{Number: 1, CPUs: cpus.Allowed()[:1], Priority: 10, Budget: 8}}
	p := newPair(t, on, cfg)
	p.traffic()
	for _, side := range sides {
		conn := p.endpoints[side].conn
		workers := p.handlersFollowed(side)[1].Workers
		if err := assign(conn, 2, cq.Unassigned); err != nil {
			t.Fatal(err)
		}
		for _, w := range workers {
			if w.Channel != 2 {
				continue
			}
			var mask unix.CPUSet
			if err := unix.SchedGetaffinity(w.Thread, &mask); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(cpus.Of(&mask), cpus.Allowed()) {
				t.Errorf("%s: the %s of channel 2 may run on %v only, without a handler", side, w.Role, cpus.Of(&mask))
			}
		}
		h := p.handlersFollowed(side)[1]
		if !slices.Equal(h.Channels, []int{1}) || len(h.Workers) != 2 {
			t.Errorf("%s: the handler has channels %d and %d workers, without channel 2", side, h.Channels, len(h.Workers))
		}
		for i, v := range stats(p, side).Vectors() {
			if want := []int{1, cq.Unassigned}[i]; v.Handler != want || v.Vector != v.HandlerVector {
				t.Errorf("%s: channel %d has handler %d, want %d: %+v", side, v.Channel, v.Handler, want, v)
			}
		}
	}
	before := p.endpoints[hostSide].conn.Stats().Handlers[1].Completions
	p.cross(unitSide, 1, repeat(1000, 32)...)
	if n := p.endpoints[hostSide].conn.Stats().Handlers[1].Completions; n != before {
		t.Errorf("%d completions of a channel that has no handler are counted as the handler's", n-before)
	}
	next := cfg
	next.SetHandling(p.endpoints[hostSide].conn.Handling())
	if got := newPair(t, on, next).endpoints[hostSide].conn.Handling().Assigned; !slices.Equal(got,
		[]int{1, cq.Unassigned}) {
		t.Errorf("in the next session the channels have handlers %d", got)
	}
	if err := assign(p.endpoints[hostSide].conn, 2, 1); err != nil {
		t.Fatal(err)
	}
	if h := p.handlersFollowed(hostSide)[1]; !slices.Equal(h.Channels, []int{1, 2}) || h.Completions != before {
		t.Errorf("the handler has channels %d, want both again, and %d completions more", h.Channels, h.Completions-before)
	}
	p.traffic()
}

func TestHandlerPriorityUnderLoad(t *testing.T)     { inMemory(t, handlerPriorityUnderLoad) }
func TestRDMAHandlerPriorityUnderLoad(t *testing.T) { onSoftRoCE(t, handlerPriorityUnderLoad) }

// Two channels are flooded. Their receivers poll without end on one processor. The receiver whose
// handler has the higher priority waits less for its processor time.
func handlerPriorityUnderLoad(t *testing.T, on fabricOf) {
	// A thread that polls keeps its P.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
	cpu := cpus.Allowed()[:1]
	p := newEndpoints(t, on, map[string]messaging.Config{
		hostSide: {Queues: 2},
		unitSide: {Queues: 2, Handlers: []cq.Handler{
			{Number: 1, CPUs: cpu, Spin: cq.MaxSpin},
			{Number: 2, CPUs: cpu, Priority: 19, Spin: cq.MaxSpin},
		}},
	})
	p.connect()
	p.start()
	var threads [2]int
	for _, h := range p.handlersFollowed(unitSide)[1:] {
		for _, w := range h.Workers {
			if w.Role == cq.RoleReceiver {
				threads[w.Channel-1] = w.Thread
			}
		}
	}
	ctx, cancel := context.WithCancel(p.alive())
	var frames [2]atomic.Int64
	var wg sync.WaitGroup
	for q := range frames {
		frame, buf := p.newFrame(1000), make([]byte, 1<<17)
		wg.Go(func() {
			for p.endpoints[hostSide].wires[q].Send(ctx, frame) == nil {
				continue
			}
		})
		wg.Go(func() {
			for {
				if _, err := p.endpoints[unitSide].wires[q].Receive(ctx, buf); err != nil {
					return
				}
				frames[q].Add(1)
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	now := func() [2]onProcessor {
		return [2]onProcessor{onProcessorOf(t, threads[0]), onProcessorOf(t, threads[1])}
	}
	before := now()
	var first, second onProcessor
	// A receiver does not use the processor while its channel is empty, which happens when the
	// senders are starved. Therefore the test compares how long each receiver waits in relation to
	// the processor time that it gets. The kernel's weights are 1024 and 15, or 110 and 15 if the
	// tests run under nice(1). With equal weights, ratios of up to 2 have been seen.
	const enough, factor = 500 * time.Millisecond, 4
	p.until(func() error {
		at := now()
		first, second = at[0].since(before[0]), at[1].since(before[1])
		if first.ran < enough || second.waited < enough {
			return fmt.Errorf("the receiver with priority has run for %v, the other one waited for %v, of %v each",
				first.ran, second.waited, enough)
		}
		if waits := first.waits(); second.waits() < factor*waits {
			return fmt.Errorf("the receiver with priority has waited %.3g times as long as it ran, %v, the other one %.3g times, %v",
				waits, first.ran, second.waits(), second.ran)
		}
		return nil
	})
	t.Logf("with priority %+v and %d frames, without %+v and %d", first, frames[0].Load(), second, frames[1].Load())
}

// TestHandlerPriorityShares floods two channels whose handlers do not poll, with all workers of
// both sides on one processor. Then it lowers the priority of the second handler, and expects the
// first channel to carry a larger share of the frames than with equal priorities: the kernel
// divides the processor time by nice value. The test runs only in memory, where the workers do all
// of the work. On Soft-RoCE the kernel's threads do most of it.
func TestHandlerPriorityShares(t *testing.T) {
	inMemory(t, func(t *testing.T, on fabricOf) {
		// A thread that is ready keeps its P.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16))
		cpu := cpus.Allowed()[:1]
		cfg := messaging.Config{Queues: 2, Handlers: []cq.Handler{{Number: 1, CPUs: cpu}, {Number: 2, CPUs: cpu}}}
		p := newEndpoints(t, on, map[string]messaging.Config{hostSide: cfg, unitSide: cfg})
		var taken [2]atomic.Int64
		for _, side := range sides {
			for q := range taken {
				p.endpoints[side].ports[q] = newFlood(t, p.newFrame(1000), &taken[q])
			}
		}
		p.connect()
		p.start()
		share := func() float64 {
			for _, side := range sides {
				p.handlersFollowed(side)
			}
			const enough = 50_000
			before := [2]int64{taken[0].Load(), taken[1].Load()}
			var first, second int64
			p.until(func() error {
				first, second = taken[0].Load()-before[0], taken[1].Load()-before[1]
				if first+second < enough {
					return fmt.Errorf("%d frames of %d", first+second, enough)
				}
				return nil
			})
			return float64(first) / float64(first+second)
		}
		equal := share()
		for _, side := range sides {
			behind := 19
			if err := change(p.endpoints[side].conn, cq.HandlerChange{
				Handlers: []cq.HandlerPatch{{Number: 2, Priority: &behind}}}); err != nil {
				t.Fatal(err)
			}
		}
		first := share()
		t.Logf("the first channel carries %.2f of the frames with equal priority, %.2f before the other", equal, first)
		// The kernel's weights are 1024 and 15, or 110 and 15 if the tests run under nice(1).
		if first < 0.7 || first <= equal {
			t.Errorf("the channel of the handler with priority carries %.2f of all frames, and %.2f without", first, equal)
		}
	})
}

// flood is a port that always has a frame to read, and room to write one.
type flood struct {
	fd    int // an eventfd that is always readable and writable
	frame []byte
	taken *atomic.Int64
}

func newFlood(t *testing.T, frame []byte, taken *atomic.Int64) *flood {
	fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &flood{fd, frame, taken}
}

func (p *flood) FD() int { return p.fd }

func (p *flood) ReadFrames(ops []vnet.ReadOp) int {
	for i := range ops {
		ops[i].Frame, ops[i].Err = ops[i].Slot[:copy(ops[i].Slot, p.frame)], nil
	}
	return len(ops)
}

func (p *flood) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
	}
	p.taken.Add(int64(len(ops)))
	return len(ops)
}

// onProcessor has the time for which a thread ran on a processor, and for which it waited for one.
type onProcessor struct{ ran, waited time.Duration }

// onProcessorOf reads the times of a thread of this process from schedstat, which the kernel
// document sched-stats describes. A wait is counted when it ends.
func onProcessorOf(t *testing.T, thread int) (at onProcessor) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", thread))
	if err == nil {
		_, err = fmt.Sscan(string(b), (*int64)(&at.ran), (*int64)(&at.waited))
	}
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// since returns the times since an earlier reading.
func (at onProcessor) since(before onProcessor) onProcessor {
	return onProcessor{at.ran - before.ran, at.waited - before.waited}
}

// waits returns the seconds of waiting per second on a processor.
func (at onProcessor) waits() float64 { return float64(at.waited) / float64(at.ran) }
