// Package pcapng encodes captures of Ethernet frames for Wireshark, tshark and tcpdump
// (draft-ietf-opsawg-pcapng). A capture is a section with interfaces, packets and statistics,
// in that order for each interface. Each function appends one block.
package pcapng

import (
	"encoding/binary"
	"time"
)

// Types of blocks.
const (
	sectionHeader        = 0x0a0d0d0a
	interfaceDescription = 1
	interfaceStatistics  = 5
	enhancedPacket       = 6
)

// Options that are used. The prefix of a name is the block; opt is for all blocks.
const (
	optEnd     = 0
	optComment = 1

	shbHardware = 2
	shbOS       = 3
	shbProgram  = 4

	ifName        = 2
	ifDescription = 3
	ifTSResol     = 9
	ifFilter      = 11

	epbFlags = 2

	isbStart    = 2
	isbEnd      = 3
	isbReceived = 4
	isbDropped  = 5
)

const (
	linkEthernet = 1
	nanoseconds  = 9 // a power of ten
	longestText  = 0xffff
)

// Flags are the flags of a packet.
type Flags uint32

// Each packet has Inbound or Outbound. The other flags are optional.
const (
	Inbound          Flags = 1
	Outbound         Flags = 2
	ChecksumNotReady Flags = 1 << 9
	Segments         Flags = 1 << 11 // the packet is several ones on the wire
)

// Section describes where a capture was made.
type Section struct{ Hardware, OS, Program, Comment string }

// Interface is an interface that was captured. Interfaces are numbered in order, from 0.
type Interface struct {
	Name, Description, Filter string
	SnapLength                int
}

// Packet is an Ethernet frame, or the first bytes of one.
type Packet struct {
	Interface int
	Time      time.Time
	Length    int // of the frame in bytes, at least len(Data)
	Data      []byte
	Flags     Flags
	Comment   string
}

// Statistics has the counters of an interface.
type Statistics struct {
	Interface         int
	Start, End        time.Time
	Received, Dropped uint64 // packets; Received includes those that were dropped because buffers were full
}

// AppendSection begins a section.
func AppendSection(b []byte, s *Section) []byte {
	b, from := begin(b, sectionHeader)
	b = binary.LittleEndian.AppendUint32(b, 0x1a2b3c4d)
	b = binary.LittleEndian.AppendUint16(b, 1) // version 1.0
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint64(b, ^uint64(0)) // the length is not known
	b = text(b, optComment, s.Comment)
	b = text(b, shbHardware, s.Hardware)
	b = text(b, shbOS, s.OS)
	b = text(b, shbProgram, s.Program)
	return end(b, from)
}

// AppendInterface appends an interface.
func AppendInterface(b []byte, i *Interface) []byte {
	b, from := begin(b, interfaceDescription)
	b = binary.LittleEndian.AppendUint16(b, linkEthernet)
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(i.SnapLength))
	b = text(b, ifName, i.Name)
	b = text(b, ifDescription, i.Description)
	if i.Filter != "" {
		b = text(b, ifFilter, "\x00"+i.Filter) // 0: a filter expression in text
	}
	b = option(b, ifTSResol, []byte{nanoseconds})
	return end(b, from)
}

// AppendPacket appends a packet.
func AppendPacket(b []byte, p *Packet) []byte {
	b, from := begin(b, enhancedPacket)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Interface))
	b = stamp(b, p.Time)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Data)))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Length))
	b = pad(append(b, p.Data...), len(p.Data))
	b = text(b, optComment, p.Comment)
	b = option(b, epbFlags, binary.LittleEndian.AppendUint32(nil, uint32(p.Flags)))
	return end(b, from)
}

// AppendStatistics appends the counters of an interface.
func AppendStatistics(b []byte, s *Statistics) []byte {
	b, from := begin(b, interfaceStatistics)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Interface))
	b = stamp(b, s.End)
	b = option(b, isbStart, stamp(nil, s.Start))
	b = option(b, isbEnd, stamp(nil, s.End))
	b = option(b, isbReceived, binary.LittleEndian.AppendUint64(nil, s.Received))
	b = option(b, isbDropped, binary.LittleEndian.AppendUint64(nil, s.Dropped))
	return end(b, from)
}

// begin appends the head of a block. end fills in the length.
func begin(b []byte, kind uint32) (block []byte, from int) {
	from = len(b)
	b = binary.LittleEndian.AppendUint32(b, kind)
	return binary.LittleEndian.AppendUint32(b, 0), from
}

func end(b []byte, from int) []byte {
	b = append(b, optEnd, 0, 0, 0)
	length := uint32(len(b) + 4 - from)
	binary.LittleEndian.PutUint32(b[from+4:], length)
	return binary.LittleEndian.AppendUint32(b, length)
}

func option(b []byte, code uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))
	return pad(append(b, value...), len(value))
}

// text appends an option, unless it is empty.
func text(b []byte, code uint16, value string) []byte {
	if value == "" {
		return b
	}
	return option(b, code, []byte(value[:min(len(value), longestText)]))
}

// pad appends zeros after n bytes up to a multiple of 4.
func pad(b []byte, n int) []byte { return append(b, make([]byte, -n&3)...) }

// stamp appends a time: the upper and the lower half.
func stamp(b []byte, t time.Time) []byte {
	n := uint64(t.UnixNano())
	b = binary.LittleEndian.AppendUint32(b, uint32(n>>32))
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}
