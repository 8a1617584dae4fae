package bench

import (
	"encoding/json"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Other frames that a port has to send: bits of flood.todo.
const (
	todoEnd    = 1 << iota // the last message again, because it may have been lost
	todoReport             // the report of the receiver
)

// flood is the port of one queue for throughput. It always has a frame until the measurement ends,
// and counts frames.
type flood struct {
	*gate
	tx   *sending   // nil: this end does not send
	rx   *receiving // nil: this end does not receive
	todo atomic.Uint32

	// Used by the reader.
	warm  uint64        // messages to send before the timed ones
	begun bool          // the first timed message is sent
	left  int64         // claimed messages that are not sent yet
	sent  atomic.Uint64 // timed ones; others read it
	ended atomic.Bool   // the last one is sent

	// Used by the writer.
	running bool          // the first timed message of this queue has arrived
	last    bool          // the last message has arrived
	got     atomic.Uint64 // timed ones; others read it
}

func newFlood(s *Spec, g *gate, tx *sending, rx *receiving) *flood {
	p := &flood{gate: g, tx: tx, rx: rx, warm: s.WarmUp / uint64(s.Queues)}
	if rx != nil {
		rx.queues = append(rx.queues, &p.got)
	}
	return p
}

// again sends the last message again if there is no report.
func (p *flood) again() {
	if p.ended.Load() && !isDone(p.tx.reported) {
		p.ask(todoEnd)
	}
}

func (p *flood) count() uint64 {
	if p.rx != nil {
		return p.got.Load()
	}
	return p.sent.Load()
}

// ReadFrame reads a frame, if there is one.
func (p *flood) ReadFrame(slot []byte) ([]byte, error) {
	k := p.next()
	if k == kindNone {
		return nil, errAgain
	}
	if k == kindReport {
		return p.writeReport(slot), nil
	}
	stamp(slot, k, 0)
	return slot[:p.size], nil
}

// ReadFrames implements messaging.Port.
func (p *flood) ReadFrames(ops []vnet.ReadOp) int { return readEach(ops, p.ReadFrame) }

// sends reports whether the port has messages to send.
func (p *flood) sends() bool { return p.tx != nil && p.free.Load() && !p.ended.Load() }

// next returns the kind of the next frame.
func (p *flood) next() kind {
	if !p.sends() {
		if k := p.other(); k != kindNone {
			return k
		}
		p.lower()
		// Frames that were requested meanwhile raised the gate before it was lowered.
		if k := p.other(); k != kindNone || !p.sends() {
			return k
		}
	}
	switch {
	case p.warm > 0:
		p.warm--
		return kindWarm
	case !p.begun:
		p.begun = true
		p.tx.open()
		return kindTimed // starts the time, and is not counted
	}
	if p.left == 0 {
		p.left = p.tx.claim()
	}
	p.sent.Store(p.sent.Load() + 1)
	if p.left > 0 {
		p.left--
		return kindTimed
	}
	p.ended.Store(true)
	return kindEnd
}

// other returns the kind of the next frame that is no timed message.
func (p *flood) other() kind {
	switch todo := p.todo.Load(); {
	case todo&todoReport != 0:
		p.todo.And(^uint32(todoReport))
		return kindReport
	case todo&todoEnd != 0:
		p.todo.And(^uint32(todoEnd))
		return kindEnd
	}
	return kindNone
}

// ask has the port send a frame that is no timed message.
func (p *flood) ask(what uint32) {
	p.todo.Or(what)
	p.raise()
}

// writeReport writes the frame with the report, which must exist.
func (p *flood) writeReport(slot []byte) []byte {
	stamp(slot, kindReport, 0)
	text, _ := json.Marshal(p.rx.report) // cannot fail
	return append(slot[:vnet.MinFrame], text...)
}

// WriteFrames implements messaging.Port.
func (p *flood) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = p.write(ops[i].Head, ops[i].Rest)
	}
	return len(ops)
}

// write processes a frame, which may be in two parts.
func (p *flood) write(head, rest []byte) error {
	if len(head) < vnet.MinFrame {
		return unix.EINVAL
	}
	k := kindOf(head)
	switch {
	case k == kindTimed && p.running && p.rx != nil && len(head)+len(rest) == p.size:
		p.got.Store(p.got.Load() + 1)
		return nil
	case k == kindWarm && p.rx != nil:
		return nil
	}
	return p.writeOther(k, head, rest)
}

// writeOther is write for rare frames.
func (p *flood) writeOther(k kind, head, rest []byte) error {
	switch {
	case k == kindReport && p.tx != nil && len(head)+len(rest) <= vnet.MinFrame+maxReport:
		r, err := parseReport(append(append([]byte(nil), head[vnet.MinFrame:]...), rest...))
		if err != nil {
			return err
		}
		p.tx.settle(r)
		return nil
	case p.rx == nil || len(head)+len(rest) != p.size:
	case k == kindTimed:
		p.rx.open()
		p.running = true
		return nil
	case k == kindEnd:
		p.end()
		return nil
	}
	return unix.EINVAL
}

// end processes the last frame of the queue. The frame is repeated if it, or its answer, seems lost.
func (p *flood) end() {
	if p.last {
		if isDone(p.rx.done) {
			p.ask(todoReport)
		}
		return
	}
	if !p.running { // all other frames were lost
		p.rx.open()
		p.running = true
	}
	p.last = true
	p.got.Store(p.got.Load() + 1)
	if p.rx.end() {
		p.ask(todoReport)
	}
}
