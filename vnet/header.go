package vnet

import "encoding/binary"

// Sizes in bytes.
const (
	HdrLen    = 10              // struct virtio_net_hdr, without num_buffers
	EthLen    = 14              // Ethernet header without tags
	TagLen    = 4               // one VLAN tag
	MinWire   = 60              // the shortest Ethernet frame without its FCS (ETH_ZLEN): shorter ones are padded
	MinFrame  = HdrLen + EthLen // the shortest [header | frame] that means anything
	MaxPacket = 65535           // the longest packet in a frame: IPv4's limit
	MaxFrame  = HdrLen + EthLen + TagLen + MaxPacket
	Headroom  = TagLen // bytes that InsertVLAN needs before the frame
	maxTags   = 2      // 802.1ad outer and 802.1Q inner
)

// GSOMaxSize is the gso_max_size (and gro_max_size), in bytes, of a netdevice. With it the
// length of a super-frame with virtio_net_hdr, Ethernet header, two VLAN tags and the 16 bytes of
// encryption fits into 16 bits, as required for the immediate data of an RDMA write.
const GSOMaxSize = 1<<16 - 1 - HdrLen - EthLen - maxTags*TagLen - 16

// Flags of a header.
const (
	FlagNeedsCsum = 1 // the checksum at CsumStart+CsumOffset holds only the pseudo-header's sum
	FlagDataValid = 2 // the sender has verified the checksum
)

// GSO types of a header. GSOECN qualifies the TCP types.
const (
	GSONone  = 0
	GSOTCPv4 = 1
	GSOTCPv6 = 4
	GSOUDPL4 = 5
	GSOECN   = 0x80
)

// Header is a decoded virtio_net_hdr. Offsets count from the first byte of the
// Ethernet frame.
type Header struct {
	Flags      uint8
	GSOType    uint8
	HdrLen     uint16 // bytes of all protocol headers: a hint that must not be trusted; 0 is allowed
	GSOSize    uint16 // bytes of payload in each segment
	CsumStart  uint16 // where checksumming begins
	CsumOffset uint16 // where, from CsumStart, the sum is to be stored
}

// Decode reads the header at the front of frame, which must have HdrLen bytes.
func (h *Header) Decode(frame []byte) {
	_ = frame[HdrLen-1]
	h.Flags = frame[0]
	h.GSOType = frame[1]
	h.HdrLen = binary.LittleEndian.Uint16(frame[2:])
	h.GSOSize = binary.LittleEndian.Uint16(frame[4:])
	h.CsumStart = binary.LittleEndian.Uint16(frame[6:])
	h.CsumOffset = binary.LittleEndian.Uint16(frame[8:])
}

// Encode writes h to the front of frame, which must have HdrLen bytes.
func (h *Header) Encode(frame []byte) {
	_ = frame[HdrLen-1]
	frame[0] = h.Flags
	frame[1] = h.GSOType
	binary.LittleEndian.PutUint16(frame[2:], h.HdrLen)
	binary.LittleEndian.PutUint16(frame[4:], h.GSOSize)
	binary.LittleEndian.PutUint16(frame[6:], h.CsumStart)
	binary.LittleEndian.PutUint16(frame[8:], h.CsumOffset)
}

// IsPlain reports whether frame, of at least HdrLen bytes, requests no offload from the device
// that sends it: neither a checksum nor segmentation.
func IsPlain(frame []byte) bool {
	return frame[0]&FlagNeedsCsum == 0 && frame[1] == GSONone
}
