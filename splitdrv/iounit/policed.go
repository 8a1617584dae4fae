package iounit

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// policed is a queue of a host's LAN interface where only those frames pass
// that the rules let. What they do not let is as good as written, or never
// came, and is counted.
type policed struct {
	queue lan.Queue
	rules *atomic.Pointer[rules]
	taken *atomic.Pointer[addresses]

	head [headSize]byte // the writer's own
	sent struct {
		frames, bytes, source, vlan atomic.Uint64
	}
	filtered atomic.Uint64
}

// headSize is how much of a frame from the host is copied before it is judged:
// all that anybody decides by. The host may still be able to write to the
// element that the frame is in.
const headSize = 192

// skips bounds the frames that one ReadFrame passes over, so that a run of them
// does not keep the caller from seeing that the session has ended.
const skips = 64

var (
	_ messaging.Port      = (*policed)(nil)
	_ messaging.WriteFDer = (*policed)(nil)
)

// errAgain is unix.EAGAIN as an error, made once: a conversion for each call
// would allocate.
var errAgain error = unix.EAGAIN

// FD implements messaging.Port.
func (p *policed) FD() int { return p.queue.FD() }

// WriteFD implements messaging.WriteFDer.
func (p *policed) WriteFD() int { return p.queue.WriteFD() }

// ReadFrame implements messaging.Port.
//
// borrowed: slot, for the call.
func (p *policed) ReadFrame(slot []byte) ([]byte, error) {
	for range skips {
		frame, err := p.queue.ReadFrame(slot)
		if err != nil || p.rules.Load().fromLAN(frame) == pass {
			return frame, err
		}
		p.filtered.Add(1)
	}
	return nil, errAgain
}

// WriteFrame implements messaging.Port.
//
// borrowed: frame, for the call.
func (p *policed) WriteFrame(frame []byte) error {
	if len(frame) < vnet.MinFrame {
		return unix.EINVAL
	}
	head := p.head[:copy(p.head[:], frame)]
	switch p.rules.Load().toLAN(head, p.taken.Load()) {
	case source:
		p.sent.source.Add(1)
		return nil
	case vlan:
		p.sent.vlan.Add(1)
		return nil
	default:
	}
	err := p.queue.WriteParts(head, frame[len(head):])
	if err == nil {
		p.sent.frames.Add(1)
		p.sent.bytes.Add(uint64(len(frame) - vnet.HdrLen))
	}
	return err
}

// count adds the queue's counters to s.
func (p *policed) count(s *protocol.Statistics) {
	s.TxFrames += p.sent.frames.Load()
	s.TxBytes += p.sent.bytes.Load()
	s.TxSource += p.sent.source.Load()
	s.TxVLAN += p.sent.vlan.Load()
	s.RxFiltered += p.filtered.Load()
}
