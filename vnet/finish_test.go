package vnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
)

// superFrame returns a super-frame with payload bytes of payload and segments of size
// bytes, with or without a VLAN tag.
func superFrame(gso uint8, v6, tag bool, payload, size int) []byte {
	l2, ip, transport, proto := EthLen, 20, tcpMinLen+12, byte(protoTCP)
	if tag {
		l2 += TagLen
	}
	if v6 {
		ip = ipv6Fixed
	}
	off := uint16(tcpCsumOff)
	if gso == GSOUDPL4 {
		transport, proto, off = udpLen, protoUDP, udpCsumOff
	}
	f := make([]byte, HdrLen+l2+ip+transport+payload)
	h := Header{Flags: FlagNeedsCsum, GSOType: gso, GSOSize: uint16(size), CsumStart: uint16(l2 + ip), CsumOffset: off}
	h.Encode(f)
	eth := f[HdrLen:]
	at := 12
	if tag {
		binary.BigEndian.PutUint16(eth[12:], EtherVLAN)
		at += TagLen
	}
	n, t := eth[l2:], eth[l2+ip:]
	if v6 {
		binary.BigEndian.PutUint16(eth[at:], EtherIPv6)
		n[0], n[6] = 0x60, proto
	} else {
		binary.BigEndian.PutUint16(eth[at:], EtherIPv4)
		n[0], n[9] = 0x45, proto
		binary.BigEndian.PutUint16(n[4:], 0xfffe)
	}
	for i := 8; i < ip; i++ {
		if v6 || i > 11 {
			n[i] = byte(i * 7)
		}
	}
	if gso != GSOUDPL4 {
		binary.BigEndian.PutUint32(t[4:], 0xfffffff0)
		t[12], t[13] = 8<<4, tcpFIN|tcpPSH|tcpCWR|0x10
	}
	for i := range payload {
		t[transport+i] = byte(i * 31)
	}
	return f
}

// network returns the length of the Ethernet header of eth with its tags, and the EtherType.
func network(eth []byte) (l2 int, proto uint16) {
	l := LayersOf(append(make([]byte, HdrLen), eth...))
	return l.At - HdrLen, l.Proto
}

// valid returns the payload of a segment, or an error if a checksum of the segment is wrong.
func valid(f []byte, gso uint8) (payload []byte, err error) {
	eth := f[HdrLen:]
	l2, proto := network(eth)
	n := eth[l2:]
	ip := ipv6Fixed
	addresses := n[8:40]
	if proto == EtherIPv4 {
		ip, addresses = 20, n[12:20]
		if got := fold(add(0, n[:20])); got != 0xffff {
			return nil, fmt.Errorf("IP checksum: %#x", got)
		}
		if int(binary.BigEndian.Uint16(n[2:])) != len(n) {
			return nil, fmt.Errorf("IP length %d of %d", binary.BigEndian.Uint16(n[2:]), len(n))
		}
	} else if int(binary.BigEndian.Uint16(n[4:])) != len(n)-ip {
		return nil, fmt.Errorf("IPv6 length %d of %d", binary.BigEndian.Uint16(n[4:]), len(n)-ip)
	}
	t := n[ip:]
	number, header := uint32(protoTCP), tcpMinLen+12
	if gso == GSOUDPL4 {
		number, header = protoUDP, udpLen
	}
	if got := fold(add(add(number+uint32(len(t)), addresses), t)); got != 0xffff {
		return nil, fmt.Errorf("checksum: %#x", got)
	}
	return t[header:], nil
}

// TestFinisher divides super-frames into segments, and checks each segment and the whole payload.
func TestFinisher(t *testing.T) {
	var f Finisher
	for _, gso := range []uint8{GSOTCPv4, GSOTCPv6, GSOUDPL4, GSOTCPv4 | GSOECN} {
		for _, tag := range []bool{false, true} {
			for _, payload := range []int{1, 1000, 1001, 5999, 60000} {
				for _, v6 := range []bool{gso == GSOTCPv6, gso == GSOTCPv6 || gso == GSOUDPL4} {
					name := fmt.Sprintf("type %d, tag %t, %d bytes, v6 %t", gso, tag, payload, v6)
					whole := superFrame(gso, v6, tag, payload, 1000)
					n, err := f.Begin(whole[:40], whole[40:])
					if err != nil || n != (payload+999)/1000 {
						t.Fatalf("%s: %d segments, %v", name, n, err)
					}
					var got []byte
					for i := range n {
						s := f.Segment(i)
						if !IsPlain(s) || Check(s, 1500) != nil {
							t.Fatalf("%s: segment %d: %x", name, i, s[:HdrLen])
						}
						p, err := valid(s, gso)
						if err != nil {
							t.Fatalf("%s: segment %d: %v", name, i, err)
						}
						if id := binary.BigEndian.Uint16(s[LayersOf(s).At+4:]); !v6 && id-0xfffe != uint16(i) {
							t.Errorf("%s: segment %d has identification %#x", name, i, id)
						}
						checkTCP(t, s, gso, i, n)
						got = append(got, p...)
					}
					if !bytes.Equal(got, whole[len(whole)-payload:]) {
						t.Errorf("%s: %d bytes of payload", name, len(got))
					}
				}
			}
		}
	}
}

