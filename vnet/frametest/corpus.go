// Package frametest makes odd frames: any bytes that a program can write to a netdevice, valid or
// not, and virtio headers with each field at its limits. Tests of all levels use the same frames.
package frametest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/splitnic/splitnic/vnet"
)

// Frame is a frame of the corpus.
type Frame struct {
	Name  string
	Bytes []byte // [virtio_net_hdr | Ethernet frame]
}

// Ethernet returns Ethernet frames with an empty virtio header: 1 to 70 bytes with up to three VLAN
// tags of each kind, and other protocols than IP. All have the source address src.
func Ethernet(dst, src [6]byte) []Frame {
	var all []Frame
	for _, tags := range tagged() {
		whole := slices.Concat(dst[:], src[:])
		for _, tpid := range tags {
			whole = binary.BigEndian.AppendUint16(whole, tpid)
			whole = binary.BigEndian.AppendUint16(whole, 5)
		}
		whole = binary.BigEndian.AppendUint16(whole, 0x88b5)
		for len(whole) < 70 {
			whole = append(whole, byte(len(whole)))
		}
		for n := 1; n <= 70; n++ {
			all = append(all, plain(fmt.Sprintf("%d bytes, tags %x", n, tags), whole[:n]))
		}
	}
	for _, p := range protocols {
		head := slices.Concat(dst[:], src[:], p.bytes)
		if p.to != ([6]byte{}) {
			copy(head, p.to[:])
		}
		for _, n := range []int{len(head), 60, 64, 1514} {
			f := make([]byte, max(n, len(head)))
			copy(f, head)
			all = append(all, plain(fmt.Sprintf("%s of %d bytes", p.name, len(f)), f))
		}
	}
	return all
}

// plain returns a frame with an empty virtio header.
func plain(name string, eth []byte) Frame {
	return Frame{Name: name, Bytes: append(make([]byte, vnet.HdrLen, vnet.HdrLen+len(eth)), eth...)}
}

// tagged returns all sequences of up to three tags.
func tagged() [][]uint16 {
	all := [][]uint16{nil}
	for first := 0; len(all) < 1+3+9+27; {
		end := len(all)
		for _, tags := range all[first:end] {
			for _, tpid := range []uint16{0x8100, 0x88a8, 0x9100} {
				all = append(all, append(slices.Clone(tags), tpid))
			}
		}
		first = end
	}
	return all
}

// protocols has the bytes after the addresses.
var protocols = []struct {
	name  string
	to    [6]byte
	bytes []byte
}{
	{"LLC", [6]byte{}, []byte{0, 3, 0xf0, 0xf0, 3}},
	{"LLC with an empty length", [6]byte{}, []byte{0, 0}},
	{"LLC with too long a length", [6]byte{}, []byte{5, 0xdc, 0xaa, 0xaa, 3}},
	{"SNAP", [6]byte{}, []byte{0, 8, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0}},
	{"STP", [6]byte{1, 0x80, 0xc2, 0, 0, 0}, []byte{0, 38, 0x42, 0x42, 3, 0, 0, 0, 0, 0}},
	{"LLDP", [6]byte{1, 0x80, 0xc2, 0, 0, 0x0e}, []byte{0x88, 0xcc, 2, 7, 4, 2, 0, 0, 0, 0, 1, 0, 0}},
	{"PAUSE", [6]byte{1, 0x80, 0xc2, 0, 0, 1}, []byte{0x88, 8, 0, 1, 0xff, 0xff}},
	{"LACP", [6]byte{1, 0x80, 0xc2, 0, 0, 2}, []byte{0x88, 9, 1, 1}},
	{"EAPOL", [6]byte{1, 0x80, 0xc2, 0, 0, 3}, []byte{0x88, 0x8e, 1, 2, 0, 0}},
	{"PPPoE discovery", [6]byte{}, []byte{0x88, 0x63, 0x11, 9, 0, 0, 0, 0}},
	{"PPPoE session", [6]byte{}, []byte{0x88, 0x64, 0x11, 0, 0, 1, 0, 4, 0, 0x21, 0x45, 0}},
	{"MPLS", [6]byte{}, []byte{0x88, 0x47, 0, 1, 0x01, 0x40, 0x45, 0, 0, 20}},
	{"MPLS multicast", [6]byte{}, []byte{0x88, 0x48, 0, 1, 0x01, 0x40}},
	{"ARP", [6]byte{}, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 1}},
	{"ARP cut short", [6]byte{}, []byte{8, 6, 0, 1}},
	{"IPv4 cut short", [6]byte{}, []byte{8, 0, 0x45}},
	{"IPv4 of no length", [6]byte{}, []byte{8, 0, 0x40, 0, 0, 0}},
	{"IPv6 cut short", [6]byte{}, []byte{0x86, 0xdd, 0x60}},
	{"MACsec", [6]byte{}, []byte{0x88, 0xe5, 0x2c, 0}},
	{"PTP", [6]byte{1, 0x1b, 0x19, 0, 0, 0}, []byte{0x88, 0xf7, 0, 2}},
	{"provider backbone", [6]byte{}, []byte{0x88, 0xe7, 0, 0, 0, 1}},
	{"loopback", [6]byte{}, []byte{0x90, 0, 0, 0}},
	{"type 0", [6]byte{}, []byte{0, 0}},
	{"type 65535", [6]byte{}, []byte{0xff, 0xff}},
}

