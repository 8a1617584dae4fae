package paths

import (
	"encoding/binary"
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

// put appends a frame, and reports whether there was room for it.
func (r *ring) put(frame []byte, queue int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.append(frame, queue)
}

// append is put for callers that hold the lock.
func (r *ring) append(frame []byte, queue int) bool {
	if len(r.buf)-r.used < recordHeader+len(frame) {
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

// room returns how many of the longest frames fit until limit bytes are used.
func (r *ring) room(limit int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, (limit-r.used)/maxRecord)
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
		if to, most := where(queue); !to.grow(frame, queue, most) {
			lost++
		}
	}
	return lost
}

// grow appends a frame like put, and enlarges the ring for it, up to most bytes.
func (r *ring) grow(frame []byte, queue, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if need := r.used + recordHeader + len(frame); need > len(r.buf) {
		if need > most {
			return false
		}
		larger := make([]byte, min(max(2*len(r.buf), need), most))
		r.copyOut(larger[:r.used], 0)
		r.buf, r.first = larger, 0
	}
	return r.append(frame, queue)
}

// oldest returns the length of the oldest frame, and its queue.
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
