package paths

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// ring is a first-in, first-out buffer of frames, in memory of a fixed size. Each frame has
// the number of the netdevice's queue from which it came. Several goroutines put frames, one
// takes them.
type ring struct {
	mu    sync.Mutex
	buf   []byte
	first int  // offset of the oldest record
	used  int  // bytes
	usual int  // size of an empty ring, in bytes
	shut  bool // no frames are taken
	// spare is the memory, in bytes, that some rings share for what they need above their
	// usual size; nil: there is no common limit.
	spare *atomic.Int64

	frames atomic.Int64
	ready  atomic.Bool // there are frames, and the ring is not shut
}

// recordHeader is the size in bytes of the header of each frame: its length and its queue.
const recordHeader = 6

// maxRecord is the size in bytes of the longest record.
const maxRecord = recordHeader + vnet.MaxFrame

// open allocates the memory of the ring, unless it has some.
func (r *ring) open(size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		r.buf, r.usual = make([]byte, size), size
	}
}

// close releases the memory of the ring, and drops its frames.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveBack()
	r.buf, r.first, r.used = nil, 0, 0
	r.frames.Store(0)
	r.ready.Store(false)
}

// setShut stops or permits the taking of frames.
func (r *ring) setShut(shut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut = shut
	r.ready.Store(!shut && r.used > 0)
}

// put appends a frame, and reports whether there was room for it. The ring is enlarged for it,
// up to most bytes, if it is not that large.
func (r *ring) put(frame []byte, queue, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.enlarge(r.used+recordHeader+len(frame), most) {
		return false
	}
	var h [recordHeader]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(frame)))
	binary.LittleEndian.PutUint16(h[4:], uint16(queue))
	r.copyIn(h[:])
	r.copyIn(frame)
	r.frames.Add(1)
	if !r.shut {
		r.ready.Store(true)
	}
	return true
}

// room returns how many of the longest frames fit until limit bytes are used, also if the
// ring has to be enlarged for that.
func (r *ring) room(limit int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, (min(limit, r.reach())-r.used)/maxRecord)
}

// reach returns the size in bytes up to which there is memory to enlarge the ring.
func (r *ring) reach() int {
	if r.spare == nil {
		return math.MaxInt
	}
	return len(r.buf) + int(max(r.spare.Load(), 0))
}

// take moves the oldest frames to ops, as long as they came from the same queue. It returns
// their number and the queue. A frame that is longer than its slot is dropped.
func (r *ring) take(ops []vnet.ReadOp) (n, queue int) {
	if !r.ready.Load() {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for n < len(ops) && r.used > 0 && !r.shut {
		length, from := r.oldest()
		if n > 0 && from != queue {
			break
		}
		op := &ops[n]
		op.Frame, op.Err = nil, vnet.ErrTooLong
		if length <= len(op.Slot) {
			op.Frame, op.Err = op.Slot[:length], nil
			r.copyOut(op.Frame, recordHeader)
		}
		r.forget(length)
		queue = from
		n++
	}
	return n, queue
}

// moveTo moves all frames to other rings, even if the ring is shut, and returns how many did
// not fit. where returns the ring for each queue, and its largest size in bytes.
func (r *ring) moveTo(where func(queue int) (to *ring, most int)) (lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var frame []byte
	for r.used > 0 {
		length, queue := r.oldest()
		if cap(frame) < length {
			frame = make([]byte, max(length, vnet.MaxFrame))
		}
		frame = frame[:length]
		r.copyOut(frame, recordHeader)
		r.forget(length)
		if to, most := where(queue); !to.put(frame, queue, most) {
			lost++
		}
	}
	return lost
}

// reserve enlarges the ring, up to most bytes, so that there is room for n more bytes, if
// there is memory for them.
func (r *ring) reserve(n, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.enlarge(min(r.used+n, most), most)
}

// enlarge makes the ring at least need bytes long, and at most most. It reports whether that
// was possible. The caller holds the lock.
func (r *ring) enlarge(need, most int) bool {
	if need <= len(r.buf) {
		return true
	}
	if most = min(most, r.reach()); need > most {
		return false
	}
	size := min(max(2*len(r.buf), need), most)
	if r.spare != nil && r.spare.Add(int64(len(r.buf)-size)) < 0 {
		r.spare.Add(int64(size - len(r.buf))) // another ring has just taken it
		return false
	}
	larger := make([]byte, size)
	r.copyOut(larger[:r.used], 0)
	r.buf, r.first = larger, 0
	return true
}

// giveBack gives back the memory above the usual size of the ring, which is about to lose it.
// The caller holds the lock.
func (r *ring) giveBack() {
	if r.spare != nil {
		r.spare.Add(int64(max(0, len(r.buf)-r.usual)))
	}
}

func (r *ring) oldest() (length, queue int) {
	var h [recordHeader]byte
	r.copyOut(h[:], 0)
	return int(binary.LittleEndian.Uint32(h[:])), int(binary.LittleEndian.Uint16(h[4:]))
}

// forget removes the oldest frame, which has the given length.
func (r *ring) forget(length int) {
	size := recordHeader + length
	r.used -= size
	if r.first += size; r.first >= len(r.buf) {
		r.first -= len(r.buf)
	}
	r.frames.Add(-1)
	if r.used == 0 {
		r.ready.Store(false)
		if len(r.buf) > r.usual {
			r.giveBack()
			r.buf, r.first = make([]byte, r.usual), 0
		}
	}
}

// copyIn appends bytes, for which there must be room.
func (r *ring) copyIn(b []byte) {
	at := r.first + r.used
	if at >= len(r.buf) {
		at -= len(r.buf)
	}
	n := copy(r.buf[at:], b)
	copy(r.buf, b[n:])
	r.used += len(b)
}

// copyOut copies the bytes at an offset from the beginning of the oldest record.
func (r *ring) copyOut(b []byte, offset int) {
	at := r.first + offset
	if at >= len(r.buf) {
		at -= len(r.buf)
	}
	n := copy(b, r.buf[at:])
	copy(b[n:], r.buf)
}
