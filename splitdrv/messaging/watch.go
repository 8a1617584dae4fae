package messaging

import (
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/ticker"
)

// queryInterval is the interval at which the device is asked for the state of the queue
// pairs, unless four keep-alive intervals are shorter.
const queryInterval = time.Second

// watch ends the session if a queue pair has failed and no worker has noticed. A sleeping
// worker may not notice: Soft-RoCE of newer kernels raises no event for flushed receives,
// and no version of it flushes receives that are posted after the failure. The peer of a
// reliable channel notices when it sends. The peer of an unreliable channel never notices,
// and neither does a peer tell that has broken the queue pair on purpose. Each time it also
// binds the workers' threads again that the kernel has released, and looks whether the port
// still has the path MTU.
func watch(c *shared, control *control, channels []*channel) *ticker.Task {
	return queryBeats.Every(min(queryInterval, 4*c.cfg.KeepAlive), func(ticker.Tick) int {
		if c.stopped.Load() {
			return ticker.MaxRest
		}
		c.handlers.keepBound()
		if err := errors.Join(queryChannels(control, channels), c.fits()); err != nil {
			c.endLater(err)
		}
		return 0
	})
}

// queryChannels returns an error if a queue pair has failed.
func queryChannels(control *control, channels []*channel) error {
	if err := failed(control.qp); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	for _, ch := range channels {
		if err := failed(ch.qp); err != nil {
			return fmt.Errorf("data channel %d: %w", ch.number, err)
		}
	}
	return nil
}

// failed returns an error if qp is in the error state (ibv_query_qp(3)).
func failed(qp fabric.QP) error {
	gone, err := qp.Failed()
	if err != nil || !gone {
		return err
	}
	return &fabric.WCError{Status: fabric.StatusWRFlushErr, QPN: qp.Num()}
}
