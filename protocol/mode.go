package protocol

import (
	"fmt"
	"strings"
)

// Mode is the transfer mode of a session: how frames are transferred on its data channels, and how
// they are indicated to the target.
type Mode string

// The modes. In the first two the initiator writes to the elements of lent pools. In the others an
// element represents a receive that the target has posted.
const (
	ModeImm      Mode = "imm"      // RDMA writes with the indication in their immediate data
	ModeIndicate Mode = "indicate" // plain RDMA writes, indicated by BufferRDMAIndicate
	ModeSend     Mode = "send"     // SendData on reliable queue pairs (RC)
	ModeSendUC   Mode = "send-uc"  // SendData on unacknowledged queue pairs (UC)
)

// Modes returns all modes, in the order of preference.
func Modes() []Mode { return []Mode{ModeImm, ModeIndicate, ModeSend, ModeSendUC} }

// ParseMode returns the mode with that name.
func ParseMode(s string) (Mode, error) {
	m := Mode(s)
	if !m.Known() {
		var names []string
		for _, m := range Modes() {
			names = append(names, string(m))
		}
		return "", fmt.Errorf("%w %q: must be one of %s", ErrMode, s, strings.Join(names, ", "))
	}
	return m, nil
}

// Known reports whether m is one of Modes.
func (m Mode) Known() bool {
	switch m {
	case ModeImm, ModeIndicate, ModeSend, ModeSendUC:
		return true
	default:
		return false
	}
}

// Sends reports whether frames are sent as SendData in mode m. Otherwise they are written by RDMA.
func (m Mode) Sends() bool { return m == ModeSend || m == ModeSendUC }

// MaxPools returns the largest number of pools that a side may lend on a data channel at a time in
// mode m.
func (m Mode) MaxPools() int {
	if m.Sends() {
		return 1
	}
	return MaxChannelPools
}

// Limits of the outstanding messages of one sender on the control channel: messages that were sent,
// and whose receives have not been posted again.
const (
	// UpdatesPerPool is the largest number of BufferRecvPoolUpdates of one pool
	// that are sent because enough of its elements are free. The BufferRecvPool
	// counts as one of them.
	UpdatesPerPool = 4
	// IndicatesPerChannel is the largest number of BufferRDMAIndicates of one
	// data channel in mode indicate.
	IndicatesPerChannel = 16
	// OtherControl is for all messages that belong to no data channel: requests, replies,
	// flushes and a BufferRecvPoolGet.
	OtherControl = 16

	// In mode imm one BufferRDMAIndicate, and the updates that are sent before
	// enough elements are free: one that answers it, and two in mode indicate. The
	// send modes have neither, and room for them.
	otherPerChannel         = 2
	otherPerChannelIndicate = IndicatesPerChannel + 2
)

// ControlReceives returns the number of receives that a side posts on its control channel if the
// peer lends at most that many pools on each data channel at a time. docs/protocol.md explains why
// they are enough.
func ControlReceives(mode Mode, channels, pools int) int {
	extra := otherPerChannel
	if mode == ModeIndicate {
		extra = otherPerChannelIndicate
	}
	return channels*(UpdatesPerPool*pools+extra) + OtherControl
}
