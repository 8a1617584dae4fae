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

// modeRow is what a mode does. Code that differs by mode asks for it, so that another mode is another
// row.
type modeRow struct {
	mode      Mode
	sends     bool // frames are sent as SendData into receives with memory, not written
	lossy     bool // on unacknowledged queue pairs
	immediate bool // writes carry their indication, where immediate data can name the element
	// indications is the largest number of unacknowledged BufferRDMAIndicates of a data channel.
	indications int
	// updates is the largest number of updates of a data channel that are sent before enough
	// elements are free: those that acknowledge indications.
	updates int
}

// modes has the modes in the order of preference.
var modes = []modeRow{
	{mode: ModeImm, immediate: true, indications: 1, updates: 1},
	{mode: ModeIndicate, indications: IndicatesPerChannel, updates: 2},
	// The send modes have no indications, and room for as many as mode imm.
	{mode: ModeSend, sends: true, indications: 1, updates: 1},
	{mode: ModeSendUC, sends: true, lossy: true, indications: 1, updates: 1},
}

// does returns the row of a mode. That of an unknown mode does nothing.
func (m Mode) does() *modeRow {
	for i := range modes {
		if modes[i].mode == m {
			return &modes[i]
		}
	}
	return &modeRow{}
}

// Modes returns all modes, in the order of preference.
func Modes() []Mode {
	all := make([]Mode, len(modes))
	for i := range modes {
		all[i] = modes[i].mode
	}
	return all
}

// ParseMode returns the mode with that name.
func ParseMode(s string) (Mode, error) {
	if m := Mode(s); m.Known() {
		return m, nil
	}
	names := make([]string, len(modes))
	for i := range modes {
		names[i] = string(modes[i].mode)
	}
	return "", fmt.Errorf("%w %q: must be one of %s", ErrMode, s, strings.Join(names, ", "))
}

// Known reports whether m is one of Modes.
func (m Mode) Known() bool { return m != "" && m.does().mode == m }

// Sends reports whether frames are sent as SendData in mode m. Otherwise they are written by RDMA.
func (m Mode) Sends() bool { return m.does().sends }

// Lossy reports whether mode m uses unacknowledged queue pairs, on which frames can get lost.
func (m Mode) Lossy() bool { return m.does().lossy }

// Immediate reports whether writes of mode m carry their indication in immediate data, where that can
// name the element.
func (m Mode) Immediate() bool { return m.does().immediate }

// Indicated reports whether all transfers of mode m are indicated by BufferRDMAIndicates.
func (m Mode) Indicated() bool { return m.Known() && !m.Sends() && !m.Immediate() }

// Indications returns the largest number of unacknowledged BufferRDMAIndicates of a data channel.
func (m Mode) Indications() int { return m.does().indications }

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
)

// ControlReceives returns the number of receives that a side posts on its control channel if the
// peer lends at most that many pools on each data channel at a time. docs/protocol.md explains why
// they are enough.
func ControlReceives(mode Mode, channels, pools int) int {
	row := mode.does()
	return channels*(UpdatesPerPool*pools+row.indications+row.updates) + OtherControl
}
