package bench

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/vnet"
)

// kind is what a frame is for.
type kind uint8

const (
	kindNone   kind = iota // no frame
	kindWarm               // to warm up
	kindTimed              // to be counted; the first one on a queue starts the clock
	kindEnd                // the last one to be counted on a queue
	kindReport             // what the receiver counted
	kindPing               // to be echoed
	kindPong               // an echo
)

// Where a frame says what it is for, and which one it is: in the locally
// administered addresses that it is from and for.
const (
	kindAt   = vnet.HdrLen + 5
	numberAt = vnet.HdrLen + 8
)

// blank is the beginning of all frames: no offloads, from 02:00:… for 02:00:…,
// and the EtherType for experiments (IEEE 802, clause 9.2.4).
var blank = [vnet.MinFrame]byte{
	vnet.HdrLen: 2, vnet.HdrLen + 6: 2, vnet.HdrLen + 12: 0x88, vnet.HdrLen + 13: 0xb5,
}

// stamp writes the beginning of a frame. What follows is left as it is, as a
// device would that writes into the slot.
func stamp(slot []byte, k kind, number uint32) {
	copy(slot, blank[:])
	slot[kindAt] = byte(k)
	binary.BigEndian.PutUint32(slot[numberAt:], number)
}

// kindOf is what a frame of vnet.MinFrame bytes or more is for.
func kindOf(frame []byte) kind { return kind(frame[kindAt]) }

func numberOf(frame []byte) uint32 { return binary.BigEndian.Uint32(frame[numberAt:]) }
