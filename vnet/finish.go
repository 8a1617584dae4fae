package vnet

import (
	"bytes"
	"encoding/binary"
)

// Finisher carries out the offloads of a frame in software: it segments super-frames and
// completes checksums, for a device that does neither. It has memory for one frame, which it
// allocates when it is first used.
type Finisher struct {
	whole, part []byte
	h           Header
	l2, end     int // offsets of the network header and of the payload in the Ethernet frame
	segments    int
	ipv4        bool
}

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// Begin takes a frame in two parts, and returns the number of its segments: one if it is not a
// super-frame. Errors are those of Check.
//
// borrowed: head and rest, for the call: they are copied before they are checked.
func (f *Finisher) Begin(head, rest []byte) (n int, err error) {
	if len(head)+len(rest) > MaxFrame {
		return 0, ErrTooLong
	}
	if f.whole == nil {
		f.whole, f.part = make([]byte, MaxFrame), make([]byte, MaxFrame)
	}
	n = copy(f.whole[:MaxFrame], head)
	n += copy(f.whole[n:MaxFrame], rest)
	f.whole = f.whole[:n]
	if err := Check(f.whole, anyMTU); err != nil {
		return 0, err
	}
	f.h.Decode(f.whole)
	eth := f.whole[HdrLen:]
	l := LayersOf(f.whole)
	f.l2, f.ipv4 = l.At-HdrLen, l.Proto == EtherIPv4
	f.segments = 1
	if f.h.GSOType != GSONone {
		f.end = transportEnd(eth, int(f.h.CsumStart), f.h.GSOType != GSOUDPL4)
		f.segments = segments(len(eth)-f.end, int(f.h.GSOSize))
	}
	return f.segments, nil
}

// Holds reports whether the last super-frame of Begin is equal to head and rest.
//
// borrowed: head and rest, for the call.
func (f *Finisher) Holds(head, rest []byte) bool {
	n := len(head)
	return n <= len(f.whole) && bytes.Equal(f.whole[:n], head) && bytes.Equal(f.whole[n:], rest)
}

// Segment returns segment i as a complete frame, which needs no offload.
//
// borrowed: what it returns, until the next call.
func (f *Finisher) Segment(i int) []byte {
	if f.h.GSOType == GSONone {
		if f.h.Flags&FlagNeedsCsum != 0 {
			complete(f.whole[HdrLen:], &f.h)
			f.h.Flags = 0
		}
		clear(f.whole[:HdrLen])
		return f.whole
	}
	eth := f.whole[HdrLen:]
	from := f.end + i*int(f.h.GSOSize)
	to := min(from+int(f.h.GSOSize), len(eth))
	part := f.part[:HdrLen+f.end+to-from]
	clear(part[:HdrLen])
	out := part[HdrLen:]
	copy(out, eth[:f.end])
	copy(out[f.end:], eth[from:to])
	f.fixNetwork(out, i)
	f.fixTransport(out, i)
	return part
}

// fixNetwork changes the IP header into that of segment i.
func (f *Finisher) fixNetwork(eth []byte, i int) {
	ip := eth[f.l2:]
	if !f.ipv4 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-ipv6Fixed))
		return
	}
	header := ip[:int(ip[0]&15)*4]
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(i))
	clear(ip[10:12])
	binary.BigEndian.PutUint16(ip[10:], ^fold(add(0, header)))
}

// fixTransport changes the TCP or UDP header into that of segment i, with its checksum.
func (f *Finisher) fixTransport(eth []byte, i int) {
	t := eth[f.h.CsumStart:]
	proto := uint32(protoTCP)
	if f.h.GSOType == GSOUDPL4 {
		proto = protoUDP
		binary.BigEndian.PutUint16(t[4:], uint16(len(t)))
	} else {
		binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+uint32(i)*uint32(f.h.GSOSize))
		if i > 0 {
			t[13] &^= tcpCWR
		}
		if i < f.segments-1 {
			t[13] &^= tcpFIN | tcpPSH
		}
	}
	at := int(f.h.CsumOffset)
	clear(t[at : at+2])
	addresses := eth[f.l2+12:][:8]
	if !f.ipv4 {
		addresses = eth[f.l2+8:][:32]
	}
	sum := ^fold(add(add(proto+uint32(len(t)), addresses), t))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(t[at:], sum)
}
