package paths

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// flowQueues remembers the queue of the netdevice for each flow, once there was a peer. The
// kernel sends the frames of a flow through the queue in which it last received a frame of
// the same flow (tun_flow_update). When that changes, frames of the flow can overtake each
// other. Therefore all received frames of a flow, on any path, are written to one queue: that
// of the first frame of the flow in either direction.
type flowQueues struct {
	at    [4096]atomic.Uint64 // entries
	began time.Time
	used  atomic.Bool // there was a peer
}

// entry is the queue of a flow, or 0. It has 32 bits for the second in which the flow became
// known or a frame was last written to the queue, 24 bits of the flow's hash, and 8 bits for
// the number of the queue plus 1.
type entry uint64

func newEntry(second uint32, flow flow, queue int) entry {
	return entry(second)<<32 | entry(flow.tag())<<8 | entry(queue+1)
}

func (e entry) is(f flow) bool { return e&0xff != 0 && uint32(e)>>8 == f.tag() }
func (e entry) queue() int     { return int(e&0xff) - 1 }
func (e entry) second() uint32 { return uint32(e >> 32) }

// old reports whether the kernel may have forgotten the flow, which it does after 3 seconds
// (TUN_FLOW_EXPIRE). Then it chooses a queue itself.
func (e entry) old(now uint32) bool {
	const seconds = 3
	return e == 0 || now-e.second() > seconds
}

func (f *flowQueues) now() uint32 { return uint32(time.Since(f.began) / time.Second) }

// learn records the queue from which a frame of the netdevice was read. It does not change
// the queue of a known flow: the frame may have been in its queue before the flow moved.
// peer says that the frame is for a peer; then it may replace the entry of another flow.
func (f *flowQueues) learn(frame []byte, queue int, peer bool) {
	if len(frame) < vnet.MinFrame {
		return
	}
	flow := flowOf(frame)
	at := &f.at[flow.index()]
	was := entry(at.Load())
	if was.is(flow) && was.queue() == queue {
		return
	}
	if now := f.now(); was.old(now) || peer && !was.is(flow) {
		at.CompareAndSwap(uint64(was), uint64(newEntry(now, flow, queue)))
	}
}

// place returns the queue, of used ones, for a received frame: that of its flow, or the
// queue otherwise if the flow is not known. peer says that the frame is from a peer; then it
// may replace the entry of another flow.
func (f *flowQueues) place(flow flow, now uint32, otherwise, used int, peer bool) int {
	at := &f.at[flow.index()]
	for {
		was := entry(at.Load())
		to, known := otherwise, was.is(flow) && was.queue() < used
		if known {
			to = was.queue()
		}
		if known && was.second() == now || !known && !peer && !was.old(now) {
			return to
		}
		if at.CompareAndSwap(uint64(was), uint64(newEntry(now, flow, to))) {
			return to
		}
	}
}

// flow is a hash that identifies a flow, the same for both directions.
type flow uint64

func (f flow) index() int      { return int(f >> 52) }
func (f flow) tag() uint32     { return uint32(f) & 0xffffff }
func (f flow) among(n int) int { return int(f>>32&0xffff) % n }

func flowOf(frame []byte) flow {
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
	h := (uint64(sum) + 1) * 0x9e3779b97f4a7c15
	return flow((h ^ h>>32) * 0x9e3779b97f4a7c15)
}

// hasPorts reports whether a transport protocol is TCP or UDP.
func hasPorts(proto byte) bool { return proto == 6 || proto == 17 }

// ports returns a combination of both ports that does not depend on their order.
func ports(transport []byte) uint32 {
	if len(transport) < 4 {
		return 0
	}
	return uint32(binary.BigEndian.Uint16(transport) ^ binary.BigEndian.Uint16(transport[2:]))
}

// Offsets in [virtio_net_hdr | Ethernet frame].
const (
	dstAt  = vnet.HdrLen
	srcAt  = dstAt + 6
	typeAt = srcAt + 6
)

// mayCarry reports whether a frame may use a direct path: it is untagged, or has a single
// tag of one of vlans, and is not a link-control frame. The I/O unit decides on all others.
func mayCarry(vlans *protocol.VLANSet, head []byte) bool {
	l := vnet.LayersOf(head)
	v, _ := l.VLAN()
	return l.Proto != 0 && l.Tags <= 1 && !l.LinkControl() && (v == 0 || vlans.Has(v))
}
