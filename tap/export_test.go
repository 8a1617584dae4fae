package tap

import (
	"context"
	"time"
)

// Enters returns the number of system calls that the queue's rings have made.
func (q *Queue) Enters() (reads, writes uint64) { return q.fd.Enters() }

// Pause has the next read of Watch wait until rest returns.
func (d *Device) Pause(rest func()) {
	d.pace = pace{owed: 1 << 50, at: time.Now(), rest: func(context.Context, time.Duration) {
		d.pace.owed = 0
		rest()
	}}
}

// Waiting returns the number of frames in the queue, by the counts of the filter before the queue.
func (q *Queue) Waiting() int { return q.meter.Waiting() }

// Glance returns a function that reports whether the properties that the kernel does not announce are
// still as they are now.
func (d *Device) Glance() (unchanged func() bool, err error) {
	var s State
	err = d.do("reading the state", func() (err error) { d.seen, err = d.read(&s); return err })
	return func() bool { return !d.glance() }, err
}
