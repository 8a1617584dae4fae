package bench

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/vnet"
)

// kind is the purpose of a frame.
type kind uint8

const (
	kindNone   kind = iota // no frame
	kindWarm               // to warm up
	kindTimed              // to be counted, except the first one of a queue, which starts the time
	kindEnd                // the last frame of a queue that is counted
	kindReport             // the report of the receiver
	kindPing               // to be echoed
	kindPong               // an echo
)

// Offsets of the kind and the number of a frame. They are in its locally administered addresses.
const (
	kindAt   = vnet.HdrLen + 5
	numberAt = vnet.HdrLen + 8
)

// blank is the beginning of all frames: no offloads, from 02:00:… to 02:00:…, and the EtherType for
// experiments (IEEE 802, clause 9.2.4).
var blank = [vnet.MinFrame]byte{
	vnet.HdrLen: 2, vnet.HdrLen + 6: 2, vnet.HdrLen + 12: 0x88, vnet.HdrLen + 13: 0xb5,
}

// stamp writes the beginning of a frame. It leaves the rest of the slot as it is.
func stamp(slot []byte, k kind, number uint32) {
	copy(slot, blank[:])
	slot[kindAt] = byte(k)
	binary.BigEndian.PutUint32(slot[numberAt:], number)
}

// kindOf returns the kind of a frame of at least vnet.MinFrame bytes.
func kindOf(frame []byte) kind { return kind(frame[kindAt]) }

func numberOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[numberAt:]) }
