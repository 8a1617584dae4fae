package tap

// Enters returns how many system calls of rings the queue has made.
func (q *Queue) Enters() (reads, writes uint64) { return q.fd.Enters() }

// Waiting is how many frames wait in the queue, as the kernel's filter knows it.
func (q *Queue) Waiting() int { return q.meter.Waiting() }

// Glance returns what a glance at the device finds from now on: whether what the kernel does not
// announce is as it is now.
func (d *Device) Glance() (unchanged func() bool, err error) {
	var s State
	err = d.do("reading the state", func() (err error) { d.seen, err = d.read(&s); return err })
	return func() bool { return !d.glance() }, err
}
