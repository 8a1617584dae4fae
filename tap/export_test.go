package tap

// Enters returns how many system calls of rings the queue has made.
func (q *Queue) Enters() (reads, writes uint64) { return q.fd.Enters() }

// Waiting is how many frames wait in the queue, as the kernel's filter knows it.
func (q *Queue) Waiting() int { return q.meter.Waiting() }
