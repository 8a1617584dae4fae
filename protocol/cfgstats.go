package protocol

import (
	"encoding/binary"
	"fmt"
)

// Statistics are the I/O unit's counters of one host since the session began or
// they were last cleared, the data of replies to CfgStatsRead and
// CfgStatsClear. Rx is from the LAN to the host. Bytes are those of the
// Ethernet frames.
type Statistics struct {
	RxFrames   uint64 `json:"rx_frames"`   // written to the host
	RxBytes    uint64 `json:"rx_bytes"`    // in those
	TxFrames   uint64 `json:"tx_frames"`   // passed to the LAN
	TxBytes    uint64 `json:"tx_bytes"`    // in those
	RxDropped  uint64 `json:"rx_dropped"`  // for want of room
	RxTooLong  uint64 `json:"rx_too_long"` // over the MTU
	RxInvalid  uint64 `json:"rx_invalid"`  // not well-formed
	RxFiltered uint64 `json:"rx_filtered"` // not wanted: VLANs, receive filter
	TxDropped  uint64 `json:"tx_dropped"`  // for want of room, or because the LAN did not take them
	TxSource   uint64 `json:"tx_source"`   // with a source address that the host may not use
	TxVLAN     uint64 `json:"tx_vlan"`     // of a VLAN that the host may not use
}

// counters are the fields in the order of the wire, 64 bits each. New ones go
// behind the last.
func (s *Statistics) counters() [11]*uint64 {
	return [...]*uint64{
		&s.RxFrames, &s.RxBytes, &s.TxFrames, &s.TxBytes,
		&s.RxDropped, &s.RxTooLong, &s.RxInvalid, &s.RxFiltered,
		&s.TxDropped, &s.TxSource, &s.TxVLAN,
	}
}

// DecodeStatistics decodes a list of counters. Those that are missing at its end
// are zero, those that this side does not know are left out.
func DecodeStatistics(data []byte) (Statistics, error) {
	if n := len(data) % 8; n != 0 {
		return Statistics{}, fmt.Errorf("statistics: the last counter has %d of 8 bytes: %w", n, ErrShort)
	}
	var s Statistics
	for i, c := range s.counters() {
		if 8*i == len(data) {
			break
		}
		*c = binary.BigEndian.Uint64(data[8*i:])
	}
	return s, nil
}

// AppendStatistics appends the counters.
func AppendStatistics(dst []byte, s Statistics) []byte {
	for _, c := range s.counters() {
		dst = binary.BigEndian.AppendUint64(dst, *c)
	}
	return dst
}