// checkTCP checks the sequence number and the flags of segment i of n.
func checkTCP(t *testing.T, s []byte, gso uint8, i, n int) {
	t.Helper()
	if gso == GSOUDPL4 {
		return
	}
	eth := s[HdrLen:]
	l2, proto := network(eth)
	tcp := eth[l2+20:]
	if proto == EtherIPv6 {
		tcp = eth[l2+ipv6Fixed:]
	}
	if seq := binary.BigEndian.Uint32(tcp[4:]); seq-0xfffffff0 != uint32(i)*1000 {
		t.Errorf("segment %d has sequence number %#x", i, seq)
	}
	if fin, cwr := tcp[13]&(tcpFIN|tcpPSH) != 0, tcp[13]&tcpCWR != 0; fin != (i == n-1) || cwr != (i == 0) {
		t.Errorf("segment %d of %d has flags %#x", i, n, tcp[13])
	}
}

// TestFinisherCompletesChecksums completes the checksum of a frame that is not a super-frame.
func TestFinisherCompletesChecksums(t *testing.T) {
	var f Finisher
	whole := superFrame(GSOUDPL4, false, false, 501, 1000)
	clear(whole[1:6]) // no segmentation in the header
	n, udp := whole[HdrLen+EthLen:], whole[HdrLen+EthLen+20:]
	binary.BigEndian.PutUint16(n[2:], uint16(len(n)))
	binary.BigEndian.PutUint16(n[10:], ^fold(add(0, n[:20])))
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], fold(add(protoUDP+uint32(len(udp)), n[12:20])))
	if n, err := f.Begin(whole, nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := valid(f.Segment(0), GSOUDPL4); err != nil {
		t.Error(err)
	}
	if _, err := f.Begin(whole[:20], nil); !errors.Is(err, ErrShort) {
		t.Error(err)
	}
	if _, err := f.Begin(make([]byte, MaxFrame), make([]byte, 1)); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
}

// TestFinisherSumOfZero finishes UDP packets whose checksum is 0, which in UDP means that there is none:
// segments, and a packet that is not segmented. It expects the other form of zero, 0xffff.
func TestFinisherSumOfZero(t *testing.T) {
	var f Finisher
	for _, v6 := range []bool{false, true} {
		super, plain := superFrame(GSOUDPL4, v6, false, 16, 8), superFrame(GSOUDPL4, v6, false, 8, 8)
		clear(plain[1:6]) // no segmentation in the header
		for _, whole := range [][]byte{super, plain} {
			at := int(binary.LittleEndian.Uint16(whole[6:])) + HdrLen // of the UDP header
			sums := func() (sums []uint16) {
				n, err := f.Begin(whole, nil)
				if err != nil {
					t.Fatal(err)
				}
				for i := range n {
					sums = append(sums, binary.BigEndian.Uint16(f.Segment(i)[at+udpCsumOff:]))
				}
				return sums
			}
			for i, sum := range sums() { // added to the data of its segment, it makes the sum zero
				word := whole[at+udpLen+8*i:]
				binary.BigEndian.PutUint16(word, fold(uint32(binary.BigEndian.Uint16(word))+uint32(sum)))
			}
			for i, sum := range sums() {
				if sum != 0xffff {
					t.Errorf("v6 %t, %d bytes, segment %d: checksum %#x", v6, len(whole), i, sum)
				}
			}
		}
	}
}

// TestFinisherCompletesInnerChecksums expects the checksum of TCP in UDP to be completed at the
// place that the header names, and nothing else to change, also in the outer headers.
func TestFinisherCompletesInnerChecksums(t *testing.T) {
	const outer, encapsulation = EthLen + 20, udpLen + 4
	const inner = outer + encapsulation
	whole := superFrame(GSOUDPL4, false, false, encapsulation-udpLen+tcpMinLen+101, 1)
	(&Header{Flags: FlagNeedsCsum, CsumStart: inner, CsumOffset: tcpCsumOff}).Encode(whole)
	eth := whole[HdrLen:]
	pseudo := add(protoTCP+uint32(len(eth)-inner), eth[EthLen+12:outer])
	binary.BigEndian.PutUint16(eth[inner+tcpCsumOff:], fold(pseudo))
	var f Finisher
	if n, err := f.Begin(whole[:outer], whole[outer:]); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	got := f.Segment(0)
	if !IsPlain(got) {
		t.Errorf("header %x", got[:HdrLen])
	}
	if sum := fold(add(pseudo, got[HdrLen+inner:])); sum != 0xffff {
		t.Errorf("checksum: %#x", sum)
	}
	const at = inner + tcpCsumOff
	copy(eth[at:at+2], got[HdrLen+at:])
	if !bytes.Equal(got[HdrLen:], eth) {
		t.Errorf("frame %x, want %x", got[HdrLen:], eth)
	}
}

// FuzzFinisher finishes frames of arbitrary bytes. It expects an error exactly for the frames that
// Check refuses, and plain frames as segments.
func FuzzFinisher(f *testing.F) {
	f.Add(superFrame(GSOTCPv4, false, true, 3000, 1000))
	f.Add(superFrame(GSOUDPL4, true, false, 3000, 1))
	var fin Finisher
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := fin.Begin(b, nil)
		if (err == nil) != (Check(b, anyMTU) == nil && len(b) <= MaxFrame) {
			t.Fatal(err)
		}
		for i := range min(n, 100) {
			if s := fin.Segment(i); !IsPlain(s) {
				t.Fatalf("segment %d of %d: %x", i, n, s)
			}
		}
	})
}
