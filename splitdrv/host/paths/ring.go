package paths

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// ring is a queue of frames, each with the number of the netdevice's queue that it
// came from, in memory of a fixed size. Several goroutines put, one takes.
type ring struct {
	mu    sync.Mutex
	buf   []byte
	first int  // where the oldest record begins
	used  int  // bytes
	usual int  // the size that an empty ring has, in bytes
	shut  bool // nothing is taken

	frames atomic.Int64
	ready  atomic.Bool // there are frames, and it is not shut
}

// recordHeader is in front of each frame: its length and its queue.
const recordHeader = 6

// maxRecord is the longest record.
const maxRecord = recordHeader + vnet.MaxFrame

// open makes the memory of a ring that has none.
func (r *ring) open(size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		r.buf, r.usual = make([]byte, size), size
	}
}

// close forgets the memory of a ring, and frames that are still there.
func (r *ring) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf, r.first, r.used = nil, 0, 0
	r.frames.Store(0)
	r.ready.Store(false)
}

// setShut has nothing taken from now on, or something again.
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

// append is put for who holds the lock.
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

// room is how many of the longest frames fit while no more than limit bytes are used.
func (r *ring) room(limit int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, (limit-r.used)/maxRecord)
}

// take moves frames that came from one queue, the oldest ones, to ops, and returns
// how many that are, and the queue. A frame that is longer than its slot is dropped.
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

// moveTo appends all frames, shut or not, to the ring that where names for each
// queue, and returns how many did not fit.
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

// grow is put for a ring that becomes larger for it, up to most bytes.
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

// oldest is the length of the oldest frame, and its queue.
func (r *ring) oldest() (length, queue int) {
	var h [recordHeader]byte
	r.copyOut(h[:], 0)
	return int(binary.LittleEndian.Uint32(h[:])), int(binary.LittleEndian.Uint16(h[4:]))
}

// forget drops the oldest frame, of that length.
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

// copyIn appends bytes, for which there is room.
func (r *ring) copyIn(b []byte) {
	at := r.first + r.used
	if at >= len(r.buf) {
		at -= len(r.buf)
	}
	n := copy(r.buf[at:], b)
	copy(r.buf, b[n:])
	r.used += len(b)
}

// copyOut copies bytes that are at offset from the oldest.
func (r *ring) copyOut(b []byte, offset int) {
	at := r.first + offset
	if at >= len(r.buf) {
		at -= len(r.buf)
	}
	n := copy(b, r.buf[at:])
	copy(b[n:], r.buf)
}
