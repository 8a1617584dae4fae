package protocol

import (
	"encoding/binary"
	"fmt"
)

// Statistics has the I/O unit's counters of one host since the beginning of the session, or since
// they were last cleared. It is the data of replies to CfgStatsRead and CfgStatsClear. Rx is from
// the LAN to the host. Bytes are bytes of Ethernet frames. The tags describe the counter and its
// metric (package internal/counter). A new counter needs a field here and one in counters.
type Statistics struct {
	RxFrames   uint64 `json:"rx_frames" metric:"iounit_host_frames,passed" help:"frames passed to the host"`
	RxBytes    uint64 `json:"rx_bytes" metric:"iounit_host_bytes" help:"bytes of these Ethernet frames"`
	TxFrames   uint64 `json:"tx_frames" metric:"iounit_host_frames,passed" help:"frames passed to the LAN"`
	TxBytes    uint64 `json:"tx_bytes" metric:"iounit_host_bytes" help:"bytes of these Ethernet frames"`
	RxDropped  uint64 `json:"rx_dropped" metric:"iounit_host_frames,no_room" help:"dropped: the host left no room"`
	RxTooLong  uint64 `json:"rx_too_long" metric:"iounit_host_frames,too_long" help:"dropped: over the MTU"`
	RxInvalid  uint64 `json:"rx_invalid" metric:"iounit_host_frames,invalid" help:"dropped: not well-formed"`
	RxFiltered uint64 `json:"rx_filtered" metric:"iounit_host_frames,filtered" help:"dropped: not wanted by receive filter or VLANs"`
	TxDropped  uint64 `json:"tx_dropped" metric:"iounit_host_frames,dropped" help:"dropped: not taken by the I/O unit or the LAN"`
	TxSource   uint64 `json:"tx_source" metric:"iounit_host_frames,source" help:"dropped: source address not allowed by the policy"`
	TxVLAN     uint64 `json:"tx_vlan" metric:"iounit_host_frames,vlan" help:"dropped: VLAN not allowed by the policy"`
}

// counters returns the fields in the order of the wire, 64 bits each. New ones are appended.
func (s *Statistics) counters() [11]*uint64 {
	return [...]*uint64{
		&s.RxFrames, &s.RxBytes, &s.TxFrames, &s.TxBytes,
		&s.RxDropped, &s.RxTooLong, &s.RxInvalid, &s.RxFiltered,
		&s.TxDropped, &s.TxSource, &s.TxVLAN,
	}
}

// DecodeStatistics decodes a list of counters. Counters missing at the end are 0. Unknown counters
// are ignored.
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

// Minus returns the difference of the counters to the earlier ones b.
func (s Statistics) Minus(b Statistics) Statistics {
	for i, c := range s.counters() {
		*c -= *b.counters()[i]
	}
	return s
}
