package wireshark

import (
	"cmp"
	"encoding/binary"
	"time"
)

// Opcodes of the base transport header for the reliable connected service, and for the
// unreliable one with uc (InfiniBand specification, volume 1, §9.2.1).
const (
	sendFirst    = 0
	sendOnly     = 4
	writeFirst   = 6
	writeLast    = 8
	writeOnly    = 10
	writeOnlyImm = 11

	uc = 1 << 5
)

// roce is a packet of RoCE v2.
type roce struct {
	opcode  byte
	qpn     uint32 // of the destination; 0, which is the number for management, stands for 17
	psn     uint32
	imm     uint32
	address uint64 // of the write
	total   int    // length of the write, if longer than the payload
	payload []byte
}

// bytes returns the packet, from the Ethernet header on. The checksums are 0, but for that of IP.
func (p roce) bytes() []byte {
	pad := -len(p.payload) & 3
	bth := make([]byte, 12)
	bth[0] = p.opcode
	bth[1] = byte(pad << 4)
	binary.BigEndian.PutUint16(bth[2:], 0xffff)
	binary.BigEndian.PutUint32(bth[4:], cmp.Or(p.qpn, 17))
	binary.BigEndian.PutUint32(bth[8:], p.psn&0xffffff)
	if p.opcode == writeFirst || p.opcode == writeOnly || p.opcode == writeOnlyImm {
		reth := binary.BigEndian.AppendUint64(bth, cmp.Or(p.address, 0x7f0000001000))
		reth = binary.BigEndian.AppendUint32(reth, 0x1234)
		bth = binary.BigEndian.AppendUint32(reth, uint32(max(p.total, len(p.payload))))
	}
	if p.opcode == writeLast+1 || p.opcode == writeOnlyImm {
		bth = binary.BigEndian.AppendUint32(bth, p.imm)
	}
	b := append(bth, p.payload...)
	b = append(b, make([]byte, pad+4)...) // and the invariant CRC

	udp := binary.BigEndian.AppendUint16(nil, 0xc000)
	udp = binary.BigEndian.AppendUint16(udp, 4791)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(b)))
	udp = append(udp, 0, 0)

	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 199, 0, 2, 10, 199, 0, 1}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(b)))
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))

	eth := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}, 8, 0)
	return append(append(append(eth, ip...), udp...), b...)
}

// split returns the packets of a message. p has the opcode of the first of several; a write has
// immediate data if they are not 0.
func split(p roce, mtu int) []roce {
	var packets []roce
	p.total = len(p.payload)
	for rest := p.payload; len(rest) > 0; p.psn++ {
		p.payload = rest[:min(mtu, len(rest))]
		rest = rest[len(p.payload):]
		if len(rest) == 0 {
			if p.opcode++; len(packets) == 0 {
				p.opcode += 3 // from first to only
			} // or from middle to last
			if p.imm != 0 {
				p.opcode++
			}
		}
		packets = append(packets, p)
		if len(packets) == 1 {
			p.opcode++ // from first to middle
		}
	}
	return packets
}

// segments returns the packets of a message that does not fit into one.
func segments(p roce, mtu int) [][]byte {
	var packets [][]byte
	for _, p := range split(p, mtu) {
		packets = append(packets, p.bytes())
	}
	return packets
}

// pcap returns a capture file (LINKTYPE_ETHERNET) of the packets.
func pcap(packets [][]byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	b = binary.LittleEndian.AppendUint16(b, 2)
	b = binary.LittleEndian.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint32(b, 1<<18)
	b = binary.LittleEndian.AppendUint32(b, 1)
	at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, p := range packets {
		b = binary.LittleEndian.AppendUint32(b, uint32(at.Unix()))
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}
