package vnet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"
)

// tags has the TPIDs of VLAN tags, outermost first.
type tags []uint16

// frame returns a TCP or UDP frame with this payload length. The virtio header is valid for an MTU
// of 1500. edit, which may be nil, can change the virtio header and the Ethernet frame.
func frame(proto uint16, gso uint8, payload int, vlan tags, edit func(h *Header, eth []byte)) []byte {
	f := make([]byte, HdrLen+12, MaxFrame+100)
	for _, tpid := range vlan {
		f = binary.BigEndian.AppendUint16(f, tpid)
		f = binary.BigEndian.AppendUint16(f, 5)
	}
	f = binary.BigEndian.AppendUint16(f, proto)
	udp := gso&^GSOECN == GSOUDPL4
	l4 := byte(protoTCP)
	if udp {
		l4 = protoUDP
	}
	if proto == EtherIPv4 {
		ip := make([]byte, 20)
		ip[0], ip[9] = 0x45, l4
		f = append(f, ip...)
	} else {
		ip := make([]byte, ipv6Fixed)
		ip[0], ip[6] = 0x60, l4
		f = append(f, ip...)
	}
	h := Header{Flags: FlagNeedsCsum, GSOType: gso, CsumStart: uint16(len(f) - HdrLen), CsumOffset: tcpCsumOff}
	if udp {
		h.CsumOffset = udpCsumOff
		f = append(f, make([]byte, udpLen)...)
	} else {
		tcp := make([]byte, 32)
		tcp[12] = 8 << 4
		f = append(f, tcp...)
	}
	h.HdrLen = uint16(len(f) - HdrLen)
	if gso != GSONone {
		h.GSOSize = 1400
	}
	f = append(f, make([]byte, payload)...)
	if edit != nil {
		edit(&h, f[HdrLen:])
	}
	h.Encode(f)
	return f
}

