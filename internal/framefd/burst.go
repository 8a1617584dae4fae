package framefd

import "github.com/splitnic/splitnic/internal/uring"

// MaxBurst is the largest number of frames that are read or written at once.
const MaxBurst = uring.Size

// smallFrame is the mean length, in bytes, below which frames are worth being
// read together. Copying longer ones costs so much more than a system call that
// it is better to have all of them come to the same memory, which is in the
// processor's cache.
const smallFrame = 4 << 10

// Small reports whether a frame of n bytes is worth being moved together with
// others.
func Small(n int) bool { return n < smallFrame }

// Burst says how many frames a reader should ask for at once: twice as many as
// the last time if there were as many, and all small.
type Burst struct{ last int }

// Next returns how many frames to ask for, at least one and at most limit.
func (b *Burst) Next(limit int) int { return max(1, min(b.last, limit, MaxBurst)) }

// Saw records that of asked frames got were there, of so many bytes together,
// and reports whether to go on.
func (b *Burst) Saw(asked, got, bytes int) bool {
	switch {
	case got == 0 || !Small(bytes/got):
		b.last = 1
		return false
	case got < asked:
		b.last = got
		return false
	}
	b.last = min(max(b.last, 2*asked), MaxBurst)
	return true
}
