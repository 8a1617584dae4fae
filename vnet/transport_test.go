package vnet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
)

// etherFrame returns a frame of 300 bytes. rest is hexadecimal: tags, EtherType and payload.
func etherFrame(t testing.TB, rest string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(rest, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	f := append(make([]byte, HdrLen+12), b...)
	for len(f) < HdrLen+300 {
		f = append(f, byte(len(f)*7))
	}
	return f
}

const (
	v4 = "0800 4500 0054 0000 0000 40 06 0000 c0000201 c0000202"
	v6 = "86dd 60000000 0040 "
	to = " ff 20010db8000000000000000000000001 20010db8000000000000000000000002"
)

// TestTransport looks for the transport protocol behind tags, options and extension headers.
func TestTransport(t *testing.T) {
	for _, tc := range []struct {
		name, rest string
		want       Transport // At is from the beginning of the Ethernet frame
		ok         bool
	}{
		{"IPv4", v4, Transport{Proto: 6, At: 34}, true},
		{"IPv4 in three VLANs", strings.Repeat("8100 0005 ", 3) + v4, Transport{Proto: 6, At: 46}, true},
		{"IPv4 with old tags", "9100 0005 9200 0006 9300 0007 " + v4, Transport{Proto: 6, At: 46}, true},
		{"IPv4 behind a tag of a bridge", "893f 0005 0000 0000 " + v4, Transport{}, false},
		{"options", "0800 4f00 0054 0000 0000 4011", Transport{Proto: 17, At: 74}, true},
		{"too short a header", "0800 4400 0054 0000 0000 4011", Transport{}, false},
		{"IPv4 of version 6", "0800 6500 0054 0000 0000 4011", Transport{}, false},
		{"a first fragment", "0800 4500 0054 0000 2000 4011", Transport{Proto: 17, At: 34, Part: true}, true},
		{"a later fragment", "0800 4500 0054 0000 0001 4011", Transport{Proto: 17, At: 34, Part: true, Later: true}, true},
		{"not to be fragmented", "0800 4500 0054 0000 4000 4011", Transport{Proto: 17, At: 34}, true},
		{"IPv6", v6 + "06" + to, Transport{Proto: 6, At: 54}, true},
		{"IPv6 of version 4", "86dd 40000000 0040 06" + to, Transport{}, false},
		{"hop by hop", v6 + "00" + to + "1101 050200000100 0000000000000000", Transport{Proto: 17, At: 70}, true},
		{"routing and options", v6 + "2b" + to + "3c00 000000000000 0600 000000000000", Transport{Proto: 6, At: 70}, true},
		{"a header of a fragment", v6 + "2c" + to + "1100 0000 00000001", Transport{Proto: 17, At: 62, Part: true}, true},
		{
			"IPv6, a later fragment", v6 + "2c" + to + "0000 0008 00000001",
			Transport{Proto: 0, At: 62, Part: true, Later: true}, true,
		},
		{"eight options", v6 + "3c" + to + strings.Repeat("3c00 000000000000", 7) + "0600 000000000000", Transport{}, false},
		{
			"seven options", v6 + "3c" + to + strings.Repeat("3c00 000000000000", 6) + "0600 000000000000",
			Transport{Proto: 6, At: 110}, true,
		},
		{"options that do not end", v6 + "3c" + to + "06ff 00", Transport{}, false},
		{"ARP", "0806 0001 0800 0604 0001", Transport{}, false},
		{"nothing but tags", strings.Repeat("8100 0005 ", 80), Transport{}, false},
	} {
		head := etherFrame(t, tc.rest)[:256]
		got, ok := LayersOf(head).Transport(head)
		tc.want.At += HdrLen
		if ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s: %+v, %t", tc.name, got, ok)
		}
		if !ok {
			continue
		}
		for n := range got.At - HdrLen {
			short := head[:max(MinFrame, HdrLen+n):max(MinFrame, HdrLen+n)]
			if less, ok := LayersOf(short).Transport(short); ok && !got.Later {
				t.Errorf("%s: of %d bytes %+v", tc.name, n, less)
			}
		}
	}
}

