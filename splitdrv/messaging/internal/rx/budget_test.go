package rx

import (
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
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

// flood runs the receivers of data channels, whose handlers are given, with endless traffic until
// enough returns true. It returns the completions polled by each channel, in order.
func flood(
	t *testing.T, handlers []cq.Handler, assigned []int, enough func(*core.Session, []*Receiver, []taking) bool,
) (*core.Session, []taking) {
	t.Helper()
	c := coretest.WithHandlers(t, protocol.ModeSendUC, handlers, assigned...)
	var all []*Receiver
	k := &takings{enough: func(runs []taking) bool { return enough(c, all, runs) }, done: make(chan struct{})}
	for i := range assigned {
		number := i + 1
		r := newFlooded(t, c, number)
		r.ch.RecvCQ = notedCQ{endlessCQ{r.ch.RecvCQ}, number, k}
		all = append(all, r)
	}
	for _, r := range all {
		c.Work(r.W, r.run, nil)
	}
	<-k.done
	c.End(net.ErrClosed)
	c.Workers.Wait()
	return c, k.runs
}

// TestBudgetEndsATurn floods two channels on one P of the Go scheduler, with one handler for
// both and with one for each. No channel may poll more completions than the budget before the
// other one runs.
func TestBudgetEndsATurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const budget = 40
	both := []cq.Handler{{Number: 1, Budget: budget}, {Number: 2, Budget: budget}}
	for n := range both {
		_, runs := flood(t, both[:n+1], []int{1, n + 1}, func(_ *core.Session, _ []*Receiver, runs []taking) bool {
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
	_, runs := flood(t, []cq.Handler{
		{Number: 1, Budget: budget, CPUs: cpu}, {Number: 2, Budget: budget, CPUs: cpu},
	}, []int{1, 2}, func(c *core.Session, _ []*Receiver, runs []taking) bool {
		if bound == 0 {
			for _, h := range c.Handlers.Stats()[1:] {
				if h.Workers[0].Thread == 0 {
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

// TestBudgetInAFlood changes the handler of a channel that never runs out of completions, and
// queues an event for its receiver. Both the change and the event must be handled.
func TestBudgetInAFlood(t *testing.T) {
	mailed := false
	const budget = 3
	handlers := []cq.Handler{{Number: 1, Budget: budget}, {Number: 2, Budget: budget}}
	c, runs := flood(t, handlers, []int{1}, func(c *core.Session, all []*Receiver, runs []taking) bool {
		r := all[0]
		if !mailed {
			mailed = true
			g := cq.Handling{Handlers: append([]cq.Handler{{Budget: budget}}, handlers...), Assigned: []int{2}}
			if err := c.Handlers.Set(g); err != nil {
				t.Error(err)
			}
			r.Queue.Wake()
		}
		return !r.Queue.Pending.Load() && runs[0].completions > 10000
	})
	s := c.Handlers.Stats()
	if s[2].BudgetExhausted < 1000 || s[2].Completions < 3000 {
		t.Errorf("of the second handler %d completions are counted, and %d times its budget", s[2].Completions,
			s[2].BudgetExhausted)
	}
	if runs[0].most > budget {
		t.Errorf("%d completions were taken at once", runs[0].most)
	}
}
