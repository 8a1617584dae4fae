package paths

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/vnet"
)

// flowQueues remember which queue of the netdevice each flow of frames is in, once there
// was a peer. The kernel moves the frames that it sends to the queue that it last had one
// of the same flow in (tun_flow_update), and frames of a flow that moves overtake each
// other. So received frames are put into one queue, whichever path they come by: that of
// the first frame of the flow, in either direction.
type flowQueues struct {
	at    [4096]atomic.Uint64 // entries
	began time.Time
	used  atomic.Bool // there was a peer
}

// entry is a flow's queue, or 0: 32 bits for the second in which it became known or a frame
// was last put into it, 24 that tell flows apart, and 8 for its number plus 1.
type entry uint64

func newEntry(second uint32, flow flow, queue int) entry {
	return entry(second)<<32 | entry(flow.tag())<<8 | entry(queue+1)
}

func (e entry) is(f flow) bool { return e&0xff != 0 && uint32(e)>>8 == f.tag() }
func (e entry) queue() int     { return int(e&0xff) - 1 }
func (e entry) second() uint32 { return uint32(e >> 32) }

// old reports whether the kernel may have forgotten the flow meanwhile, which it does after
// so many seconds (TUN_FLOW_EXPIRE). It chooses a queue itself then.
func (e entry) old(now uint32) bool {
	const seconds = 3
	return e == 0 || now-e.second() > seconds
}

// now is the second that it is.
func (f *flowQueues) now() uint32 { return uint32(time.Since(f.began) / time.Second) }

// learn enters that a frame of the netdevice's was in a queue. One that was there before
// the flow moved to where received frames are put does not move it back. One to a peer is
// entered in place of another flow's.
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

// place is where a received frame goes, of so many queues: into that of its flow or, if
// that is not known, into the queue otherwise. One from a peer is entered in place of
// another flow's.
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

// flow is a hash of what tells one flow from others, the same for both directions.
type flow uint64

func (f flow) index() int      { return int(f >> 52) }
func (f flow) tag() uint32     { return uint32(f) & 0xffffff }
func (f flow) among(n int) int { return int(f>>32&0xffff) % n }

// flowOf is the flow of a frame.
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

// ports are both ports, in either order.
func ports(transport []byte) uint32 {
	if len(transport) < 4 {
		return 0
	}
	return uint32(binary.BigEndian.Uint16(transport) ^ binary.BigEndian.Uint16(transport[2:]))
}
