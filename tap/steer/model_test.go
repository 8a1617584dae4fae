package steer_test

import (
	"encoding/binary"

	"github.com/splitnic/splitnic/tap/steer"
)

// model implements the rule in Go, for successive frames. Either no flow ever pauses, or each flow
// pauses before each frame.
type model struct {
	rule  steer.Rule
	never bool            // flows do not pause
	past  map[uint32]bool // flows that had a frame that is not latency-sensitive
}

// queue returns the model's queue for a frame. length is the length of the frame at the hook.
func (m *model) queue(frame []byte, length int) int {
	last := m.rule.Queues - 1
	if len(frame) < 14 {
		return 0
	}
	ethertype, rest := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	for range 2 {
		if ethertype == 0x8100 || ethertype == 0x88a8 {
			if len(rest) < 4 {
				return 0
			}
			ethertype, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
		}
	}
	short := length <= m.rule.Limit
	var h uint64
	var proto, dscp byte
	var total int
	transport := []byte(nil)
	switch {
	case ethertype == 0x0806 && short:
		return last
	case ethertype == 0x0800 && len(rest) >= 20:
		proto, dscp, total = rest[9], rest[1]>>2, int(binary.BigEndian.Uint16(rest[2:]))
		h = uint64(binary.NativeEndian.Uint32(rest[12:]) ^ binary.NativeEndian.Uint32(rest[16:]))
		whole := binary.BigEndian.Uint16(rest[6:])&0x3fff == 0
		if n := int(rest[0]&15) * 4; whole && n <= len(rest) {
			transport = rest[n:]
		}
	case ethertype == 0x86dd && len(rest) >= 40:
		proto, total = rest[6], 40+int(binary.BigEndian.Uint16(rest[4:]))
		dscp = byte(binary.BigEndian.Uint16(rest)>>6) & 63
		h = (binary.NativeEndian.Uint64(rest[8:]) ^ binary.NativeEndian.Uint64(rest[24:])) * 0x9e3779b97f4a7c15
		h ^= binary.NativeEndian.Uint64(rest[16:]) ^ binary.NativeEndian.Uint64(rest[32:])
		transport = rest[40:]
	default:
		return 0
	}
	switch proto {
	case 6, 17, 132:
		if len(transport) >= 4 {
			h ^= uint64(binary.NativeEndian.Uint16(transport)^binary.NativeEndian.Uint16(transport[2:])) << 32
		}
	case 1:
		if len(transport) >= 1 && (transport[0] == 8 || transport[0] == 0) && short {
			return last
		}
	case 58:
		if len(transport) >= 1 && (transport[0] == 128 || transport[0] == 129 ||
			transport[0] >= 133 && transport[0] <= 137) && short {
			return last
		}
	}
	h ^= uint64(proto) << 48
	flow := uint32(h * 0x9e3779b97f4a7c15 >> 32)
	bulk := int(uint64(flow) * uint64(last) >> 32)
	marked := m.rule.DSCP.Has(dscp)
	if !marked && m.rule.Size == 0 {
		return bulk
	}
	sensitive := short && (marked || total <= m.rule.Size)
	if !sensitive {
		m.past[flow] = true
		return bulk
	}
	if m.never && m.past[flow] {
		return bulk
	}
	return last
}
