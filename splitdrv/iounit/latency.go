package iounit

import (
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/tap/steer"
)

// queues returns how many ordinary data channels a host gets if it requests wanted.
func (c *Config) queues(h *host, wanted int) int {
	n := min(wanted, c.MaxQueues)
	if h.policy.MaxQueues > 0 {
		n = min(n, h.policy.MaxQueues)
	}
	return n
}

// openLAN opens a host's LAN interface and returns the number of its queues. If the host
// gets a latency queue, which is the last one, it sets h.latency.
func (c *Config) openLAN(h *host, mac protocol.MAC) (lan.Interface, int, error) {
	if h.hello.Offers(protocol.FeatureLatencyQueue) && h.hello.Queues > 1 {
		h.latency = &steer.Status{Reason: "the I/O unit has none for hosts"}
		if c.Latency != nil {
			queues := min(c.queues(h, h.hello.Queues-1)+1, cq.MaxQueues)
			port, err := c.openLatency(h, mac, max(queues, 2))
			if err == nil || !errors.Is(err, steer.ErrUnavailable) {
				return port, max(queues, 2), err
			}
			h.log.Warn("the host gets no latency queue", "error", err)
			h.latency.Reason = err.Error()
		}
	}
	queues := c.queues(h, h.hello.Queues)
	port, err := c.OpenLAN(net.HardwareAddr(mac[:]), queues)
	return port, queues, err
}

func (c *Config) openLatency(h *host, mac protocol.MAC, queues int) (lan.Interface, error) {
	rule := steer.Rule{Classes: *c.Latency, Queues: queues, Limit: messaging.LatencyLimit(h.hello.MaxMTU)}
	port, err := c.OpenLatencyLAN(net.HardwareAddr(mac[:]), rule)
	if err != nil {
		return nil, fmt.Errorf("with a latency queue: %w", err)
	}
	h.latency = &steer.Status{On: true, Classes: rule.Classes, Limit: rule.Limit}
	return port, nil
}
