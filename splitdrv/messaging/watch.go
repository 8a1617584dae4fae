package messaging

import (
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// watch ends the session if a queue pair has failed and no worker has noticed. A sleeping
// worker may not notice: Soft-RoCE of newer kernels raises no event for flushed receives,
// and no version of it flushes receives that are posted after the failure. The peer of a
// reliable channel notices when it sends. The peer of an unreliable channel never notices,
// and neither does a peer tell that has broken the queue pair on purpose. Each time it also
// binds the workers' threads again that the kernel has released, and looks whether the port
// still has the path MTU. The queue pairs of a device that raises an event when one fails are
// queried in rounds.
func watch(
	c *core.Session, keepAlive time.Duration, control *control.Channel, channels []*channel,
) (task *ticker.Task, queried *member) {
	if d, ok := c.Device.(interface{ Silent() bool }); ok && !d.Silent() {
		qps := []fabric.QP{control.QP}
		for _, ch := range channels {
			qps = append(qps, ch.QP)
		}
		queried = theRounds.add(qps, c.EndLater)
		queried.task = queryBeats.Every(roundInterval, func(t ticker.Tick) int {
			return theRounds.turn(queried, t.Now)
		})
	}
	return queryBeats.Every(min(queryInterval, 4*keepAlive), func(ticker.Tick) int {
		if c.Stopped.Load() {
			return ticker.MaxRest
		}
		c.Handlers.KeepBound()
		err := c.Fits()
		if queried == nil {
			err = errors.Join(queryChannels(control, channels), err)
		}
		if err != nil {
			c.EndLater(err)
		}
		return 0
	}), queried
}

// queryBeats is the ticker of the queries of all sessions, which can take a device some time.
var queryBeats ticker.Ticker

// queryChannels returns an error if a queue pair has failed.
func queryChannels(control *control.Channel, channels []*channel) error {
	if err := failed(control.QP); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	for _, ch := range channels {
		if err := failed(ch.QP); err != nil {
			return fmt.Errorf("data channel %d: %w", ch.Number, err)
		}
	}
	return nil
}
