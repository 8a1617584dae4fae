package lan

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/steer"
)

// steering is the rule for a port of cfg's, nil for none.
func (cfg *Config) steering() (*steer.Rule, error) {
	if cfg.Latency == nil {
		return nil, nil
	}
	r := *cfg.Latency
	r.Queues = cfg.Queues
	return &r, r.Check()
}

// steerFanout puts the latency-sensitive frames of the group that socket fd is in into
// its last socket. The group has been made for that: see joinFanout.
func steerFanout(fd int, r *steer.Rule) error {
	p, err := r.Load(steer.Fanout)
	if err != nil {
		return err
	}
	// The group keeps it.
	defer p.Close()
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, p.FD()); err != nil {
		return fmt.Errorf("%w: %w", steer.ErrUnavailable, os.NewSyscallError("setsockopt PACKET_FANOUT_DATA", err))
	}
	return nil
}

// The order of the eBPF programs at the ingress of a macvtap: the second goes by the
// queue that the first has chosen.
const (
	steerPriority uint16 = 1 + iota
	discardPriority
)
