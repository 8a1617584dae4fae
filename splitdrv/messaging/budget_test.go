package messaging

import (
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/protocol"
)

// takings records which channels polled completions, in order.
type takings struct {
	mu     sync.Mutex
	runs   []taking // consecutive polls of one channel count as one
	enough func([]taking) bool
	done   chan struct{}
}

type taking struct{ channel, completions, most int }

func (k *takings) add(channel, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := len(k.runs) - 1; i >= 0 && k.runs[i].channel == channel {
		k.runs[i].completions += n
		k.runs[i].most = max(k.runs[i].most, n)
	} else {
		k.runs = append(k.runs, taking{channel, n, n})
	}
	if k.enough != nil && k.enough(k.runs) {
		close(k.done)
		k.enough = nil
	}
}

// notedCQ is an endlessCQ that records the completions polled.
type notedCQ struct {
	endlessCQ
	channel int
	to      *takings
}

func (c notedCQ) Poll(out []fabric.Completion) (int, error) {
	n, err := c.endlessCQ.Poll(out)
	c.to.add(c.channel, n)
	return n, err
}

// flood runs the receivers of a Conn with endless traffic on its channels until enough
// returns true. It returns the completions polled by each channel, in order.
func flood(t *testing.T, cfg Config, enough func(*Conn, []taking) bool) (*Conn, []taking) {
	t.Helper()
	dev := fabrictest.New().Device("a")
	t.Cleanup(func() { dev.Close() })
	cfg.Device, cfg.Mode = dev, protocol.ModeSendUC
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	canSleep(t, c)
	k := &takings{enough: func(runs []taking) bool { return enough(c, runs) }, done: make(chan struct{})}
	var running sync.WaitGroup
	for _, ch := range c.channels {
		ch.recvCQ, ch.qp = notedCQ{endlessCQ{ch.recvCQ}, ch.number, k}, bottomlessQP{ch.qp}
		// A late message costs the peer no credit.
		protocol.PutSendData((*ch.rx.local.Load())[0].Element(0), 1<<63, 1)
		running.Go(func() {
			defer ch.rx.w.release()
			if err := ch.rx.run(); err != nil {
				t.Error(err)
			}
		})
	}
	<-k.done
	c.end(net.ErrClosed)
	running.Wait()
	return c, k.runs
}

// TestBudgetEndsATurn floods two channels on one P of the Go scheduler, with one handler for
// both and with one for each. No channel may poll more completions than the budget before the
// other one runs.
func TestBudgetEndsATurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const budget = 40
	both := []Handler{{Number: 1, Budget: budget}, {Number: 2, Budget: budget}}
	for n := range both {
		_, runs := flood(t, Config{Queues: 2, Handlers: both[:n+1]}, func(_ *Conn, runs []taking) bool {
			return len(runs) > 100
		})
		for i, r := range runs[1:100] { // the first channel started alone
			// Sometimes the Go scheduler runs the same channel again.
			if r.most > budget || r.completions > 4*budget {
				t.Fatalf("%d handlers, turn %d: channel %d took %d completions, %d at once, with a budget of %d", n+1, i,
					r.channel, r.completions, r.most, budget)
			}
		}
	}
}

// TestBudgetYieldsTheProcessor floods two channels whose handlers have one processor for both, and
// threads of their own. When its budget is exhausted, a thread has to leave the processor to the
// other one. If it did not, it would keep the processor for a time slice of the kernel, in which it
// polls thousands of completions.
func TestBudgetYieldsTheProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	const budget, turns = 40, 200
	cpu, bound := cpus.Allowed()[:1], 0
	_, runs := flood(t, Config{Queues: 2, Handlers: []Handler{
		{Number: 1, Budget: budget, CPUs: cpu}, {Number: 2, Budget: budget, CPUs: cpu},
	}}, func(c *Conn, runs []taking) bool {
		if bound == 0 {
			for _, ch := range c.channels {
				if w := ch.rx.w; !w.hasThread() {
					return false
				}
			}
			bound = len(runs)
		}
		return len(runs) > bound+turns
	})
	long := 0
	for _, r := range runs[bound : bound+turns] {
		if r.completions > 4*budget {
			long++
		}
	}
	// Sometimes the kernel runs the same thread again.
	if long > turns/4 {
		t.Errorf("%d of %d turns are longer than four budgets", long, turns)
	}
}

// hasThread reports whether the worker is locked to a thread.
func (w *worker) hasThread() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.placed.tid != 0
}

// TestBudgetInAFlood changes the handler of a channel that never runs out of completions, and
// queues an event for its receiver. Both the change and the event must be handled.
func TestBudgetInAFlood(t *testing.T) {
	mailed := false
	const budget = 3
	c, runs := flood(t, Config{Queues: 1, Handlers: []Handler{{Number: 1, Budget: budget}, {Number: 2, Budget: budget}}},
		func(c *Conn, runs []taking) bool {
			r := c.channels[0].rx
			if !mailed {
				mailed = true
				if err := c.Assign(1, 2); err != nil {
					t.Error(err)
				}
				r.queue.put(rxEvent{kind: rxSent})
			}
			return !r.queue.pending.Load() && runs[0].completions > 10000
		})
	s := c.Stats().Handlers
	if s[2].BudgetExhausted < 1000 || s[2].Completions < 3000 {
		t.Errorf("of the second handler %d completions are counted, and %d times its budget", s[2].Completions,
			s[2].BudgetExhausted)
	}
	if runs[0].most > budget {
		t.Errorf("%d completions were taken at once", runs[0].most)
	}
}