// TestChecksums expects a checksum to be left to the card only where the protocol has one.
func TestChecksums(t *testing.T) {
	proto4 := func(p string) string { return strings.Replace(v4, "40 06", "40 "+p, 1) }
	for _, tc := range []struct {
		name, rest    string
		start, offset uint16
		want          error
	}{
		{"TCP", v4, 34, 16, nil},
		{"TCP, where UDP has it", v4, 34, 6, ErrCsumProto},
		{"TCP, in the acknowledgement", v4, 34, 8, ErrCsumProto},
		{"in IP", v4, 33, 16, ErrCsumProto},
		{"in IP, up to the address", v4, 14, 14, ErrCsumProto},
		{"behind TCP", v4, 54, 16, ErrCsumProto},
		{"UDP", proto4("11"), 34, 6, nil},
		{"UDP, where TCP has it", proto4("11"), 34, 16, ErrCsumProto},
		{"TCP in UDP", proto4("11"), 84, 16, nil},
		{"UDP in UDP", proto4("11"), 42, 6, nil},
		{"in the header of UDP", proto4("11"), 41, 6, ErrCsumProto},
		{"anywhere in UDP", proto4("11"), 84, 10, ErrCsumProto},
		{"SCTP", proto4("84"), 34, 8, nil},
		{"GRE", proto4("2f"), 34, 4, nil},
		{"TCP in GRE", proto4("2f"), 58, 16, nil},
		{"IP in IP", proto4("04"), 54, 16, nil},
		{"in the inner IP", proto4("04"), 53, 16, ErrCsumProto},
		{"IPv6 in IP", proto4("29"), 74, 6, nil},
		{"in the inner IPv6", proto4("29"), 73, 6, ErrCsumProto},
		{"ICMP", proto4("01"), 34, 2, ErrCsumProto},
		{"OSPF", proto4("59"), 34, 12, ErrCsumProto},
		{"behind a tag", "8100 0005 " + v4, 38, 16, nil},
		{"not behind the tag", "8100 0005 " + v4, 34, 16, ErrCsumProto},
		{"in the tag", "8100 0005 " + v4, 17, 16, ErrCsumStart},
		{"behind three tags", strings.Repeat("8100 0005 ", 3) + v4, 46, 16, nil},
		{"in the third tag", strings.Repeat("8100 0005 ", 3) + v4, 22, 16, ErrCsumStart},
		{"in an old tag", "9100 0005 " + v4, 15, 16, ErrCsumStart},
		{"ICMPv6", v6 + "3a" + to, 54, 2, nil},
		{"in the message of ICMPv6", v6 + "3a" + to, 56, 6, ErrCsumProto},
		{"behind the header of ICMPv6", v6 + "3a" + to, 58, 16, ErrCsumProto},
		{"ICMPv6 behind options", v6 + "00" + to + "3a00 050200000100", 62, 2, nil},
		{"in the options", v6 + "00" + to + "3a00 050200000100", 54, 2, ErrCsumProto},
		{"UDP in a fragment", v6 + "2c" + to + "1100 0001 00000001", 62, 6, ErrCsumProto},
		{"UDP in a first fragment", "0800 4500 0054 0000 2000 4011 0000", 34, 6, ErrCsumProto},
		{"behind the copy", v6 + "3c" + to + "111c", 54 + 232, 6, nil},
		{"ARP", "0806 0001 0800 0604 0001", 14, 16, ErrCsumProto},
		{"PPPoE", "8864 1100 0001 0016 0021 4500 0014 0000 0000 4006", 42, 16, ErrCsumProto},
		{"LLC", "0026 aaaa03 000000 0800 4500", 42, 16, ErrCsumProto},
		{"nothing but tags", strings.Repeat("8100 0005 ", 70), 294, 2, ErrCsumProto},
	} {
		f := etherFrame(t, tc.rest)
		(&Header{Flags: FlagNeedsCsum, CsumStart: tc.start, CsumOffset: tc.offset}).Encode(f)
		if err := Check(f, 1500); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
		// Of the beginning at least as much is refused.
		err := CheckHead(f[:256], len(f), 1500)
		if err == nil && (tc.want != nil || tc.name == "behind the copy") {
			t.Errorf("%s: the beginning passes", tc.name)
		}
		// The sender completes what the receiver refuses.
		want := slices.Clone(f)
		if errors.Is(tc.want, ErrCsumProto) {
			at := HdrLen + int(tc.start+tc.offset)
			sum := ^fold(add(0, want[HdrLen+int(tc.start):]))
			binary.BigEndian.PutUint16(want[at:], sum)
			clear(want[:HdrLen])
		}
		got, err := Outgoing(f)
		if errors.Is(tc.want, ErrCsumStart) != (err != nil) || err == nil && !bytes.Equal(got, want) {
			t.Errorf("%s: sent as % x, %v", tc.name, got[:120], err)
		}
	}
}
