package messaging

import (
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
// still has the path MTU.
func (q *queries) watch(
	c *core.Session, keepAlive time.Duration, control *control.Channel, channels []*channel,
) (task *ticker.Task, queried *member) {
	qps := []fabric.QP{control.QP}
	for _, ch := range channels {
		qps = append(qps, ch.QP)
	}
	interval := min(queryInterval, 4*keepAlive)
	turns, most := &q.silent, interval
	if d, ok := c.Device.(interface{ Silent() bool }); ok && !d.Silent() {
		turns, most = &q.heard, queryInterval
	}
	queried = turns.add(qps, most, func(i int, err error) { c.EndLater(named(i, err)) })
	queried.task = q.beats.Every(roundInterval, func(t ticker.Tick) int { return turns.turn(queried, t.Now) })
	return q.beats.Every(interval, func(ticker.Tick) int {
		if c.Stopped.Load() {
			return ticker.MaxRest
		}
		c.Handlers.KeepBound()
		if err := c.Fits(); err != nil {
			c.EndLater(err)
		}
		return 0
	}), queried
}

// named returns err, the error of the queue pair of a channel. Number 0 is the control channel.
func named(number int, err error) error {
	if number == 0 {
		return fmt.Errorf("control channel: %w", err)
	}
	return fmt.Errorf("data channel %d: %w", number, err)
}
