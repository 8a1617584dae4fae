package hosts

import (
	"encoding/binary"
	"slices"

	"github.com/splitnic/splitnic/vnet"
)

// nobody is the destination address of floods and of the answers of a host.
var nobody = []byte{2, 0xff, 0, 0, 0, 1}

// floodFrame is the size of a frame in bytes.
const floodFrame = 64

// numberAt is the offset of the number of a frame. Frames of a flood have the number 0.
const numberAt = vnet.HdrLen + 14

// numberOf returns the number of a frame, or 0.
func numberOf(op *vnet.WriteOp) uint64 {
	frame := append(slices.Clip(op.Head), op.Rest...)
	if len(frame) != vnet.HdrLen+floodFrame || frame[numberAt-2] != 0x88 || frame[numberAt-1] != 0xb5 {
		return 0
	}
	return binary.BigEndian.Uint64(frame[numberAt:])
}

// frameOf returns a frame of floodFrame bytes, after its virtio_net_hdr.
func frameOf(to, from []byte) []byte {
	frame := make([]byte, vnet.HdrLen+floodFrame)
	copy(frame[vnet.HdrLen:], to)
	copy(frame[vnet.HdrLen+6:], from)
	copy(frame[vnet.HdrLen+12:], []byte{0x88, 0xb5}) // IEEE 802, for experiments
	return frame
}
