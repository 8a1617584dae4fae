package host

import (
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
)

// Steerer is a Netdevice that can put latency-sensitive frames into the last of
// the queues in use: see tap.Device.
type Steerer interface {
	Steer(*steer.Rule) error
}

// checkLatency reports whether the netdevice can have a latency queue.
func (c *Config) checkLatency() error {
	if c.Latency == nil {
		return nil
	}
	if n := len(c.Netdev.Ports()); n < 2 {
		return fmt.Errorf("host: a latency queue of a netdevice with %d queues; it needs two at least", n)
	}
	if _, ok := c.Netdev.(Steerer); !ok {
		return fmt.Errorf("host: a latency queue of a netdevice that cannot steer: %T", c.Netdev)
	}
	return c.Latency.Check()
}

// wantsLatency reports whether to ask for a latency channel.
func (h *Host) wantsLatency() bool {
	return h.cfg.Latency != nil && h.dev.shown.Load().noLatency == nil
}

// steer puts latency-sensitive frames where the session has a channel for them.
// When the kernel refuses, the next session does without. The caller holds dev.mu.
func (h *Host) steer(w *session.Welcome) error {
	if h.cfg.Latency == nil {
		return nil
	}
	is := &h.dev.is
	s := &is.latency
	*s = steer.Status{Classes: *h.cfg.Latency}
	d := h.cfg.Netdev.(Steerer) // checkLatency has seen it
	if !w.Grants(protocol.FeatureLatencyQueue) {
		if s.Reason = "the I/O unit has no channel for it"; is.noLatency != nil {
			s.Reason = is.noLatency.Error()
		}
		return d.Steer(nil)
	}
	rule := steer.Rule{Classes: *h.cfg.Latency, Queues: w.Queues, Limit: messaging.LatencyLimit(h.cfg.MaxMTU)}
	err := d.Steer(&rule)
	if errors.Is(err, steer.ErrUnavailable) {
		h.cfg.Log.Warn("no latency queue from now on", "reason", err)
		is.noLatency, s.Reason = err, err.Error()
	}
	s.On, s.Limit = err == nil, rule.Limit
	return err
}

// latencyStatus is nil if no latency queue is wanted. The caller holds mu.
func (h *Host) latencyStatus() *steer.Status {
	switch {
	case h.cfg.NoLatency != nil:
		return &steer.Status{Reason: h.cfg.NoLatency.Error()}
	case h.cfg.Latency == nil:
		return nil
	}
	s := h.dev.shown.Load().latency
	if h.session.conn == nil {
		s = steer.Status{Classes: *h.cfg.Latency, Reason: "there is no session"}
	}
	return &s
}
