package iounit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/tap/steer"
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

// The cost of a host's requests. A request that changes a netdevice holds the kernel's RTNL
// lock for some hundred microseconds to milliseconds. All other operations on netdevices of
// the machine wait: new sessions, the status, an administrator's commands. A change of VLANs
// or of the MTU ends the direct connections of the host, which concerns all their peers.
const (
	costRead   = 1
	costChange = 10
	costReset  = 4 * costChange
	// requestRate is the cost of the requests of one key that is permitted per second in the
	// long run: 20 changes of a netdevice.
	requestRate = 20 * costChange
	// costSession is more than the cost of a host's requests at the beginning of a
	// session.
	costSession = 4 * costChange
)

func costOf(t protocol.CfgType, data []byte) int {
	switch t {
	case protocol.CfgReset:
		return costReset
	case protocol.CfgMAC, protocol.CfgMTU, protocol.CfgLinkState, protocol.CfgFilter, protocol.CfgVLAN,
		protocol.CfgOffloads:
		if len(data) > 0 {
			return costChange
		}
	default: // requests that change nothing
	}
	return costRead
}
