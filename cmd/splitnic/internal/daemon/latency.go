package daemon

import (
	"log/slog"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
)

// probe reports why the kernel cannot steer frames, before anything depends on
// it: in the program that it is asked to take, only the numbers will differ.
func probe(c *steer.Classes, log *slog.Logger) error {
	if c == nil {
		return nil
	}
	err := CanSteer(*c)
	if err != nil {
		log.Warn("no latency queue", "error", err)
	}
	return err
}

// CanSteer reports why the kernel cannot steer frames.
func CanSteer(c steer.Classes) error {
	p, err := steer.Rule{Classes: c, Queues: 2, Limit: messaging.LatencyLimit(1500)}.Load(steer.TAP)
	if err != nil {
		return err
	}
	return p.Close()
}

// extra is how many queues there are besides the ordinary ones.
func extra(c *steer.Classes) int {
	if c == nil {
		return 0
	}
	return 1
}
