package iounit

import (
	"errors"
	"fmt"
	"net"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
)

// queues is how many ordinary data channels the host gets if it wants so many.
func (a *attachment) queues(wanted int) int {
	n := min(wanted, a.unit.cfg.MaxQueues)
	if a.policy.MaxQueues > 0 {
		n = min(n, a.policy.MaxQueues)
	}
	return n
}

// openLAN opens the host's interface on the network card with as many queues as
// the host gets, one more of them if the last one is for latency-sensitive
// frames, and says in a.latency whether it is.
func (a *attachment) openLAN(mac protocol.MAC) (lan.Interface, int, error) {
	u := a.unit
	if a.hello.Offers(protocol.FeatureLatencyQueue) && a.hello.Queues > 1 {
		a.latency = &steer.Status{Reason: "the I/O unit has none for hosts"}
		if c := u.cfg.Latency; c != nil {
			queues := min(a.queues(a.hello.Queues-1)+1, messaging.MaxQueues)
			port, err := a.openLatency(mac, max(queues, 2))
			if err == nil || !errors.Is(err, steer.ErrUnavailable) {
				return port, max(queues, 2), err
			}
			a.log.Warn("the host gets no latency queue", "reason", err)
			a.latency.Reason = err.Error()
		}
	}
	queues := a.queues(a.hello.Queues)
	port, err := u.cfg.OpenLAN(net.HardwareAddr(mac[:]), queues)
	return port, queues, err
}

// openLatency is openLAN with a latency queue.
func (a *attachment) openLatency(mac protocol.MAC, queues int) (lan.Interface, error) {
	cfg := &a.unit.cfg
	rule := steer.Rule{Classes: *cfg.Latency, Queues: queues, Limit: messaging.LatencyLimit(a.hello.MaxMTU)}
	port, err := cfg.OpenLatencyLAN(net.HardwareAddr(mac[:]), rule)
	if err != nil {
		return nil, fmt.Errorf("with a latency queue: %w", err)
	}
	a.latency = &steer.Status{On: true, Classes: rule.Classes, Limit: rule.Limit}
	return port, nil
}

// hasLatency reports whether the last of the host's queues is its latency queue.
func (a *attachment) hasLatency() bool { return a.latency != nil && a.latency.On }