var checkCases = []struct {
	name  string
	frame []byte
	want  error
}{
	{"empty", nil, ErrShort},
	{"header alone", make([]byte, HdrLen), ErrShort},
	{"one byte short", make([]byte, MinFrame-1), ErrShort},
	{"shortest", make([]byte, MinFrame), nil},
	{"longest is over the MTU", make([]byte, MaxFrame), ErrMTU},
	{"too long", make([]byte, MaxFrame+1), ErrTooLong},
	{"tag cut off", append(make([]byte, HdrLen+12), 0x81, 0), ErrTag},
	{"second tag cut off", append(make([]byte, HdrLen+12), 0x88, 0xa8, 0, 1, 0x81, 0), ErrTag},
	{"full MTU", frame(EtherIPv4, GSONone, 1448, nil, nil), nil},
	{"one tag over", frame(EtherIPv4, GSONone, 1452, nil, nil), nil},
	{"over the MTU", frame(EtherIPv4, GSONone, 1453, nil, nil), ErrMTU},
	{"full MTU with tag", frame(EtherIPv4, GSONone, 1448, tags{EtherVLAN}, nil), nil},
	{"over the MTU with tag", frame(EtherIPv4, GSONone, 1449, tags{EtherVLAN}, nil), ErrMTU},
	{"full MTU with two tags", frame(EtherIPv4, GSONone, 1448, tags{EtherQinQ, EtherVLAN}, nil), nil},
	{"over the MTU with two tags", frame(EtherIPv4, GSONone, 1449, tags{EtherQinQ, EtherVLAN}, nil), ErrMTU},
	{"unknown flag", frame(EtherIPv4, GSONone, 10, nil, func(h *Header, _ []byte) { h.Flags |= 4 }), ErrFlags},
	{"data valid", frame(EtherIPv4, GSONone, 10, nil, func(h *Header, _ []byte) { h.Flags = FlagDataValid }), nil},
	{"csum at the very end", frame(EtherIPv4, GSONone, 0, nil,
		func(h *Header, eth []byte) { h.CsumOffset = uint16(len(eth)) - h.CsumStart - 2 }), ErrCsumProto},
	{"csum half outside", frame(EtherIPv4, GSONone, 0, nil,
		func(h *Header, eth []byte) { h.CsumOffset = uint16(len(eth)) - h.CsumStart - 1 }), ErrCsum},
	{"csum start outside", frame(EtherIPv4, GSONone, 0, nil, func(h *Header, _ []byte) { h.CsumStart = 0xffff }), ErrCsum},
	{"csum sum wraps 16 bits", frame(EtherIPv4, GSONone, 0, nil, func(h *Header, _ []byte) { h.CsumOffset = 0xffff }),
		ErrCsum},
	{"csum in the Ethernet header", frame(EtherIPv4, GSONone, 0, nil, func(h *Header, _ []byte) { h.CsumStart = 13 }),
		ErrCsumStart},
	{"csum in the tag", frame(EtherIPv4, GSONone, 0, tags{EtherVLAN}, func(h *Header, _ []byte) { h.CsumStart = 17 }),
		ErrCsumStart},
	{"csum outside without the flag", frame(EtherIPv4, GSONone, 0, nil,
		func(h *Header, _ []byte) { h.Flags = 0; h.CsumStart = 0xffff }), nil},
	{"hdr_len zero", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(h *Header, _ []byte) { h.HdrLen = 0 }), nil},
	{"hdr_len all", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(h *Header, eth []byte) { h.HdrLen = uint16(len(eth)) }),
		nil},
	{"hdr_len beyond", frame(EtherIPv4, GSOTCPv4, 9000, nil,
		func(h *Header, eth []byte) { h.HdrLen = uint16(len(eth) + 1) }), ErrHdrLen},
	{"TSO4", frame(EtherIPv4, GSOTCPv4, 60000, nil, nil), nil},
	{"TSO4 ECN", frame(EtherIPv4, GSOTCPv4|GSOECN, 60000, nil, nil), nil},
	{"TSO6", frame(EtherIPv6, GSOTCPv6, 60000, nil, nil), nil},
	{"TSO6 with two tags", frame(EtherIPv6, GSOTCPv6, 60000, tags{EtherQinQ, EtherVLAN}, nil), nil},
	{"TSO4 with tag", frame(EtherIPv4, GSOTCPv4, 60000, tags{EtherVLAN}, nil), nil},
	{"TSO6 of a frame with old tags", frame(EtherIPv6, GSOTCPv6, 60000, tags{0x9100}, nil), ErrGSOProto},
	{"TSO6 behind options", frame(EtherIPv6, GSOTCPv6, 9000, nil,
		func(h *Header, eth []byte) { eth[20], eth[54], eth[74] = 60, 6, 8<<4; h.CsumStart += 8 }), nil},
	{"TSO6 behind a fragment header", frame(EtherIPv6, GSOTCPv6, 9000, nil,
		func(h *Header, eth []byte) { eth[20], eth[54], eth[74] = 44, 6, 8<<4; h.CsumStart += 8 }), ErrGSOProto},
	{"TSO6 of other headers", frame(EtherIPv6, GSOTCPv6, 9000, nil,
		func(h *Header, eth []byte) { eth[20] = 0; h.CsumStart += 16 }), ErrGSOHeaders},
	{"three tags", frame(EtherIPv4, GSOTCPv4, 60000, tags{EtherVLAN, EtherVLAN, EtherVLAN}, nil), ErrGSOProto},
	{"USO4", frame(EtherIPv4, GSOUDPL4, 40000, nil, nil), nil},
	{"USO6", frame(EtherIPv6, GSOUDPL4, 40000, nil, nil), nil},
	{"USO ECN", frame(EtherIPv4, GSOUDPL4|GSOECN, 40000, nil, nil), ErrGSOType},
	{"USO of ARP", frame(0x0806, GSOUDPL4, 40000, nil, nil), ErrGSOProto},
	{"UFO", frame(EtherIPv4, 3, 9000, nil, nil), ErrGSOType},
	{"ECN alone", frame(EtherIPv4, GSOECN, 100, nil, nil), ErrGSOType},
	{"TSO4 of IPv6", frame(EtherIPv6, GSOTCPv4, 9000, nil, nil), ErrGSOProto},
	{"TSO6 of IPv4", frame(EtherIPv4, GSOTCPv6, 9000, nil, nil), ErrGSOProto},
	{"TSO4 of UDP", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(_ *Header, eth []byte) { eth[23] = protoUDP }),
		ErrGSOProto},
	{"TSO6 of UDP", frame(EtherIPv6, GSOTCPv6, 9000, nil, func(_ *Header, eth []byte) { eth[20] = protoUDP }),
		ErrGSOProto},
	{"TSO without checksum", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(h *Header, _ []byte) { h.Flags = 0 }),
		ErrGSONoCsum},
	{"TSO with UDP's checksum", frame(EtherIPv4, GSOTCPv4, 9000, nil,
		func(h *Header, _ []byte) { h.CsumOffset = udpCsumOff }), ErrGSOProto},
	{"segment size zero", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(h *Header, _ []byte) { h.GSOSize = 0 }), ErrGSOSize},
	{"segment fills the MTU", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(h *Header, _ []byte) { h.GSOSize = 1448 }), nil},
	{"segment over the MTU", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(h *Header, _ []byte) { h.GSOSize = 1449 }),
		ErrMTU},
	{"segment fills the MTU with tag", frame(EtherIPv4, GSOTCPv4, 9000, tags{EtherVLAN},
		func(h *Header, _ []byte) { h.GSOSize = 1448 }), nil},
	{"segment over the MTU with tag", frame(EtherIPv4, GSOTCPv4, 9000, tags{EtherVLAN},
		func(h *Header, _ []byte) { h.GSOSize = 1449 }), ErrMTU},
	{"TCP header too short", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(_ *Header, eth []byte) { eth[34+12] = 4 << 4 }),
		ErrGSOHeaders},
	{"TCP header beyond", frame(EtherIPv4, GSOTCPv4, 0, nil, func(_ *Header, eth []byte) { eth[34+12] = 15 << 4 }),
		ErrGSOHeaders},
	{"IPv4 header length wrong", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(_ *Header, eth []byte) { eth[14] = 0x46 }),
		ErrGSOHeaders},
	{"IPv4 of version 6", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(_ *Header, eth []byte) { eth[14] = 0x65 }),
		ErrGSOHeaders},
	{"no room for IPv6", frame(EtherIPv6, GSOTCPv6, 9000, nil, func(h *Header, _ []byte) { h.CsumStart = 14 + 39 }),
		ErrGSOHeaders},
	{"csum start in the IPv4 header", frame(EtherIPv4, GSOTCPv4, 9000, nil,
		func(h *Header, _ []byte) { h.CsumStart = 14 }), ErrGSOHeaders},
}