// fields returns the fields of a virtio header, by offset and width, with the values at their limits
// for a frame with these lengths of its Ethernet header, its network headers, and in all.
func fields(l2, l4, n int) []field {
	sizes := func(at int, values ...int) field {
		f := field{at: at, width: 2}
		for _, v := range values {
			if v >= 0 && !slices.Contains(f.values, v) {
				f.values = append(f.values, v)
			}
		}
		return f
	}
	return []field{
		{at: 0, width: 1, values: []int{0, 1, 2, 3, 4, 5, 8, 0x80, 0x81, 0xff}},
		{at: 1, width: 1, values: []int{0, 1, 2, 3, 4, 5, 6, 0x20, 0x21, 0x40, 0x44, 0x80, 0x81, 0x84, 0x85, 0xff}},
		sizes(2, 0, 1, l2-1, l2, l4, n-1, n, n+1, 65535),
		sizes(4, 0, 1, 8, 47, 48, 1400, 1447, 1448, 1449, n, 65534, 65535),
		sizes(6, 0, 1, 13, 14, 17, 18, l2-1, l2, l4-1, l4, l4+1, n-2, n-1, n, 65534, 65535),
		sizes(8, 0, 6, 16, n-l4-2, n-l4-1, n-l4, n-2, n, 65533, 65535),
	}
}

type field struct {
	at, width int
	values    []int
}

func (f *field) put(frame []byte, v int) {
	if f.width == 1 {
		frame[f.at] = byte(v)
		return
	}
	binary.LittleEndian.PutUint16(frame[f.at:], uint16(v))
}

// Headers returns frames in which two fields of the virtio header, in all combinations, are at their
// limits, and the others are valid. All have the source address src.
func Headers(dst, src [6]byte) []Frame {
	var all []Frame
	for _, b := range bases(dst, src) {
		all = append(all, Frame{Name: b.name, Bytes: b.frame})
		fs := fields(b.l2, b.l4, len(b.frame)-vnet.HdrLen)
		for i := range fs {
			for _, v := range fs[i].values {
				one := slices.Clone(b.frame)
				fs[i].put(one, v)
				all = append(all, Frame{Name: fmt.Sprintf("%s, field %d: %d", b.name, fs[i].at, v), Bytes: one})
				for j := range fs[:i] {
					for _, w := range fs[j].values {
						two := slices.Clone(one)
						fs[j].put(two, w)
						name := fmt.Sprintf("%s, fields %d and %d: %d and %d", b.name, fs[i].at, fs[j].at, v, w)
						all = append(all, Frame{Name: name, Bytes: two})
					}
				}
			}
		}
	}
	return all
}

// base is a valid frame.
type base struct {
	name   string
	frame  []byte
	l2, l4 int // lengths of the headers before the network's, and before the transport's
}

