package lan

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/steer"
)

// steering returns the rule for latency-sensitive frames of a port with this configuration,
// or nil if there is none.
func (cfg *Config) steering() (*steer.Rule, error) {
	if cfg.Latency == nil {
		return nil, nil
	}
	r := *cfg.Latency
	r.Queues = cfg.Queues
	return &r, r.Check()
}

// steerFanout directs latency-sensitive frames to the last socket of a fanout group. fd is a
// socket of the group, which has the mode PACKET_FANOUT_EBPF: see joinFanout.
func steerFanout(fd int, r *steer.Rule) error {
	p, err := r.Load(steer.Fanout)
	if err != nil {
		return err
	}
	// The group has a reference to the program.
	defer p.Close()
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, p.FD()); err != nil {
		return fmt.Errorf("%w: %w", steer.ErrUnavailable, os.NewSyscallError("setsockopt PACKET_FANOUT_DATA", err))
	}
	return nil
}

// The priorities of the eBPF programs at the ingress of a macvtap. The second program depends
// on the queue that the first has selected.
const (
	steerPriority uint16 = 1 + iota
	discardPriority
)
