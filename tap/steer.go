package tap

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/steer"
)

// Steer makes the kernel put latency-sensitive frames into the last queue and
// spread the others over the rest, as r says, which has the number of queues
// that are in use (SetActive); nil leaves it to the kernel again, which learns
// from the frames that are written to a queue what to put there. When the
// kernel cannot do it the error wraps steer.ErrUnavailable, and nothing changes.
func (d *Device) Steer(r *steer.Rule) error {
	if r == nil {
		return d.do("steering", func() error {
			err := ioctlPointer(d.queues[0].FD(), unix.TUNSETSTEERINGEBPF, "TUNSETSTEERINGEBPF", -1)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) {
				return nil // the kernel knows nothing of it, so there is nothing to undo
			}
			return err
		})
	}
	p, err := r.Load(steer.TAP)
	if err != nil {
		return fmt.Errorf("steering of %s: %w", d.name, err)
	}
	// The device keeps it.
	defer p.Close()
	return d.do("steering", func() error {
		err := ioctlPointer(d.queues[0].FD(), unix.TUNSETSTEERINGEBPF, "TUNSETSTEERINGEBPF", p.FD())
		if err != nil {
			return fmt.Errorf("%w: %w", steer.ErrUnavailable, err)
		}
		return nil
	})
}