func TestCheck(t *testing.T) {
	for _, tc := range checkCases {
		if err := Check(tc.frame, 1500); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, tc := range checkCases {
		f.Add(tc.frame, 1500)
	}
	f.Fuzz(func(t *testing.T, b []byte, mtu int) {
		if mtu < 68 || mtu > 65535 {
			return
		}
		before := bytes.Clone(b)
		if err := Check(b, mtu); err != nil {
			return
		}
		if !bytes.Equal(b, before) {
			t.Fatal("Check changed the frame")
		}
		// The check of the beginning must not accept more than the check of the whole frame.
		for n := range min(len(b), 200) {
			if CheckHead(b[:n:n], len(b), mtu) == nil && Check(b, mtu) != nil {
				t.Fatalf("the first %d bytes pass, and all do not", n)
			}
		}
		// All offsets and lengths of an accepted frame must be within the frame.
		var h Header
		h.Decode(b)
		eth := b[HdrLen:]
		again := make([]byte, HdrLen)
		h.Encode(again)
		if !bytes.Equal(again, b[:HdrLen]) {
			t.Fatal("decode and encode differ")
		}
		if h.Flags&FlagNeedsCsum != 0 && int(h.CsumStart)+int(h.CsumOffset)+2 > len(eth) {
			t.Fatal("checksum outside")
		}
		if h.GSOType == GSONone && len(eth) > mtu+EthLen+2*TagLen {
			t.Fatal("too long for the MTU")
		}
		if h.GSOType != GSONone && int(h.GSOSize)+28 > mtu {
			t.Fatal("segment too long for the MTU")
		}
		RewriteHdrLen(b)
		if err := Check(b, mtu); err != nil {
			t.Fatalf("after RewriteHdrLen: %v", err)
		}
		buf := append(make([]byte, Headroom), b...)
		InsertVLAN(buf, EtherVLAN, 7)
		if len(buf) <= MaxFrame && Check(buf, mtu) != nil {
			if l2, _ := network(eth); l2 < EthLen+2*TagLen && (h.Flags&FlagNeedsCsum == 0 || h.CsumStart < 0xfffc) &&
				len(eth) <= mtu+EthLen {
				t.Fatalf("after InsertVLAN: %v", Check(buf, mtu))
			}
		}
	})
}

// TestCheckHead checks frames by their beginning. If the beginning contains all headers, the result
// has to be the result for the whole frame, otherwise an error.
func TestCheckHead(t *testing.T) {
	for _, tc := range checkCases {
		head := tc.frame[:min(len(tc.frame), 128):min(len(tc.frame), 128)]
		if err := CheckHead(head, len(tc.frame), 1500); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	super := frame(EtherIPv4, GSOTCPv4, 9000, nil, nil)
	for n := range HdrLen + 34 + 32 { // Ethernet, IPv4 and TCP
		if err := CheckHead(super[:n:n], len(super), 1500); err == nil {
			t.Errorf("a super-frame of which only %d bytes are there passes", n)
		}
	}
}

func TestOutgoing(t *testing.T) {
	for _, tc := range checkCases {
		frame := append(make([]byte, 0, MaxFrame+100), tc.frame...)
		for i := range frame[len(frame):cap(frame)] {
			frame[:cap(frame)][len(frame)+i] = 0xa5
		}
		got, err := Outgoing(frame)
		switch {
		case errors.Is(tc.want, ErrMTU):
			if err != nil {
				t.Errorf("%s: %v, and the MTU is the peer's business", tc.name, err)
			}
		case errors.Is(tc.want, ErrCsumProto):
			if err != nil || !IsPlain(got) || len(got) != len(tc.frame) {
				t.Errorf("%s: %d bytes, %v", tc.name, len(got), err)
			}
		case errors.Is(tc.want, ErrTag):
			want := append(bytes.Clone(tc.frame), make([]byte, HdrLen+60-len(tc.frame))...)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: % x, %v", tc.name, got, err)
			}
			if _, err := Outgoing(frame[: len(frame) : HdrLen+59]); !errors.Is(err, ErrTag) {
				t.Errorf("%s, no room for padding: %v", tc.name, err)
			}
		default:
			if !errors.Is(err, tc.want) || !bytes.Equal(got, tc.frame) {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
			}
		}
	}
	// A truncated tag is padded. Other mistakes in such a frame must still be found.
	cut := append(make([]byte, HdrLen+12, 100), 0x81, 0)
	cut[1] = GSOTCPv4
	if _, err := Outgoing(cut); !errors.Is(err, ErrGSOProto) {
		t.Errorf("a super-frame that ends in its tag: %v", err)
	}
}

func TestLongest(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame []byte
		want  int
	}{
		{"plain", frame(EtherIPv4, GSONone, 100, nil, nil), 14 + 20 + 32 + 100},
		{"super-frame", frame(EtherIPv4, GSOTCPv4, 9000, nil, nil), 14 + 20 + 32 + 1400},
		{"super-frame with two tags", frame(EtherIPv6, GSOTCPv6, 9000, tags{EtherQinQ, EtherVLAN}, nil), 22 + 40 + 32 + 1400},
		{"datagrams", frame(EtherIPv4, GSOUDPL4, 9000, tags{EtherVLAN}, nil), 18 + 20 + 8 + 1400},
		{"one segment", frame(EtherIPv4, GSOTCPv4, 700, nil, nil), 14 + 20 + 32 + 700},
	} {
		if got := Longest(tc.frame[:120], len(tc.frame)); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.name, got, tc.want)
		}
	}
}

