// Package pcapng encodes captures of Ethernet frames for Wireshark, tshark and tcpdump
// (draft-ietf-opsawg-pcapng). A capture is a section with interfaces, packets and statistics,
// in that order for each interface. Each function appends one block. Comments have the names of
// options in that document.
package pcapng

import (
	"encoding/binary"
	"runtime"
	"time"
)

const (
	optComment  = 1
	longestText = 0xffff // bytes of an option
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

// Packet is an Ethernet frame, or the first bytes of one. Interfaces are numbered in order, from 0.
type Packet struct {
	Interface     int
	Time          time.Time
	Length        int // of the frame in bytes, at least len(Data)
	Data, Comment []byte
	Flags         Flags
}

// Statistics has the counters of an interface.
type Statistics struct {
	Interface         int
	Start, End        time.Time
	Received, Dropped uint64 // packets; Received includes those that were dropped because buffers were full
}

// AppendSection begins the section of a program on this machine.
func AppendSection(b []byte, program, comment string) []byte {
	b, from := begin(b, 0x0a0d0d0a)
	b = binary.LittleEndian.AppendUint32(b, 0x1a2b3c4d) // the order of bytes
	b = binary.LittleEndian.AppendUint16(b, 1)          // version 1.0
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint64(b, ^uint64(0)) // the length is not known
	b = option(b, optComment, comment)
	b = option(b, 2, runtime.GOARCH) // shb_hardware
	b = option(b, 3, runtime.GOOS)   // shb_os
	b = option(b, 4, program)        // shb_userappl
	return end(b, from)
}

// AppendInterface appends an interface. filter is the expression that selects its packets.
func AppendInterface(b []byte, name, description, filter string, snapLength int) []byte {
	b, from := begin(b, 1)
	b = binary.LittleEndian.AppendUint16(b, 1) // Ethernet
	b = binary.LittleEndian.AppendUint16(b, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(snapLength))
	b = option(b, 2, name)        // if_name
	b = option(b, 3, description) // if_description
	if filter != "" {
		b = option(b, 11, "\x00"+filter) // if_filter; 0: an expression in text
	}
	b = option(b, 9, "\x09") // if_tsresol: nanoseconds
	return end(b, from)
}

// Size returns the number of bytes that AppendPacket appends.
func (p *Packet) Size() int {
	const empty = 32 + 8 + 4 // a block without options, the flags, and the end of the options
	size := empty + len(p.Data) + -len(p.Data)&3
	if n := min(len(p.Comment), longestText); n > 0 {
		size += 4 + n + -n&3
	}
	return size
}

// AppendPacket appends a packet.
func AppendPacket(b []byte, p *Packet) []byte {
	b, from := begin(b, 6)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Interface))
	b = stamp(b, p.Time)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Data)))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Length))
	b = pad(append(b, p.Data...), len(p.Data))
	b = option(b, optComment, p.Comment)
	b = binary.LittleEndian.AppendUint32(head(b, 2, 4), uint32(p.Flags)) // epb_flags
	return end(b, from)
}

// AppendStatistics appends the counters of an interface.
func AppendStatistics(b []byte, s *Statistics) []byte {
	b, from := begin(b, 5)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Interface))
	b = stamp(b, s.End)
	b = stamp(head(b, 2, 8), s.Start)                               // isb_starttime
	b = stamp(head(b, 3, 8), s.End)                                 // isb_endtime
	b = binary.LittleEndian.AppendUint64(head(b, 4, 8), s.Received) // isb_ifrecv
	b = binary.LittleEndian.AppendUint64(head(b, 5, 8), s.Dropped)  // isb_ifdrop
	return end(b, from)
}

// begin appends the head of a block. end fills in the length.
func begin(b []byte, kind uint32) (block []byte, from int) {
	from = len(b)
	b = binary.LittleEndian.AppendUint32(b, kind)
	return binary.LittleEndian.AppendUint32(b, 0), from
}

func end(b []byte, from int) []byte {
	b = head(b, 0, 0) // opt_endofopt
	length := uint32(len(b) + 4 - from)
	binary.LittleEndian.PutUint32(b[from+4:], length)
	return binary.LittleEndian.AppendUint32(b, length)
}

// head appends the head of an option of n bytes.
func head(b []byte, code uint16, n int) []byte {
	b = binary.LittleEndian.AppendUint16(b, code)
	return binary.LittleEndian.AppendUint16(b, uint16(n))
}

// option appends an option, unless it is empty.
func option[T string | []byte](b []byte, code uint16, value T) []byte {
	n := min(len(value), longestText)
	if n == 0 {
		return b
	}
	return pad(append(head(b, code, n), value[:n]...), n)
}

// pad appends zeros after n bytes up to a multiple of 4.
func pad(b []byte, n int) []byte {
	var zeros [3]byte
	return append(b, zeros[:-n&3]...)
}

// stamp appends a time: the upper and the lower half.
func stamp(b []byte, t time.Time) []byte {
	n := uint64(t.UnixNano())
	b = binary.LittleEndian.AppendUint32(b, uint32(n>>32))
	return binary.LittleEndian.AppendUint32(b, uint32(n))
}
