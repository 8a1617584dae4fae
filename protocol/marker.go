package protocol

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/vnet"
)

// Marker is what a host sends to another one through a queue of the path through
// the I/O unit, behind the last frame that goes there: the frames that go directly
// from then on do not overtake those before.
type Marker struct {
	Nonce  MarkerNonce // of its sender, for one direct connection
	Queue  uint16      // of the sender's that it was sent through
	Queues uint16      // how many of them the sender uses
}

// EtherMarker is the EtherType of a marker: IEEE 802 local experimental 1.
const EtherMarker = 0x88b5

const (
	markerMagic   = "SNPM"
	markerVersion = 1

	markerTypeAt    = vnet.HdrLen + 12
	markerMagicAt   = vnet.MinFrame
	markerVersionAt = markerMagicAt + len(markerMagic)
	markerQueueAt   = markerVersionAt + 2 // one byte is 0
	markerQueuesAt  = markerQueueAt + 2
	markerNonceAt   = markerQueuesAt + 2
)

// MarkerLen is the length of [virtio_net_hdr | frame] of a marker: the shortest
// frame on a cable.
const MarkerLen = vnet.HdrLen + 60

// MaxMarkerQueues bounds Marker.Queues: no data channel has a higher number.
const MaxMarkerQueues = 255

// AppendMarker appends a marker as a frame behind an empty virtio_net_hdr.
func AppendMarker(dst []byte, to, from MAC, m *Marker) []byte {
	var frame [MarkerLen]byte
	copy(frame[vnet.HdrLen:], to[:])
	copy(frame[vnet.HdrLen+6:], from[:])
	binary.BigEndian.PutUint16(frame[markerTypeAt:], EtherMarker)
	copy(frame[markerMagicAt:], markerMagic)
	frame[markerVersionAt] = markerVersion
	binary.BigEndian.PutUint16(frame[markerQueueAt:], m.Queue)
	binary.BigEndian.PutUint16(frame[markerQueuesAt:], m.Queues)
	copy(frame[markerNonceAt:], m.Nonce[:])
	return append(dst, frame[:]...)
}

// IsMarker reports whether a frame is a marker, of any version and whatever its
// contents, and so not for a netdevice. head is the beginning of the frame, which
// may be all of it.
//
// borrowed: head, for the call.
func IsMarker(head []byte) bool {
	return len(head) >= markerVersionAt && head[markerTypeAt] == EtherMarker>>8 &&
		head[markerTypeAt+1] == EtherMarker&0xff && string(head[markerMagicAt:markerVersionAt]) == markerMagic
}

// DecodeMarker returns what a marker says. It is not ok if frame is none, or none
// of this version, or names a queue that its sender cannot have.
//
// borrowed: frame, for the call.
func DecodeMarker(frame []byte) (m Marker, ok bool) {
	if len(frame) < MarkerLen || !IsMarker(frame) || frame[markerVersionAt] != markerVersion {
		return Marker{}, false
	}
	m.Queue = binary.BigEndian.Uint16(frame[markerQueueAt:])
	m.Queues = binary.BigEndian.Uint16(frame[markerQueuesAt:])
	copy(m.Nonce[:], frame[markerNonceAt:])
	return m, m.Queue < m.Queues && m.Queues <= MaxMarkerQueues
}
