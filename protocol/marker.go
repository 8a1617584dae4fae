package protocol

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/vnet"
)

// Marker is a frame that a host sends to another host through a queue of the path through the I/O
// unit, after the last frame on that path. It prevents frames on the direct path from overtaking
// frames before the marker.
type Marker struct {
	Nonce  MarkerNonce // nonce of the sender for one direct connection
	Queue  uint16      // queue of the sender through which the marker was sent
	Queues uint16      // number of queues that the sender uses
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

// MarkerLen is the length of [virtio_net_hdr | frame] of a marker. Its frame is the shortest that
// Ethernet permits.
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

// IsMarker reports whether a frame is a marker, of any version and with any contents. Markers are
// not delivered to netdevices. head is the beginning of the frame, or the whole frame.
//
// borrowed: head, for the call.
func IsMarker(head []byte) bool {
	return len(head) >= markerVersionAt && head[markerTypeAt] == EtherMarker>>8 &&
		head[markerTypeAt+1] == EtherMarker&0xff && string(head[markerMagicAt:markerVersionAt]) == markerMagic
}

// DecodeMarker decodes a marker. ok is false if frame is no marker of this version, or names a queue
// that the sender cannot have.
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

// MarkerNonce identifies the markers of one direction of a direct connection. It is the data of
// CfgArrived, 16 bytes. docs/protocol.md §9 describes markers.
type MarkerNonce [16]byte

// DecodeMarkerNonce decodes the data of CfgArrived.
func DecodeMarkerNonce(data []byte) (MarkerNonce, error) {
	if err := dataSize(CfgArrived, data, len(MarkerNonce{})); err != nil {
		return MarkerNonce{}, err
	}
	return MarkerNonce(data), nil
}

// AppendMarkerNonce appends the data of CfgArrived.
func AppendMarkerNonce(dst []byte, n MarkerNonce) []byte { return append(dst, n[:]...) }
