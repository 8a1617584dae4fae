package framefd

import "github.com/splitnic/splitnic/internal/uring"

// MaxBurst is the largest number of frames that are read or written in one system call.
const MaxBurst = uring.Size

// smallFrame is the mean length in bytes below which frames are worth reading together. To copy
// a longer frame costs much more than a system call. It is then better to read all frames into
// the same memory, which is in the processor's cache.
const smallFrame = 4 << 10

// Small reports whether a frame of n bytes is worth moving together with others.
func Small(n int) bool { return n < smallFrame }

// Burst determines how many frames a reader should ask for in one call: twice as many as last
// time if that many were there, and small on average.
type Burst struct{ last int }

// Next returns how many frames to ask for, at least one and at most limit.
func (b *Burst) Next(limit int) int { return max(1, min(b.last, limit, MaxBurst)) }

// Saw records that got frames were there when the reader asked for asked frames, and their
// length together in bytes. It reports whether to go on reading.
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