func TestBreach(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, ErrShort: true, ErrTooLong: true, ErrFlags: true, ErrCsum: true, ErrHdrLen: true,
		ErrTag: false, ErrCsumStart: false, ErrCsumProto: false, ErrMTU: false, ErrGSOType: false, ErrGSONoCsum: false,
		ErrGSOSize: false, ErrGSOProto: false, ErrGSOHeaders: false,
	} {
		if Breach(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}

func TestInsertVLAN(t *testing.T) {
	for _, hdrLen := range []bool{false, true} {
		edit := func(h *Header, eth []byte) {
			if !hdrLen {
				h.HdrLen = 0
			}
			for i := range 12 {
				eth[i] = byte(i)
			}
		}
		want := frame(EtherIPv4, GSOTCPv4, 3000, tags{EtherVLAN}, edit)
		buf := append(make([]byte, Headroom), frame(EtherIPv4, GSOTCPv4, 3000, nil, edit)...)
		InsertVLAN(buf, EtherVLAN, 5)
		if !bytes.Equal(buf, want) {
			t.Errorf("hdr_len %t: % x, want % x", hdrLen, buf[:80], want[:80])
		}
	}
	// If no checksum is to be completed, its offsets do not change.
	plain := append(make([]byte, Headroom), frame(EtherIPv4, GSONone, 10, nil,
		func(h *Header, _ []byte) { *h = Header{} })...)
	InsertVLAN(plain, EtherVLAN, 5)
	if !bytes.Equal(plain[:HdrLen], make([]byte, HdrLen)) {
		t.Errorf("header % x", plain[:HdrLen])
	}
}

func TestRewriteHdrLen(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame []byte
		want  uint16
	}{
		{"TCP", frame(EtherIPv4, GSOTCPv4, 9000, nil, func(h *Header, _ []byte) { h.HdrLen = 8000 }), 14 + 20 + 32},
		{"TCP ECN", frame(EtherIPv6, GSOTCPv6|GSOECN, 9000, nil, nil), 14 + 40 + 32},
		{"UDP", frame(EtherIPv6, GSOUDPL4, 9000, tags{EtherVLAN}, func(h *Header, _ []byte) { h.HdrLen = 0 }), 18 + 40 + 8},
		{"plain", frame(EtherIPv4, GSONone, 900, nil, func(h *Header, _ []byte) { h.HdrLen = 900 }), 0},
	} {
		RewriteHdrLen(tc.frame)
		var h Header
		h.Decode(tc.frame)
		if h.HdrLen != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, h.HdrLen, tc.want)
		}
	}
}

