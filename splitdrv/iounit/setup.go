package iounit

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/splitnic/splitnic/internal/limit"
)

// inParallel is how many sessions are set up at once for each two processors. Each
// is some thirty system calls one after the other. On a busy machine, where each of
// them waits for a processor, one session at a time took 50 ms, of which it worked
// for 5.
const inParallel = 4

// newSetups bounds how many sessions are set up at once. To register memory, to make
// queue pairs and an interface takes milliseconds of a processor each, in the
// process whose workers move the frames of the sessions that there are: those who
// come wait for each other. Whoever asks for many sessions waits for itself.
func newSetups() *limit.Queue[limit.Key] {
	half := max(runtime.NumCPU()/2, 1)
	return limit.NewQueue[limit.Key](limit.QueueConfig{AtOnce: inParallel * half, Each: max(half/2, 1)})
}

// setUpTurn waits until the session can be set up, until the deadline of its
// handshake at most.
func setUpTurn(
	ctx context.Context, setups *limit.Queue[limit.Key], h *host,
) (*limit.Turn[limit.Key], error) {
	ctx, cancel := context.WithDeadlineCause(ctx, h.s.Deadline(),
		fmt.Errorf("other sessions are being set up: %w", os.ErrDeadlineExceeded))
	defer cancel()
	return setups.Take(ctx, h.s.Done(), h.limits)
}
