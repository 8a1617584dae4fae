package bench

import (
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// single is a port that sends one frame at a time, when the frame is due.
type single struct {
	*gate
	kind kind
	due  atomic.Uint64 // the frame's number plus one, or 0
}

// waits reports whether there is a frame to send.
func (p *single) waits() bool { return p.due.Load() != 0 && p.free.Load() }

// send makes a frame due.
func (p *single) send(number uint32) {
	p.due.Store(uint64(number) + 1)
	p.raise()
}

// ReadFrame reads the frame that is due, if there is one.
func (p *single) ReadFrame(slot []byte) ([]byte, error) {
	if !p.waits() {
		// A frame that becomes due meanwhile must not be lost.
		p.lower()
		if !p.waits() {
			return nil, errAgain
		}
	}
	stamp(slot, p.kind, uint32(p.due.Swap(0)-1))
	return slot[:p.size], nil
}

// ReadFrames implements messaging.Port.
func (p *single) ReadFrames(ops []vnet.ReadOp) int { return readEach(ops, p.ReadFrame) }

// ponger is the port of a target for latency. It echoes each frame.
type ponger struct {
	single
	echoed atomic.Uint64
}

func newPonger(g *gate) *ponger { return &ponger{single: single{gate: g, kind: kindPong}} }

func (p *ponger) again() {} // the initiator repeats what seems lost

func (p *ponger) count() uint64 { return p.echoed.Load() }

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
func (p *ponger) WriteFrames(ops []vnet.WriteOp) int { return writeEach(ops, p.WriteFrame) }

// maxRound is the longest round trip that is recorded with its time.
const maxRound = time.Minute

// pinger is the port of an initiator for latency.
type pinger struct {
	single
	spec *Spec
	warm uint64 // remaining rounds before the timed ones

	number   atomic.Uint32 // of the round; others read it
	repeated atomic.Bool   // its frame was sent more than once
	seen     uint64        // the number at the last call of again, plus one

	// Used by the writer until done is closed.
	start  time.Time // origin of the times
	last   int64     // beginning of the round, in nanoseconds since start
	begin  int64     // beginning of the first timed round
	end    int64
	lost   uint64
	rounds uint64 // timed ones
	timed  bool
	over   bool
	times  *hdrhistogram.Histogram // whole round trips, in nanoseconds
	before usage
	after  usage
	done   chan struct{}
}

func newPinger(s *Spec, g *gate) *pinger {
	p := &pinger{
		single: single{gate: g, kind: kindPing},
		spec:   s,
		warm:   max(s.WarmUp, 1), // at least one, because the first round has none before it
		start:  time.Now(),
		times:  hdrhistogram.New(1, maxRound.Nanoseconds(), 3),
		done:   make(chan struct{}),
	}
	p.send(0)
	return p
}

// again sends the frame of a round again, if the round has not ended since the last call.
func (p *pinger) again() {
	number := p.number.Load()
	if uint64(number)+1 == p.seen {
		p.nudge(number)
	}
	p.seen = uint64(number) + 1
}

func (p *pinger) count() uint64 {
	done := uint64(p.number.Load())
	return done - min(done, max(p.spec.WarmUp, 1))
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
	again := p.repeated.Load()
	if again {
		p.repeated.Store(false)
	}
	if p.timed {
		p.rounds++
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
	if p.spec.Duration > 0 {
		return now-p.begin >= int64(p.spec.Duration)
	}
	return p.rounds == p.spec.Iterations
}

// WriteFrames implements messaging.Port.
func (p *pinger) WriteFrames(ops []vnet.WriteOp) int { return writeEach(ops, p.WriteFrame) }

// nudge sends the frame of a round again, because it seems lost.
func (p *pinger) nudge(number uint32) {
	p.repeated.Store(true)
	p.send(number)
}

// writeEach writes frames that are in one part. Frames for latency are not in packs.
func writeEach(ops []vnet.WriteOp, write func(frame []byte) error) int {
	for i := range ops {
		frame := ops[i].Head
		if len(ops[i].Rest) > 0 {
			frame = append(frame[:len(frame):len(frame)], ops[i].Rest...)
		}
		ops[i].Err = write(frame)
	}
	return len(ops)
}
