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

// The limits for the processor time of unauthenticated peers. The time of each handshake is
// measured, so that the limits mean the same on fast and slow machines.
const (
	// workShare is the part of this machine's processors for handshakes in the long run.
	workShare = 0.1
	// workBurst is the processor time that handshakes can take at once. It is enough for
	// some hundred hosts that reconnect at the same time.
	workBurst = 100 * time.Millisecond
	// wholeHandshake is the factor between the time of a turn and the time of the whole
	// handshake: the check of the client's certificate and signature, after the turn, takes
	// as long as the turn.
	wholeHandshake = 2
	// leastHandshakes is the least number of handshakes per second, however slow the machine
	// is.
	leastHandshakes = 25
)

// handshakes gives connections turns at the expensive part of their handshakes: the
// public-key operations between a client's first message and the answer. One connection at a
// time has a turn, and all together get workShare of the machine. Known machines and others
// get turns alternately, then within each of these the widest networks, and so on.
//
// A turn begins when the whole ClientHello has arrived, so a connection that sends nothing,
// or half of it, does not take a turn.
type handshakes struct {
	*limit.Queue[origin]
	most time.Duration // largest charge for a handshake
}

// origin is a group of connections: from known machines or others, in one network, or, with
// the zero prefix, in all networks.
type origin struct {
	known   bool
	network netip.Prefix
}

func newHandshakes() *handshakes {
	share := workShare * float64(runtime.NumCPU())
	return handshakesWithin(rate.NewLimiter(rate.Limit(share*float64(time.Second)), int(workBurst)))
}

// handshakesWithin returns handshakes limited by work, which counts nanoseconds of processor
// time.
func handshakesWithin(work *rate.Limiter) *handshakes {
	return &handshakes{
		Queue: limit.NewQueue[origin](limit.QueueConfig{AtOnce: 1, Each: 1, Work: work}),
		most:  time.Duration(work.Limit() / leastHandshakes),
	}
}

// begin waits for the turn of c's handshake, at most until its deadline, or until ctx or the
// connection is done. The same goroutine must call end, and is locked to its thread until
// then.
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

// cost returns the charge for a handshake whose turn took the given processor time.
func (h *handshakes) cost(worked time.Duration) time.Duration {
	return min(wholeHandshake*worked, h.most)
}

// beginWork starts to measure the processor time of the calling goroutine. end returns the
// time since then. Wall-clock time would include that of other threads, on a busy machine
// several times as much.
func beginWork() (end func() time.Duration) {
	runtime.LockOSThread()
	before := threadTime()
	return func() time.Duration {
		defer runtime.UnlockOSThread()
		return threadTime() - before
	}
}

// threadTime returns the processor time that the calling thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // fails for an unknown clock only
	return time.Duration(t.Nano())
}
