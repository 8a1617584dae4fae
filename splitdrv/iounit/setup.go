package iounit

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/splitnic/splitnic/internal/limit"
)

// inParallel is the number of sessions that are set up at the same time for each two
// processors. Setting up a session takes some thirty consecutive system calls. On a busy
// machine, where each of them waits for a processor, one session at a time took 50 ms, of
// which it worked for 5.
const inParallel = 4

// newSetups returns the queue that limits how many sessions are set up at the same time.
// Registering memory, and creating queue pairs and a LAN interface, takes milliseconds of
// processor time each, in the process that also moves the frames of existing sessions. A
// host that opens many sessions waits behind its own.
func newSetups() *limit.Queue[limit.Key] {
	half := max(runtime.NumCPU()/2, 1)
	return limit.NewQueue[limit.Key](limit.QueueConfig{AtOnce: inParallel * half, Each: max(half/2, 1)})
}

// setUpTurn waits for the session's turn to be set up, at most until the deadline of its
// handshake.
func setUpTurn(
	ctx context.Context, setups *limit.Queue[limit.Key], h *host,
) (*limit.Turn[limit.Key], error) {
	ctx, cancel := context.WithDeadlineCause(ctx, h.s.Deadline(),
		fmt.Errorf("other sessions are being set up: %w", os.ErrDeadlineExceeded))
	defer cancel()
	return setups.Take(ctx, h.s.Done(), h.limits)
}
