package tap

import (
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/discard"
)

// discardEarly makes the kernel drop whole datagrams before a queue is full,
// and has the queues count what they read. Where the kernel cannot do it the
// queues drop what comes when they are full.
func (d *opening) discardEarly() error {
	filter := func(program int) error {
		return d.do("discarding early", func() error {
			return ioctlPointer(d.queues[0].FD(), unix.TUNSETFILTEREBPF, "TUNSETFILTEREBPF", program)
		})
	}
	if d.taken {
		_ = filter(-1) // that of a process before goes by what that has read
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
	defer f.Close() // the device keeps it
	err = filter(f.FD())
	if err != nil {
		return err
	}
	for i, q := range d.queues {
		q.Count(f.Meter(i))
	}
	return nil
}

// EarlyDiscard says whether whole datagrams are dropped before a queue is full, and
// why not.
func (d *Device) EarlyDiscard() discard.Status { return d.discards }

// Count has the queue tell m what is read from it. It is called before the
// first read.
func (q *Queue) Count(m *discard.Meter) { q.meter = m }
