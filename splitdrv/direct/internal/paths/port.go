package paths

import (
	"net"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

var (
	_ messaging.SharedPort   = (*uplinkPort)(nil)
	_ messaging.ReadablePort = (*uplinkPort)(nil)
	_ messaging.ZeroCopyPort = (*zeroCopyPort)(nil)
	_ messaging.SharedPort   = (*zeroCopyPort)(nil)
	_ messaging.ReadablePort = (*zeroCopyPort)(nil)
	_ messaging.SharedPort   = (*directPort)(nil)
	_ messaging.ReadablePort = (*directPort)(nil)
)

// uplinkPort is the port of a queue of the netdevice for the path through the I/O unit.
type uplinkPort struct {
	input
	queue *queue
	all   []*queue       // all queues of the netdevice
	head  [headSize]byte // used by the writer only
}

func (u *uplinkPort) WriteFD() int { return u.queue.writeFD() }

func (u *uplinkPort) RoomIsReadable() bool { return u.queue.roomIsReadable() }

// WriteFrames implements messaging.Port. Markers are not written to the netdevice. They are
// recorded after the frames before them were written.
//
// borrowed: ops and their frames, for the call.
func (u *uplinkPort) WriteFrames(ops []vnet.WriteOp) int {
	done := 0
	for i := range ops {
		op := &ops[i]
		if !protocol.IsMarker(op.Head) {
			continue
		}
		if done += u.write(ops[done:i]); done < i {
			return done
		}
		op.Err = nil
		u.shared.arrived(op.Head, u.queue.number)
		done++
	}
	return done + u.write(ops[done:])
}

// write writes frames, consecutive ones of the same queue in one call, and returns how many
// are written. A frame goes to this queue unless its flow belongs to another one.
func (u *uplinkPort) write(ops []vnet.WriteOp) (done int) {
	s := u.shared
	used := int(s.used.Load())
	if used == 1 || !s.flows.used.Load() || s.ownRoom {
		return u.queue.write(ops)
	}
	t, now, to := s.table.Load(), s.flows.now(), u.queue.number
	for i := range ops {
		q := u.place(t, &ops[i], now, used)
		if q != to && i > done {
			n := u.all[to].write(ops[done:i])
			if done += n; done < i {
				return done
			}
		}
		to = q
	}
	return done + u.all[to].write(ops[done:])
}

// place returns the queue for a frame, of used ones.
func (u *uplinkPort) place(t *table, op *vnet.WriteOp, now uint32, used int) int {
	head := op.Head
	if len(head) < len(u.head) && len(op.Rest) > 0 {
		n := copy(u.head[:], head)
		head = u.head[:n+copy(u.head[n:], op.Rest)]
	}
	if len(head) < vnet.MinFrame {
		return u.queue.number
	}
	fromPeer := t != nil && t.to.Has(protocol.MAC(head[srcAt:typeAt]))
	return u.shared.flows.place(flowOf(head), now, u.queue.number, used, fromPeer)
}

// zeroCopyPort is an uplinkPort of a netdevice that lends frames. It lends them only to the
// path through the I/O unit, and only while there is no direct path.
type zeroCopyPort struct{ *uplinkPort }

func (p *zeroCopyPort) Memory() (*vnet.Memory, <-chan struct{}) { return p.queue.lends.Memory() }

func (p *zeroCopyPort) Registered(bytes int64) { p.queue.lends.Registered(bytes) }

func (p *zeroCopyPort) NotRegistered(why error) { p.queue.lends.NotRegistered(why) }

// borrowed: ops with their slots, and lent, for the call.
func (p *zeroCopyPort) ReadLent(ops []vnet.ReadOp, lent []vnet.Lent, keys *vnet.Keys) int {
	p.to = borrower{lent: lent, keys: keys}
	n := p.input.ReadFrames(ops)
	p.to = borrower{}
	return n
}

// borrowed: op with its slot, and lent, for the call.
func (p *zeroCopyPort) Fetch(op *vnet.ReadOp, lent *vnet.Lent) { p.queue.lends.Fetch(op, lent) }

func (p *zeroCopyPort) Return(loans []vnet.Loan) { p.queue.lends.Return(loans) }

func (p *zeroCopyPort) OnRecall(fn func()) { p.queue.lends.OnRecall(fn) }

// directPort is the port of the netdevice for a direct path.
type directPort struct {
	input
	path *route

	// Used by the writer only.
	heads    [burst][headSize]byte
	verdicts [burst]verdict
	passed   [burst]vnet.WriteOp
	goes     [burst]int // queue of each of passed
}

const (
	// headSize is the number of bytes at the beginning of a frame from a peer that are copied
	// before it is checked. All checks use the copy, because the peer may still be able to
	// write to the element of the frame.
	headSize = 256
	// burst is the number of frames that are checked before they are written in one call.
	burst = 64
)

// WriteFD implements messaging.WriteFDer. The queues of a TAP device are full at the same
// time, and rarely. Where each queue has room of its own (ownRoom), all frames are written
// to the first one.
func (d *directPort) WriteFD() int { return d.queues[0].writeFD() }

func (d *directPort) RoomIsReadable() bool { return d.queues[0].roomIsReadable() }

// borrowed: ops and their slots, for the call.
func (d *directPort) ReadFrames(ops []vnet.ReadOp) int {
	if len(ops) > 0 && d.path.gone.Load() {
		ops[0].Frame, ops[0].Err = nil, net.ErrClosed
		return 1
	}
	return d.input.ReadFrames(ops)
}

// borrowed: ops and their frames, for the call.
func (d *directPort) WriteFrames(ops []vnet.WriteOp) int {
	if d.path.gone.Load() {
		for i := range ops {
			ops[i].Err = net.ErrClosed
		}
		return len(ops)
	}
	for done := 0; done < len(ops); {
		some := ops[done:min(done+burst, len(ops))]
		n := d.writeBurst(some)
		if done += n; n < len(some) {
			return done
		}
	}
	return len(ops)
}

// writeBurst writes at most burst frames, like WriteFrames.
func (d *directPort) writeBurst(ops []vnet.WriteOp) int {
	n, used, now := 0, int(d.shared.used.Load()), uint32(0)
	if d.shared.ownRoom {
		used = 1 // only the queue of WriteFD
	}
	if used > 1 {
		now = d.shared.flows.now()
	}
	for i := range ops {
		head, rest, ok := ops[i].CopyHead(d.heads[n][:])
		d.verdicts[i] = malformed
		if ok {
			d.verdicts[i] = d.path.judge(head, len(head)+len(rest))
		}
		if d.verdicts[i] == pass {
			d.passed[n] = vnet.WriteOp{Head: head, Rest: rest}
			d.goes[n] = 0
			if used > 1 {
				flow := flowOf(head)
				d.goes[n] = d.shared.flows.place(flow, now, flow.among(used), used, true)
			}
			n++
		}
	}
	written := d.writePassed(n)
	done := d.settle(ops, written)
	clear(d.passed[:n])
	return done
}

// writePassed writes the first n of passed, consecutive ones of the same queue in one call,
// and returns how many are written.
func (d *directPort) writePassed(n int) (done int) {
	for done < n {
		end := done + 1
		for end < n && d.goes[end] == d.goes[done] {
			end++
		}
		written := d.queues[d.goes[done]].write(d.passed[done:end])
		if done += written; done < end {
			break
		}
	}
	return done
}

// settle sets the result of each of ops, and counts it. written is how many of the frames
// that passed were written. It returns how many of ops are done.
func (d *directPort) settle(ops []vnet.WriteOp, written int) (done int) {
	var frames, bytes uint64
	next, count := 0, &d.path.count
	for ; done < len(ops); done++ {
		op := &ops[done]
		op.Err = nil
		if v := d.verdicts[done]; v != pass {
			count.dropped[v].Add(1)
			continue
		}
		if next == written {
			op.Err = errAgain
			break
		}
		if op.Err = d.passed[next].Err; op.Err == nil {
			frames++
			bytes += uint64(len(op.Head) + len(op.Rest) - vnet.HdrLen)
		}
		next++
	}
	count.inFrames.Add(frames)
	count.inBytes.Add(bytes)
	return done
}
