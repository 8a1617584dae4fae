package guard

import (
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// policed is a queue of a host's LAN interface that passes only the frames that the rules
// permit. Other frames are dropped and counted. Frames beyond the host's rate wait where
// they are.
type policed struct {
	queue lan.Queue
	rules *atomic.Pointer[Rules]
	taken *atomic.Pointer[protocol.MACSet]

	urgent  bool // this is the latency queue
	number  int
	known   *Stations // nil if the LAN is no bridge
	markers *markers  // markers for the host; nil if it has one queue
	flows   Sampler

	// Used by the reader only.
	rxHeld bool // the last read was held back by the rate

	// Used by the writer only.
	txHeld   bool // the last write was held back by the rate
	heads    [burst][headSize]byte
	verdicts [burst]verdict
	passed   [burst]vnet.WriteOp
	charged  [burst]*bucket // of passed: the bucket for frames that the LAN copies; nil: none

	sent struct {
		frames, bytes atomic.Uint64
		dropped       [verdicts]atomic.Uint64
	}
	filtered atomic.Uint64
	oversize atomic.Uint64 // frames to the LAN: see isOversize
	refused  *Refusals     // reasons for dropped frames of the session
	drops    *capture.Path // capture path of the host's dropped frames
}

// headSize is the number of bytes at the beginning of a frame from the host that are copied
// before it is checked. All checks use the copy, because the host may still be able to write
// to the element of the frame. A super-frame whose headers are longer is dropped; there is
// room for 120 bytes of extension headers.
const headSize = 256

// burst is the number of frames that are checked before they are written in one call.
const burst = 64

// skips is the largest number of frames that one ReadFrames drops, so that a series of them
// does not delay the end of the session.
const skips = 64

var (
	_ messaging.Port         = (*policed)(nil)
	_ messaging.ReadablePort = (*policed)(nil)
	_ messaging.PacedPort    = (*policed)(nil)
)

func (p *policed) FD() int { return p.queue.FD() }

func (p *policed) WriteFD() int { return p.queue.WriteFD() }

func (p *policed) RoomIsReadable() bool {
	r, ok := p.queue.(messaging.ReadablePort)
	return ok && r.RoomIsReadable()
}

func (p *policed) ReadHold() time.Duration {
	if !p.rxHeld {
		return 0
	}
	return p.hold(p.rules.Load().rx)
}

func (p *policed) WriteHold() time.Duration {
	if !p.txHeld {
		return 0
	}
	return p.hold(p.rules.Load().tx)
}

// hold returns for how long a held worker waits.
func (p *policed) hold(b *bucket) time.Duration {
	if b == nil { // the limit was removed
		return minHold
	}
	return max(b.wait(p.urgent), minHold)
}

// borrowed: ops and their slots, for the call.
func (p *policed) ReadFrames(ops []vnet.ReadOp) int {
	if len(ops) == 0 {
		return 0
	}
	rate := p.rules.Load().rx
	p.rxHeld = false
	if rate != nil {
		room := rate.room(p.urgent)
		if p.rxHeld = room == 0; p.rxHeld {
			ops[0].Frame, ops[0].Err = nil, unix.EAGAIN
			return 1
		}
		ops = ops[:min(room, len(ops))]
	}
	for skipped := 0; skipped < skips; {
		if n := p.markers.emit(p.number, ops); n > 0 {
			return n
		}
		waiting := p.markers.before(p.number)
		n := p.queue.ReadFrames(ops)
		if waiting > 0 {
			dry := errors.Is(ops[n-1].Err, unix.EAGAIN)
			if p.markers.passed(p.number, waiting, n, dry); dry {
				n-- // the markers follow
			}
		}
		rules, kept, tick := p.rules.Load(), 0, p.known.tick()
		for i := range ops[:n] {
			if ops[i].Err == nil {
				p.known.learn(ops[i].Frame, tick)
			}
			if ops[i].Err == nil && rules.fromLAN(ops[i].Frame) != pass {
				continue
			}
			if ops[i].Err == nil && protocol.IsMarker(ops[i].Frame) {
				p.markers.saw(p.number, ops[i].Frame)
			}
			if kept != i {
				ops[kept].Move(&ops[i])
			}
			kept++
		}
		if kept < n {
			p.filtered.Add(uint64(n - kept))
		}
		if kept > 0 {
			if rate != nil {
				rate.took(frameCosts(ops[:kept]))
			}
			return kept
		}
		skipped += n
	}
	ops[0].Frame, ops[0].Err = nil, vnet.ErrFiltered
	return 1
}

// frameCosts returns the total cost of frames that were read.
func frameCosts(ops []vnet.ReadOp) (sum cost) {
	for i := range ops {
		if ops[i].Err == nil {
			sum = sum.plus(frameCost(ops[i].Frame, len(ops[i].Frame)))
		}
	}
	return sum
}

// WriteFrames implements messaging.Port. A Head that is followed by a Rest
// has at most headSize bytes.
//
// borrowed: ops and their frames, for the call.
func (p *policed) WriteFrames(ops []vnet.WriteOp) int {
	done := 0
	for done < len(ops) {
		some := ops[done:min(done+burst, len(ops))]
		n := p.writeBurst(some)
		done += n
		if n < len(some) {
			break
		}
	}
	return done
}

// writeBurst writes at most burst frames, like WriteFrames.
func (p *policed) writeBurst(ops []vnet.WriteOp) int {
	rules, taken, n, tick := p.rules.Load(), p.taken.Load(), 0, p.known.tick()
	for i := range ops {
		op := &ops[i]
		head, rest, ok := op.CopyHead(p.heads[n][:])
		if !ok {
			p.verdicts[i] = malformed
			continue
		}
		v := rules.toLAN(head, len(head)+len(rest), taken)
		switch {
		case v != pass:
			p.refused.note(v, head)
		case vnet.CheckHead(head, len(head)+len(rest), rules.MTU) != nil:
			// The channel has checked the frame in memory that the host can write to. Here
			// the copy is checked, which is passed to the card.
			v = malformed
		default:
			b := p.limitOf(rules, head, tick)
			if b != nil && !b.takeOne(frameCost(head, len(head)+len(rest)), p.urgent) {
				v = groupRate
				break
			}
			p.passed[n], p.charged[n] = vnet.WriteOp{Head: head, Rest: rest}, b
			n++
		}
		p.verdicts[i] = v
	}
	written, may := 0, n
	if rules.tx != nil {
		may = rules.tx.take(p.passed[:n], p.urgent)
	}
	if may > 0 {
		written = p.queue.WriteFrames(p.passed[:may])
		p.flows.sample(p.passed[:written])
		for i := range p.passed[:written] {
			p.known.learn(p.passed[i].Head, tick)
		}
	}
	if rules.tx != nil {
		rules.tx.giveBack(p.passed[written:may])
	}
	for i := written; i < n; i++ { // these will be judged again
		if p.charged[i] != nil {
			p.charged[i].giveBack(p.passed[i : i+1])
		}
	}
	p.txHeld = written == may && may < n
	// settle counts only frames that are done: the others are written again.
	done := p.settle(ops, written)
	clear(p.passed[:n])
	return done
}

// limitOf returns the bucket that a frame to the LAN, which has passed the rules, is charged to
// because the LAN copies it to all ports, or nil.
//
// Frames to groups and those to unknown stations have a bucket each, as in the storm control of
// switches: an application that sends too many broadcasts must not cut off a station that is silent.
func (p *policed) limitOf(r *Rules, head []byte, tick uint64) *bucket {
	switch {
	case head[dstAt]&1 != 0:
		return r.toGroups
	case r.toUnknown == nil || p.known == nil || p.known.knows(head, tick):
		return nil
	default:
		return r.toUnknown
	}
}

// settle sets the result of each of ops, and counts it. written is how many of the frames
// that passed were written. It returns how many of ops are done.
func (p *policed) settle(ops []vnet.WriteOp, written int) (done int) {
	var frames, bytes uint64
	next, card := 0, p.rules.Load().Card
	for ; done < len(ops); done++ {
		op := &ops[done]
		op.Err = nil
		if v := p.verdicts[done]; v != pass {
			if v == malformed {
				op.Err = unix.EINVAL
				continue
			}
			if v == groupRate { // noted here, because frames behind one that waits are checked again
				p.refused.note(v, nil)
			}
			p.sent.dropped[v].Add(1)
			if p.drops.Watched() {
				p.show(op, v)
			}
			continue
		}
		if next == written {
			op.Err = unix.EAGAIN // the queue is full, or the rate is exceeded
			break
		}
		if op.Err = p.passed[next].Err; op.Err == nil {
			frames++
			bytes += uint64(len(op.Head) + len(op.Rest) - vnet.HdrLen)
			if isOversize(&p.passed[next], card) {
				p.oversize.Add(1)
			}
		}
		next++
	}
	p.sent.frames.Add(frames)
	p.sent.bytes.Add(bytes)
	return done
}

// show passes a dropped frame to a capture, with the reason. The reason is derived from a
// copy of the head, because the host may be writing to the frame.
func (p *policed) show(op *vnet.WriteOp, v verdict) {
	var copied [headSize]byte
	if head, _, ok := op.CopyHead(copied[:]); ok {
		p.drops.Dropped(op.Head, func() string { return why(v, head) })
	}
}

// isOversize reports whether a frame for the LAN, or a segment of it, is longer than the
// card's MTU with one VLAN tag, because it has more tags. Cards and switches may pass or
// drop such frames, mostly without a report.
func isOversize(op *vnet.WriteOp, card int) bool {
	return vnet.Longest(op.Head, len(op.Head)+len(op.Rest)) > card+vnet.EthLen+vnet.TagLen
}

// count adds the queue's counters to s and d.
func (p *policed) count(s *protocol.Statistics, d *Dropped) {
	s.TxFrames += p.sent.frames.Load()
	s.TxBytes += p.sent.bytes.Load()
	s.TxSource += p.sent.dropped[source].Load()
	s.TxVLAN += p.sent.dropped[vlan].Load()
	s.RxFiltered += p.filtered.Load()
	d.NestedTags += p.sent.dropped[nested].Load()
	d.LinkControl += p.sent.dropped[linkControl].Load()
	d.IPSource += p.sent.dropped[ipSource].Load()
	d.TinySegments += p.sent.dropped[tiny].Load()
	d.GroupRate += p.sent.dropped[groupRate].Load()
}
