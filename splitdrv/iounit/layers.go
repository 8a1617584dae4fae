package iounit

import "github.com/splitnic/splitnic/vnet"

// The groups that bridges do not forward (IEEE 802.1Q, table 8-1), but for the
// last byte, and those of Cisco's switches: CDP, VTP, DTP, UDLD; and PVST+.
const (
	bridgeGroups = 0x0180c2000000
	ciscoGroups  = 0x01000ccccccc
)

// control reports whether a frame is for the next switch, or the next station,
// alone: it pauses the link, or changes which links and VLANs are in use.
func control(head []byte, l vnet.Layers) bool {
	if l.LinkControl() {
		return true
	}
	to := number([6]byte(head[dstAt:srcAt]))
	return to&^0xf == bridgeGroups || to&^1 == ciscoGroups
}
