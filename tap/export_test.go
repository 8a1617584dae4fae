package tap

// Enters returns how many system calls of rings the queue has made.
func (q *Queue) Enters() (reads, writes uint64) { return q.fd.Enters() }
