package tap

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/discard"
)

// discardEarly makes the kernel drop whole datagrams before a queue is full, and makes the
// queues count the frames that they read. Without support of the kernel, full queues drop the
// frames that arrive.
func (d *opening) discardEarly() error {
	filter := func(program int) error {
		return d.do("discarding early", func() error {
			return ioctlPointer(d.queues[0].FD(), unix.TUNSETFILTEREBPF, "TUNSETFILTEREBPF", program)
		})
	}
	if d.taken {
		_ = filter(-1) // the filter of an earlier process uses the counters of that process
	}
	if d.cfg.NoDiscard {
		return discard.ErrUnwanted
	}
	a, err := d.attrs("reading the queue length")
	if err != nil {
		return err
	}
	f, err := discard.New(discard.Config{Hook: discard.TAP, Queues: len(d.queues), Length: a.TxQLen})
	if err != nil {
		return err
	}
	defer f.Close() // the device keeps the program
	err = filter(f.FD())
	if err != nil {
		return err
	}
	for i, q := range d.queues {
		q.Count(f.Meter(i))
	}
	return nil
}

// EarlyDiscard returns whether whole datagrams are dropped before a queue is full, or the
// reason why not.
func (d *Device) EarlyDiscard() discard.Status { return d.discards }

// Count makes the queue count the frames read from it in m. It must be called before the
// first read.
func (q *Queue) Count(m *discard.Meter) { q.meter = m }
