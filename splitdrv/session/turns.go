package session

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What strangers may cost. A handshake's share of a processor is measured, so
// that the bounds mean the same on a fast machine and on a slow one.
const (
	// workShare is the part of this machine's processors that goes to
	// handshakes in the long run.
	workShare = 0.1
	// workBurst is how much of a processor's time they can take at once, in
	// seconds: enough for some hundred hosts that come back together.
	workBurst = 0.1
	// wholeHandshake is how much of that a handshake takes for each second of its
	// turn: the check of the client's certificate and signature, which comes after
	// the turn, takes as long again.
	wholeHandshake = 2
	// leastTurns is how many handshakes there are in a second at least, however
	// slow the machine is.
	leastTurns = 25
)

// turns has handshakes take turns at their expensive part, the public-key
// operations between a client's first message and the answer to it. One is at it
// at a time, all together get workShare of the machine, and the sources of
// connections are served in rotation: machines that are acquainted and strangers in
// turn, among each of these the widest networks in turn, in each of them the
// narrower ones, and so on. A machine that connects a thousand times waits for
// itself, as does a network of a thousand machines.
//
// A connection that says nothing takes no turn, because the turn begins when the
// ClientHello is there, and one that says half of it neither.
type turns struct {
	mu      sync.Mutex
	work    allowance // of seconds
	queue   []*waiter // in the order in which they came
	served  map[party]uint64
	count   uint64 // turns so far
	delayed uint64 // that had to be waited for
	busy    bool
	later   *time.Timer // until there is an allowance again; nil unless it runs
}

// waiter is a connection that waits for its turn.
type waiter struct {
	parties [1 + len(source{})]party
	turn    chan struct{} // closed when it comes
}

// party are those who have turns together: machines that are acquainted, or not,
// in one network or, with the zero one, in all.
type party struct {
	acquainted bool
	network    netip.Prefix
}

func newWaiter(from source, acquainted bool) *waiter {
	w := &waiter{turn: make(chan struct{})}
	w.parties[0] = party{acquainted: acquainted}
	for i, network := range from {
		w.parties[1+i] = party{acquainted, network}
	}
	return w
}

func newTurns() *turns {
	return &turns{
		work:   newAllowance(workBurst, workShare*float64(runtime.NumCPU()), time.Now()),
		served: make(map[party]uint64),
	}
}

// take waits for the turn of a connection from there, until deadline at most, or
// until ctx or the connection is done. Without an error, end must be called, by the
// same goroutine: it has its thread to itself until then.
func (t *turns) take(ctx context.Context, c *Conn) (err error) {
	defer func() {
		if err == nil {
			c.worked = beginWork()
		}
	}()
	w := newWaiter(sourceOf(c.RemoteAddr()), c.acquainted)
	t.mu.Lock()
	t.queue = append(t.queue, w)
	t.advance(time.Now())
	select {
	case <-w.turn:
		t.mu.Unlock()
		return nil
	default:
	}
	t.delayed++
	t.mu.Unlock()
	late := time.NewTimer(time.Until(c.deadline))
	defer late.Stop()
	select {
	case <-w.turn:
		return nil
	case <-late.C:
		err = fmt.Errorf("wait for a turn: %w", os.ErrDeadlineExceeded)
	case <-c.Done():
		err = c.Err()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, w); i >= 0 {
		t.remove(i)
	} else { // it has come meanwhile
		t.finish(time.Now(), 0)
	}
	return err
}

// end ends the turn of the connection that has it.
func (t *turns) end(c *Conn) {
	worked := c.worked()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finish(time.Now(), worked)
}

// beginWork returns what ends the work that the calling goroutine begins, and says
// how much of a processor's time that took. A clock on the wall would count what
// others use of the processor meanwhile: on a busy machine, several times as much.
func beginWork() (end func() time.Duration) {
	runtime.LockOSThread()
	before := threadTime()
	return func() time.Duration {
		defer runtime.UnlockOSThread()
		return threadTime() - before
	}
}

// threadTime is how much of a processor's time the calling thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // fails for an unknown clock only
	return time.Duration(t.Nano())
}

// finish ends the turn, which took so much of a processor's time. The caller holds
// t.mu.
func (t *turns) finish(now time.Time, worked time.Duration) {
	t.work.spend(now, min(wholeHandshake*worked.Seconds(), t.work.perSecond/leastTurns))
	t.busy = false
	t.advance(now)
}

// advance gives somebody a turn, if there is one to give. The caller holds t.mu.
func (t *turns) advance(now time.Time) {
	if t.busy || t.later != nil || len(t.queue) == 0 {
		return
	}
	if wait := t.work.wait(now); wait > 0 {
		t.later = time.AfterFunc(wait, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.later = nil
			t.advance(time.Now())
		})
		return
	}
	i := t.next()
	w := t.queue[i]
	t.count++
	for _, p := range w.parties {
		t.served[p] = t.count
	}
	t.remove(i)
	t.busy = true
	close(w.turn)
}

// next is the index of whoever comes next: of those whose parties have waited
// longest since their last turns, the widest first, the first. The caller holds
// t.mu.
func (t *turns) next() int {
	first := 0
	for i, w := range t.queue {
		if t.before(w, t.queue[first]) {
			first = i
		}
	}
	return first
}

// before reports whether it is a's turn before it is b's, if both came at once.
func (t *turns) before(a, b *waiter) bool {
	for i := range a.parties {
		if x, y := t.served[a.parties[i]], t.served[b.parties[i]]; x != y {
			return x < y
		}
	}
	return false
}

// remove takes one out of the queue. Parties that wait for nothing are forgotten.
// The caller holds t.mu.
func (t *turns) remove(i int) {
	gone := t.queue[i]
	t.queue = slices.Delete(t.queue, i, i+1)
	for _, p := range gone.parties {
		if !slices.ContainsFunc(t.queue, func(w *waiter) bool { return slices.Contains(w.parties[:], p) }) {
			delete(t.served, p)
		}
	}
}

// counts are how many turns there were, and how many had to be waited for.
func (t *turns) counts() (count, delayed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count, t.delayed
}
