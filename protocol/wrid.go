package protocol

import (
	"fmt"

	"github.com/splitnic/splitnic/internal/printable"
)

// WRKind is the purpose of a work request.
type WRKind uint8

// The kinds begin with 1, so that the identifier 0, which was never set, has no kind.
const (
	WRControlSend WRKind = iota + 1 // a control message
	WRControlRecv                   // a receive for a control message
	WRDataWrite                     // an RDMA write, or a SendData
	WRDataRecv                      // a receive for the peer's write, without memory, or for its SendData
)

var wrKinds = [...]string{
	WRControlSend: "control send", WRControlRecv: "control receive", WRDataWrite: "data write", WRDataRecv: "data receive",
}

// String returns the name of the kind.
func (k WRKind) String() string { return printable.Name(wrKinds[:], k, "kind") }

// WRID is a work request identifier, the ID of work requests and completions:
// the kind in bits 63–56, the queue in bits 55–48, the index in bits 47–32 and
// the generation in bits 31–0. It never leaves the machine.
type WRID uint64

// PackWRID packs the kind, the channel, the buffer or slot, and the generation of the slot. They are
// known when a request is posted, and needed at its completion. The generation distinguishes a late
// completion from one of the slot's present use.
func PackWRID(kind WRKind, queue uint8, index uint16, generation uint32) WRID {
	return WRID(kind)<<56 | WRID(queue)<<48 | WRID(index)<<32 | WRID(generation)
}

// Unpack is the inverse of PackWRID.
func (id WRID) Unpack() (kind WRKind, queue uint8, index uint16, generation uint32) {
	return WRKind(id >> 56), uint8(id >> 48), uint16(id >> 32), uint32(id)
}

// String returns the parts for error messages.
func (id WRID) String() string {
	kind, queue, index, generation := id.Unpack()
	return fmt.Sprintf("%v, queue %d, index %d, generation %d", kind, queue, index, generation)
}
