package bench

import (
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// single is the part of a port that sends one frame at a time, when the frame is due.
type single struct {
	gate gate
	kind kind
	size int
	free atomic.Bool   // released
	due  atomic.Uint64 // the frame's number plus one, or 0
}

// release permits the port to send.
func (p *single) release() {
	p.free.Store(true)
	p.gate.raise()
}

// waits reports whether there is a frame to send.
func (p *single) waits() bool { return p.due.Load() != 0 && p.free.Load() }

// send makes a frame due.
func (p *single) send(number uint32) {
	p.due.Store(uint64(number) + 1)
	p.gate.raise()
}

// FD implements messaging.Port.
func (p *single) FD() int { return p.gate.FD() }

// ReadFrame reads the frame that is due, if there is one.
func (p *single) ReadFrame(slot []byte) ([]byte, error) {
	if !p.waits() {
		// A frame that becomes due meanwhile must not be lost.
		p.gate.lower()
		if !p.waits() {
			return nil, errAgain
		}
	}
	stamp(slot, p.kind, uint32(p.due.Swap(0)-1))
	return slot[:p.size], nil
}

// ReadFrames implements messaging.Port.
func (p *single) ReadFrames(ops []vnet.ReadOp) int { return readEach(p, ops) }

func (p *single) close() { _ = p.gate.Close() }

// ponger is the port of a target for latency. It echoes each frame.
type ponger struct {
	single
	echoed atomic.Uint64
}

var _ messaging.Port = (*ponger)(nil)

func newPonger(s *Spec) (*ponger, error) {
	g, err := newGate(s.Poll)
	if err != nil {
		return nil, err
	}
	return &ponger{single: single{gate: g, kind: kindPong, size: s.Size}}, nil
}

// WriteFrame receives a frame and echoes it.
func (p *ponger) WriteFrame(frame []byte) error {
	if len(frame) != p.size || kindOf(frame) != kindPing {
		return unix.EINVAL
	}
	p.echoed.Store(p.echoed.Load() + 1)
	p.send(numberOf(frame))
	return nil
}

// WriteFrames implements messaging.Port.
func (p *ponger) WriteFrames(ops []vnet.WriteOp) int { return writeEach(p, ops) }

// maxRound is the longest round trip that is recorded with its time.
const maxRound = time.Minute

// pinger is the port of an initiator for latency.
type pinger struct {
	single
	rounds   uint64        // number of rounds to time; 0: use duration
	duration time.Duration // to time
	warm     uint64        // remaining rounds before the timed ones

	number atomic.Uint32 // of the round; others read it
	again  atomic.Bool   // its frame was sent more than once

	// Used by the writer until done is closed.
	start  time.Time // origin of the times
	last   int64     // beginning of the round, in nanoseconds since start
	begin  int64     // beginning of the first timed round
	end    int64
	lost   uint64
	count  uint64
	timed  bool
	over   bool
	times  *hdrhistogram.Histogram // whole round trips, in nanoseconds
	before usage
	after  usage
	done   chan struct{}
}

var _ messaging.Port = (*pinger)(nil)

func newPinger(s *Spec) (*pinger, error) {
	g, err := newGate(s.Poll)
	if err != nil {
		return nil, err
	}
	p := &pinger{
		single: single{gate: g, kind: kindPing, size: s.Size},
		rounds: s.Iterations, duration: s.Duration,
		warm:  max(s.WarmUp, 1), // at least one, because the first round has none before it
		start: time.Now(),
		times: hdrhistogram.New(1, maxRound.Nanoseconds(), 3),
		done:  make(chan struct{}),
	}
	p.send(0)
	return p, nil
}

// WriteFrame receives an echo. It ends a round and begins the next one.
func (p *pinger) WriteFrame(frame []byte) error {
	if len(frame) != p.size || kindOf(frame) != kindPong {
		return unix.EINVAL
	}
	number := p.number.Load()
	if p.over || numberOf(frame) != number {
		return nil // an echo of a frame that was sent again
	}
	now := int64(time.Since(p.start))
	again := p.again.Load()
	if again {
		p.again.Store(false)
	}
	if p.timed {
		p.count++
		if again {
			p.lost++
		} else if p.times.RecordValue(min(now-p.last, maxRound.Nanoseconds())) != nil {
			p.lost++
		}
		if p.enough(now) {
			p.end = now
			p.after = use()
			p.over = true
			close(p.done)
			return nil
		}
	} else if p.warm--; p.warm == 0 {
		p.timed = true
		p.before = use()
		now = int64(time.Since(p.start))
		p.begin = now
	}
	p.last = now
	p.number.Store(number + 1)
	p.send(number + 1)
	return nil
}

func (p *pinger) enough(now int64) bool {
	if p.duration > 0 {
		return now-p.begin >= int64(p.duration)
	}
	return p.count == p.rounds
}

// WriteFrames implements messaging.Port.
func (p *pinger) WriteFrames(ops []vnet.WriteOp) int { return writeEach(p, ops) }

// nudge sends the frame of a round again, because it seems lost.
func (p *pinger) nudge(number uint32) {
	p.again.Store(true)
	p.send(number)
}

// reader is used by readEach, and writer by writeEach.
type (
	reader interface {
		ReadFrame(slot []byte) ([]byte, error)
	}
	writer interface{ WriteFrame(frame []byte) error }
)

// readEach reads frames until there are none.
func readEach(p reader, ops []vnet.ReadOp) int {
	for i := range ops {
		op := &ops[i]
		if op.Frame, op.Err = p.ReadFrame(op.Slot); op.Err != nil {
			return i + 1
		}
	}
	return len(ops)
}

// writeEach writes frames that are in one part. Frames for latency are not in packs.
func writeEach(p writer, ops []vnet.WriteOp) int {
	for i := range ops {
		if len(ops[i].Rest) == 0 {
			ops[i].Err = p.WriteFrame(ops[i].Head)
		} else {
			ops[i].Err = p.WriteFrame(append(ops[i].Head[:len(ops[i].Head):len(ops[i].Head)], ops[i].Rest...))
		}
	}
	return len(ops)
}