// bases returns valid frames of all kinds with offloads.
func bases(dst, src [6]byte) []base {
	var all []base
	for _, b := range []struct {
		name    string
		gso     byte
		v6, udp bool
		tags    []uint16
		payload int
	}{
		{"no more than an Ethernet header", 0, false, true, nil, -1},
		{"UDP", 0, false, true, nil, 100},
		{"TCP with a tag", 0, true, false, []uint16{0x8100}, 10},
		{"TSO4", vnet.GSOTCPv4, false, false, nil, 4000},
		{"TSO4 with a tag", vnet.GSOTCPv4, false, false, []uint16{0x8100}, 3000},
		{"TSO6 with two tags", vnet.GSOTCPv6, true, false, []uint16{0x88a8, 0x8100}, 3000},
		{"TSO6 with three tags", vnet.GSOTCPv6, true, false, []uint16{0x88a8, 0x8100, 0x8100}, 1000},
		{"USO6", vnet.GSOUDPL4, true, true, nil, 3000},
	} {
		all = append(all, newBase(b.name, slices.Concat(dst[:], src[:]), b.gso, b.v6, b.udp, b.tags, b.payload))
	}
	tcp := newBase("TSO6 behind options", slices.Concat(dst[:], src[:]), vnet.GSOTCPv6, true, false, nil, 3000)
	vxlan := newBase("TCP in UDP", slices.Concat(dst[:], src[:]), 0, false, true, nil, 100)
	return append(all, tcp.behindOptions(), vxlan.inner())
}

// behindOptions inserts a hop-by-hop header in front of the transport header of a super-frame over
// IPv6.
func (b base) behindOptions() base {
	at, next := vnet.HdrLen+b.l4, &b.frame[vnet.HdrLen+b.l2+6]
	options := []byte{*next, 0, 5, 2, 0, 0, 1, 0}
	*next = 0
	b.frame = slices.Insert(b.frame, at, options...)
	b.l4 += len(options)
	var h vnet.Header
	h.Decode(b.frame)
	h.CsumStart, h.HdrLen = h.CsumStart+uint16(len(options)), h.HdrLen+uint16(len(options))
	h.Encode(b.frame)
	return b
}

// inner moves the checksum of a UDP frame to TCP in a packet in it, behind 8 bytes of a tunnel's
// header and headers of Ethernet and IPv4.
func (b base) inner() base {
	b.l4 += 8 + 8 + 14 + 20
	(&vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: uint16(b.l4), CsumOffset: 16}).Encode(b.frame)
	return b
}

func newBase(name string, eth []byte, gso byte, v6, udp bool, tags []uint16, payload int) base {
	for _, tpid := range tags {
		eth = append(eth, byte(tpid>>8), byte(tpid), 0, 5)
	}
	l2 := len(eth) + 2
	proto, header := byte(6), make([]byte, 32)
	header[12] = 8 << 4
	if udp {
		proto, header = 17, make([]byte, 8)
	}
	switch {
	case payload < 0:
		header = nil
		eth = append(eth, 0x88, 0xb5)
	case v6:
		eth = append(append(eth, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, proto, 64), make([]byte, 32)...)
	default:
		eth = append(append(eth, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto), make([]byte, 10)...)
	}
	h := vnet.Header{GSOType: gso}
	l4 := len(eth)
	if header != nil {
		h.Flags, h.CsumStart, h.CsumOffset = vnet.FlagNeedsCsum, uint16(l4), 16
		if udp {
			h.CsumOffset = 6
		}
	}
	if gso != 0 {
		h.GSOSize, h.HdrLen = 1200, uint16(l4+len(header))
	}
	frame := slices.Concat(make([]byte, vnet.HdrLen), eth, header, make([]byte, max(payload, 0)))
	h.Encode(frame)
	return base{name: name, frame: frame, l2: l2, l4: l4}
}

// Corpus returns the frames of Ethernet and Headers, and frames that are shorter than a header.
func Corpus(dst, src [6]byte) []Frame {
	all := append(Ethernet(dst, src), Headers(dst, src)...)
	for n := range vnet.HdrLen + 1 {
		all = append(all, Frame{Name: fmt.Sprintf("%d bytes of a header", n), Bytes: make([]byte, n)})
	}
	for _, n := range []int{vnet.MaxFrame - 1, vnet.MaxFrame, vnet.MaxFrame + 1, 1<<16 + 1} {
		all = append(all, Frame{Name: fmt.Sprintf("%d bytes", n), Bytes: make([]byte, n)})
	}
	return all
}
