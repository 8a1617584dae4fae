package paths

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/splitnic/splitnic/vnet"
)

// flowQueues remember which queue of the netdevice the frames of a flow come from. The
// frames of the other direction are put into the same one, whichever path they come
// by: the kernel moves a flow to the queue that it last had a frame of in
// (tun_flow_update), and frames of one that moves could overtake each other.
type flowQueues [256]atomic.Uint32 // queue + 1, or 0

// learn enters that a frame to the peer came from a queue.
func (f *flowQueues) learn(frame []byte, queue int) {
	if at := &f[flowOf(frame)]; at.Load() != uint32(queue)+1 {
		at.Store(uint32(queue) + 1)
	}
}

// queue is where to put a frame from the peer, of so many queues.
func (f *flowQueues) queue(head []byte, used int) int {
	flow := flowOf(head)
	if known := int(f[flow].Load()); known > 0 && known <= used {
		return known - 1
	}
	return int(flow) % used
}

// flowOf is a hash of a frame's flow, the same for both directions.
func flowOf(frame []byte) uint8 {
	at := typeAt + 2
	proto := binary.BigEndian.Uint16(frame[typeAt:])
	if (proto == 0x8100 || proto == 0x88a8) && len(frame) >= vnet.MinFrame+vnet.TagLen {
		proto = binary.BigEndian.Uint16(frame[at+2:])
		at += vnet.TagLen
	}
	var sum uint32
	ip := frame[at:]
	switch {
	case proto == 0x0800 && len(ip) >= 20:
		sum = binary.BigEndian.Uint32(ip[12:]) ^ binary.BigEndian.Uint32(ip[16:])
		if whole := binary.BigEndian.Uint16(ip[6:])&0x3fff == 0; whole && hasPorts(ip[9]) {
			sum ^= ports(ip[min(int(ip[0]&15)*4, len(ip)):])
		}
	case proto == 0x86dd && len(ip) >= 40:
		for i := 8; i < 40; i += 4 {
			sum ^= binary.BigEndian.Uint32(ip[i:])
		}
		if hasPorts(ip[6]) {
			sum ^= ports(ip[40:])
		}
	}
	return uint8((sum ^ sum>>16) * 0x9e37 >> 8)
}

// hasPorts reports whether a transport protocol is TCP or UDP.
func hasPorts(proto byte) bool { return proto == 6 || proto == 17 }

// ports are both ports, in either order.
func ports(transport []byte) uint32 {
	if len(transport) < 4 {
		return 0
	}
	return uint32(binary.BigEndian.Uint16(transport) ^ binary.BigEndian.Uint16(transport[2:]))
}
