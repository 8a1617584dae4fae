package vnet

import (
	"encoding/binary"
	"testing"
)

func size(n int) func(*Header, []byte) {
	return func(h *Header, _ []byte) { h.GSOSize = uint16(n) }
}

// TestOnWire checks the number and the total size of the frames into which super-frames are divided.
func TestOnWire(t *testing.T) {
	for _, tc := range []struct {
		name          string
		frame         []byte
		frames, bytes int
	}{
		{"plain", frame(EtherIPv4, GSONone, 1000, nil, nil), 1, 66 + 1000},
		{"padded", make([]byte, MinFrame), 1, 60},
		{"one segment", frame(EtherIPv4, GSOTCPv4, 1400, nil, nil), 1, 66 + 1400},
		{"two segments", frame(EtherIPv4, GSOTCPv4, 1401, nil, nil), 2, 2*66 + 1401},
		{"many", frame(EtherIPv4, GSOTCPv4|GSOECN, 60000, nil, nil), 43, 43*66 + 60000},
		{"IPv6, tagged", frame(EtherIPv6, GSOTCPv6, 14000, tags{EtherVLAN}, nil), 10, 10*90 + 14000},
		{"UDP", frame(EtherIPv4, GSOUDPL4, 14001, nil, nil), 11, 10*(42+1400) + 60},
		{"UDP, all padded", frame(EtherIPv4, GSOUDPL4, 1000, nil, size(8)), 125, 125 * 60},
		{"tiny", frame(EtherIPv4, GSOTCPv4, 60000, nil, size(1)), 60000, 60000 * 67},
		{"no payload", frame(EtherIPv4, GSOTCPv4, 0, nil, nil), 1, 66},
		{"no size", frame(EtherIPv4, GSOTCPv4, 60000, nil, size(0)), 1, 66 + 60000},
		{"checksum far behind", frame(EtherIPv4, GSOTCPv4, 6000, nil, func(h *Header, _ []byte) { h.CsumStart = 0xffff }), 1,
			6066},
	} {
		frames, bytes := OnWire(tc.frame, len(tc.frame))
		if frames != tc.frames || bytes != tc.bytes {
			t.Errorf("%s: %d frames of %d bytes, want %d of %d", tc.name, frames, bytes, tc.frames, tc.bytes)
		}
		head := tc.frame[:min(len(tc.frame), 192)]
		if f, b := OnWire(head, len(tc.frame)); f != frames || b != bytes {
			t.Errorf("%s: by its first bytes %d frames of %d bytes", tc.name, f, b)
		}
	}
	// If the length of the TCP header is missing, the shortest header is assumed.
	f := frame(EtherIPv4, GSOTCPv4, 28000, nil, nil)
	if frames, bytes := OnWire(f[:HdrLen+40], len(f)); frames != 21 || bytes != len(f)-HdrLen+20*54 {
		t.Errorf("%d frames of %d bytes", frames, bytes)
	}
}

// TestTiny checks super-frames with the smallest segments that Linux makes, and with smaller ones.
func TestTiny(t *testing.T) {
	options := func(n, size int) func(*Header, []byte) {
		return func(h *Header, eth []byte) {
			eth[h.CsumStart+12] = byte(20+n) / 4 << 4
			h.GSOSize = uint16(size)
		}
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  bool
	}{
		{"plain", frame(EtherIPv4, GSONone, 1, nil, nil), false},
		{"usual", frame(EtherIPv4, GSOTCPv4, 60000, nil, nil), false},
		{"no options, least", frame(EtherIPv4, GSOTCPv4, 6000, nil, options(0, 48)), false},
		{"no options, less", frame(EtherIPv4, GSOTCPv4, 6000, nil, options(0, 47)), true},
		{"timestamps, least", frame(EtherIPv6, GSOTCPv6|GSOECN, 6000, nil, options(12, 36)), false},
		{"timestamps, less", frame(EtherIPv6, GSOTCPv6|GSOECN, 6000, nil, options(12, 35)), true},
		{"all options, least", frame(EtherIPv4, GSOTCPv4, 6000, nil, options(40, 8)), false},
		{"all options, less", frame(EtherIPv4, GSOTCPv4, 6000, nil, options(40, 7)), true},
		{"a byte each", frame(EtherIPv4, GSOTCPv4, 60000, nil, size(1)), true},
		{"UDP, most", frame(EtherIPv4, GSOUDPL4, 128*100, nil, size(100)), false},
		{"UDP, more", frame(EtherIPv6, GSOUDPL4, 128*100+1, nil, size(100)), true},
		{"UDP, a byte each", frame(EtherIPv6, GSOUDPL4, 60000, nil, size(1)), true},
		{"UDP, few of a byte", frame(EtherIPv6, GSOUDPL4, 100, nil, size(1)), false},
	} {
		if got := Tiny(tc.frame, len(tc.frame)); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
		if got := Tiny(tc.frame[:min(len(tc.frame), 192)], len(tc.frame)); got != tc.want {
			t.Errorf("%s, by its first bytes: %t", tc.name, got)
		}
	}
}

func FuzzOnWire(f *testing.F) {
	for _, tc := range checkCases {
		if len(tc.frame) >= MinFrame {
			f.Add(tc.frame[:min(len(tc.frame), 192)], len(tc.frame))
		}
	}
	f.Fuzz(func(t *testing.T, head []byte, n int) {
		if len(head) < HdrLen || n < len(head) || n > MaxFrame {
			return
		}
		frames, bytes := OnWire(head, n)
		if frames < 1 || frames > MaxFrame || bytes < frames*MinWire || bytes < n-HdrLen {
			t.Errorf("% x, %d bytes: %d frames of %d bytes", head, n, frames, bytes)
		}
		if head[1] == GSONone && frames != 1 {
			t.Errorf("a plain frame is %d", frames)
		}
		if Tiny(head, n) && binary.LittleEndian.Uint16(head[4:]) >= 512 {
			t.Errorf("segments of %d bytes are tiny", binary.LittleEndian.Uint16(head[4:]))
		}
	})
}
