package session

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/splitnic/splitnic/internal/limit"
)

// What unauthenticated peers may cost. A handshake's share of a processor is
// measured, so that the bounds mean the same on a fast machine and on a slow one.
const (
	// workShare is the part of this machine's processors that goes to
	// handshakes in the long run.
	workShare = 0.1
	// workBurst is how much of a processor's time they can take at once: enough
	// for some hundred hosts that come back together.
	workBurst = 100 * time.Millisecond
	// wholeHandshake is how much of that a handshake takes for each second of its
	// turn: the check of the client's certificate and signature, which comes after
	// the turn, takes as long again.
	wholeHandshake = 2
	// leastHandshakes is how many there are in a second at least, however slow the
	// machine is.
	leastHandshakes = 25
)

// handshakes have turns at their expensive part, the public-key operations between
// a client's first message and the answer to it: one at a time, for workShare of the
// machine all together. Known machines and the others have turns alternately, among
// each of these the widest networks, and so on.
//
// A connection that says nothing takes no turn, because the turn begins when the
// ClientHello is there, and one that says half of it neither.
type handshakes struct {
	*limit.Queue[origin]
	most time.Duration // that one counts for
}

// origin is where connections come from: known machines or others, in one network
// or, with the zero one, in all.
type origin struct {
	known   bool
	network netip.Prefix
}

func newHandshakes() *handshakes {
	share := workShare * float64(runtime.NumCPU())
	return handshakesWithin(rate.NewLimiter(rate.Limit(share*float64(time.Second)), int(workBurst)))
}

// handshakesWithin may take so many nanoseconds of a processor.
func handshakesWithin(work *rate.Limiter) *handshakes {
	return &handshakes{
		Queue: limit.NewQueue[origin](limit.QueueConfig{AtOnce: 1, Each: 1, Work: work}),
		most:  time.Duration(work.Limit() / leastHandshakes),
	}
}

// begin waits for the turn of c's handshake, until its deadline at most, or until
// ctx or the connection is done. The same goroutine must call end: it has its thread
// to itself until then.
func (h *handshakes) begin(ctx context.Context, c *Conn, known bool) (end func(), err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, c.deadline, fmt.Errorf("wait for a turn: %w", os.ErrDeadlineExceeded))
	defer cancel()
	origins := []origin{{known: known}}
	for _, network := range limit.NetworksOf(c.RemoteAddr()) {
		origins = append(origins, origin{known, network})
	}
	turn, err := h.Take(ctx, c.Done(), origins...)
	if err != nil {
		if ended := c.Err(); ended != nil {
			err = ended
		}
		return nil, err
	}
	worked := beginWork()
	return func() { turn.End(h.cost(worked())) }, nil
}

// cost is what a handshake counts for whose turn took so much of a processor's time.
func (h *handshakes) cost(worked time.Duration) time.Duration {
	return min(wholeHandshake*worked, h.most)
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