func TestIsPlain(t *testing.T) {
	if !IsPlain(make([]byte, MinFrame)) || !IsPlain(frame(EtherIPv4, GSONone, 0, nil,
		func(h *Header, _ []byte) { h.Flags = FlagDataValid })) {
		t.Error("a finished frame is not plain")
	}
	if IsPlain(frame(EtherIPv4, GSONone, 0, nil, nil)) || IsPlain([]byte{0, GSOTCPv4, 0, 0, 0, 0, 0, 0, 0, 0}) {
		t.Error("an unfinished frame is plain")
	}
}

func TestOffloads(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Offloads
		out  string
		tun  int
	}{
		{"", 0, "none", 0},
		{"none", 0, "none", 0},
		{"csum", CSUM, "csum", 1},
		{"TSO4, csum", CSUM | TSO4, "csum,tso4", 3},
		{"csum,tso", CSUM | TSO4 | TSO6 | TSOECN, "csum,tso4,tso6,tsoecn", 0xf},
		{"csum,uso", CSUM | USO, "csum,uso", 0x61},
		{"all", AllOffloads, "csum,tso4,tso6,tsoecn,uso", 0x6f},
	} {
		o, err := ParseOffloads(tc.in)
		if err != nil || o != tc.want || o.String() != tc.out || o.TUNFlags() != tc.tun {
			t.Errorf("%q: %v (%#x), %v", tc.in, o, o.TUNFlags(), err)
		}
	}
	for _, bad := range []string{"tso4", "csum,tsoecn", "csum,lro", "csum;uso"} {
		if o, err := ParseOffloads(bad); err == nil {
			t.Errorf("%q parsed as %v", bad, o)
		}
	}
	if got := (TSO4 | USO).Intersect(AllOffloads); got != 0 {
		t.Errorf("without CSUM: %v", got)
	}
	if got := AllOffloads.Intersect(CSUM | TSOECN | USO); got != CSUM|USO {
		t.Errorf("ECN without TSO: %v", got)
	}
	if got := Offloads(1<<31 | 1).String(); got != "csum,0x80000000" {
		t.Errorf("unknown bits: %s", got)
	}
	if got := Offloads(1<<31 | 1).Closure(); got != CSUM {
		t.Errorf("closure of unknown bits: %v", got)
	}
	type config struct{ O Offloads }
	b, err := json.Marshal(config{CSUM | TSO6})
	var back config
	if err != nil || json.Unmarshal(b, &back) != nil || back.O != CSUM|TSO6 {
		t.Errorf("JSON %s, %v: %v", b, err, back.O)
	}
	if json.Unmarshal([]byte(`{"O":"warp"}`), &back) == nil {
		t.Error("an unknown offload was read from JSON")
	}
}

func TestAllocs(t *testing.T) {
	frames := [][]byte{make([]byte, 10)}
	for _, tc := range checkCases {
		frames = append(frames, tc.frame)
	}
	super := frame(EtherIPv4, GSOTCPv4, 60000, nil, nil)
	buf := append(make([]byte, Headroom), super...)
	if n := testing.AllocsPerRun(100, func() {
		for _, f := range frames {
			_ = Check(f, 1500)
		}
		RewriteHdrLen(super)
		InsertVLAN(buf, EtherVLAN, 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	f := frame(EtherIPv4, GSOTCPv4, 60000, nil, nil)
	for b.Loop() {
		if err := Check(f, 1500); err != nil {
			b.Fatal(err)
		}
	}
}

func TestOffloadsAsJSON(t *testing.T) {
	for text, want := range map[string]Offloads{
		`[]`: 0, `["csum","tso6"]`: CSUM | TSO6, `["csum","tso4","tso6","tsoecn","uso"]`: AllOffloads,
	} {
		if b, err := json.Marshal(want); err != nil || string(b) != text {
			t.Errorf("%v: encoded %s, %v", want, b, err)
		}
		var got Offloads
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s: decoded %v, %v", text, got, err)
		}
	}
	var got Offloads
	if err := json.Unmarshal([]byte(`["tso4","from the future"]`), &got); err != nil || got != TSO4 {
		t.Errorf("with an unknown name: %v, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`"csum"`), &got); err == nil {
		t.Error("a string was taken for a list")
	}
}
