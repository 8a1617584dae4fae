package daemon

import (
	"log/slog"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
)

// probe logs and returns the reason why the kernel cannot steer frames, before anything depends
// on that. Then there is no latency queue. The BPF programs that are loaded later differ from that of
// the probe only in numbers.
func (c *Common) probe(log *slog.Logger) error {
	if c.Latency == nil {
		return nil
	}
	err := CanSteer(*c.Latency)
	if err != nil {
		log.Warn("no latency queue", "error", err)
		c.Latency = nil
	}
	return err
}

// CanSteer returns the reason why the kernel cannot steer frames, or nil if it can.
func CanSteer(c steer.Classes) error {
	p, err := steer.Rule{Classes: c, Queues: 2, Limit: messaging.LatencyLimit(1500)}.Load(steer.TAP)
	if err != nil {
		return err
	}
	return p.Close()
}

// extra returns the number of queues in addition to the ordinary ones.
func extra(c *steer.Classes) int {
	if c == nil {
		return 0
	}
	return 1
}
