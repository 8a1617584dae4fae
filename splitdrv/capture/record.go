package capture

import (
	"encoding/binary"
	"iter"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

// Frame is one frame of a capture.
type Frame struct {
	Time      time.Time
	Path      int // index in Capture.Paths
	Direction Direction
	Header    vnet.Header // offloads that were not done yet
	Length    int         // of the Ethernet frame in bytes
	Data      []byte      // beginning of the frame, up to SnapLength bytes
	Comment   string      // reason for which the frame was dropped
}

// Frames has encoded frames in their order. Each is a header of recordSize bytes, the comment and the
// data.
type Frames []byte

// Fields of the header: the time in nanoseconds, the path, the length, the number of captured bytes,
// the direction, the length of the comment, and the virtio_net_hdr.
const (
	pathAt      = 8
	lengthAt    = pathAt + 4
	dataLenAt   = lengthAt + 4
	directionAt = dataLenAt + 4
	commentAt   = directionAt + 2
	vnetAt      = commentAt + 2
	recordSize  = vnetAt + vnet.HdrLen

	maxComment = 0xffff
)

// append appends at most snap bytes of a frame. frame begins with its virtio_net_hdr. comment has at
// most maxComment bytes.
func (f Frames) append(now int64, path int, d Direction, frame []byte, snap int, comment string) Frames {
	data := frame[vnet.HdrLen:]
	length := len(data)
	data = data[:min(length, snap)]
	var h [recordSize]byte
	binary.LittleEndian.PutUint64(h[:], uint64(now))
	binary.LittleEndian.PutUint32(h[pathAt:], uint32(path))
	binary.LittleEndian.PutUint32(h[lengthAt:], uint32(length))
	binary.LittleEndian.PutUint32(h[dataLenAt:], uint32(len(data)))
	h[directionAt] = byte(d)
	copy(h[vnetAt:], frame[:vnet.HdrLen])
	binary.LittleEndian.PutUint16(h[commentAt:], uint16(len(comment)))
	return append(append(append(f, h[:]...), comment...), data...)
}

// All iterates over the frames. Their data are parts of f.
func (f Frames) All() iter.Seq[Frame] {
	return func(yield func(Frame) bool) {
		for len(f) > 0 {
			from := recordSize + int(binary.LittleEndian.Uint16(f[commentAt:]))
			n := from + int(binary.LittleEndian.Uint32(f[dataLenAt:]))
			r := Frame{
				Time:   time.Unix(0, int64(binary.LittleEndian.Uint64(f))),
				Path:   int(binary.LittleEndian.Uint32(f[pathAt:])),
				Length: int(binary.LittleEndian.Uint32(f[lengthAt:])), Direction: Direction(f[directionAt]),
				Data: f[from:n:n], Comment: string(f[recordSize:from]),
			}
			r.Header.Decode(f[vnetAt:])
			if !yield(r) {
				return
			}
			f = f[n:]
		}
	}
}

// identity identifies a path.
type identity struct{ name, description string }

// Direction is the direction of a frame, as seen from the endpoint.
type Direction uint8

// The directions.
const (
	Inbound  Direction = 1 // received from the fabric
	Outbound Direction = 2 // sent to the fabric
)
