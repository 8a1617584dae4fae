package claims

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// observed is a trace with the data that is needed to read it.
type observed struct {
	*trace
	t testing.TB
	// qpns are the numbers of each side's queue pairs, by channel: 0 is the
	// control channel.
	qpns map[string][]uint32
	// until polls cond, which other threads make true, until it returns nil.
	until func(cond func() error)
}

// channel returns the channel of a side's queue pair, or -1 if the queue pair has no channel.
func (o *observed) channel(side string, qpn uint32) int { return slices.Index(o.qpns[side], qpn) }

// channels returns the number of channels, including the control channel.
func (o *observed) channels() int { return len(o.qpns[hostSide]) }

// message is a control message as the trace has it.
type message struct {
	entry
	function protocol.Function
}

// posted returns the messages in the SENDs that a side posted on any of its queue pairs.
func (o *observed) posted(side string) []message { return o.messages(side, sendPosted) }

// arrived returns the messages that arrived in a side's receives.
func (o *observed) arrived(side string) []message { return o.messages(side, recvDone) }

func (o *observed) messages(side string, w what) []message {
	o.t.Helper()
	var out []message
	for _, e := range o.pick(side, w) {
		if w == sendPosted && e.send.Op != fabric.OpSend ||
			w == recvDone && (e.done.Err() != nil || e.done.Op != fabric.OpRecv) {
			continue
		}
		if w == recvDone && e.done.Flags != 0 && e.done.Len == 0 {
			continue // not a message, but a key or the invalidation of one, for pools behind windows
		}
		h, err := protocol.DecodeHeader(e.data[:min(len(e.data), protocol.HeaderSize)]) // SendData may be long
		if err != nil {
			o.t.Fatalf("%s: a SEND on queue pair %d that is no message: %v", side, e.qpn, err)
		}
		out = append(out, message{e, h.Function})
	}
	return out
}

// of returns the messages with one of the functions.
func of(ms []message, fs ...protocol.Function) []message {
	return filter(ms, func(m message) bool { return slices.Contains(fs, m.function) })
}

// The functions of the three kinds of messages of source document 001.
var (
	bufferManagement = []protocol.Function{
		protocol.FuncBufferRecvPool, protocol.FuncBufferRecvPoolGet, protocol.FuncBufferRecvPoolUpdate,
		protocol.FuncBufferPoolFlushRequest, protocol.FuncBufferPoolFlushReply,
	}
	configuration = []protocol.Function{protocol.FuncCfgUtilRequest, protocol.FuncCfgUtilReply}
)

// lentPool is a pool as its owner advertised it.
type lentPool struct {
	protocol.Pool
	at int // position of the message on the trace
}

// lent returns the pools that a side has advertised, in order.
func (o *observed) lent(side string) []lentPool {
	o.t.Helper()
	var out []lentPool
	for _, m := range of(o.posted(side), protocol.FuncBufferRecvPool) {
		d, err := protocol.DecodeBufferRecvPool(m.data)
		if err != nil {
			o.t.Fatal(err)
		}
		for i := range d.Len() {
			out = append(out, lentPool{d.At(i), m.at})
		}
	}
	return out
}

// memory returns two entries about a pool that a side has lent: the registration of its memory, and
// the entry that made its key valid for writing. The latter is the registration, or the bind of a
// window to all of the memory over the pool's channel. Both must precede the message that lent the
// pool.
func (o *observed) memory(side string, l lentPool) (mem, key entry) {
	o.t.Helper()
	for _, e := range o.pick(side, registered, bound) {
		if e.at > l.at || e.addr != l.Addr || uint64(e.length) != l.Bytes() {
			continue
		}
		if e.what == registered {
			mem = e
		}
		if e.rkey == l.RKey && (e.what == registered && e.access&fabric.RemoteWrite != 0 ||
			e.what == bound && mem.access&fabric.WindowBind != 0 && o.channel(side, e.qpn) == int(l.Channel())) {
			key = e
		}
	}
	if mem.what == 0 || key.what == 0 {
		o.t.Errorf("%s: the address or handle of %+v is not that of registered memory", side, l)
	}
	return mem, key
}

// write is an RDMA write and its element, which is found only by the address and key of the write.
type write struct {
	entry
	pool    lentPool
	element uint32
	channel int
}

// writes returns the RDMA writes that a side posted on any queue pair. It fails the test unless
// every write begins at the start of an element of a pool that the other side had lent before, and
// fits into the element.
func (o *observed) writes(side string) []write {
	o.t.Helper()
	lent := o.lent(other(side))
	var out []write
	for _, e := range o.pick(side, sendPosted) {
		if e.send.Op != fabric.OpWrite && e.send.Op != fabric.OpWriteImm {
			continue
		}
		w := write{entry: e, channel: o.channel(side, e.qpn)}
		found := false
		for _, l := range lent {
			if e.at > l.at && e.send.RKey == l.RKey && e.send.RemoteAddr >= l.Addr && e.send.RemoteAddr < l.Addr+l.Bytes() {
				off := e.send.RemoteAddr - l.Addr
				w.pool, w.element, found = l, uint32(off/uint64(l.ElementSize)), true
				if off%uint64(l.ElementSize) != 0 || e.send.Len > l.ElementSize {
					o.t.Fatalf("%s: a write of %d bytes to %d of pool %+v is not within one element", side, e.send.Len, off, l)
				}
			}
		}
		if !found {
			o.t.Fatalf("%s: a write to %#x with key %#x, which nobody has lent: %+v", side, e.send.RemoteAddr, e.send.RKey, lent)
		}
		out = append(out, w)
	}
	return out
}

// framesIn returns the frames of a transfer: one frame, or those of a pack.
func framesIn(data []byte) (frames [][]byte, err error) {
	if !protocol.IsPack(data) {
		return [][]byte{data}, nil
	}
	pack, err := protocol.DecodePack(data)
	for err == nil && pack.Left() > 0 {
		var f []byte
		if f, err = pack.Next(); err == nil {
			frames = append(frames, f)
		}
	}
	return frames, err
}

// carry checks that transfers carried these frames, whole and in order.
func carry(transfers, frames [][]byte) error {
	var got [][]byte
	for i, data := range transfers {
		more, err := framesIn(data)
		if err != nil {
			return fmt.Errorf("transfer %d: %w", i, err)
		}
		got = append(got, more...)
	}
	for i := range min(len(got), len(frames)) {
		if !bytes.Equal(got[i], frames[i]) {
			return fmt.Errorf("frame %d, of %d bytes, was sent as one of %d", i, len(frames[i]), len(got[i]))
		}
	}
	if len(got) != len(frames) {
		return fmt.Errorf("%d transfers carry %d of %d frames", len(transfers), len(got), len(frames))
	}
	return nil
}

// carries does what carry does, for writes.
func carries(writes []write, frames [][]byte) error {
	var data [][]byte
	for _, w := range writes {
		data = append(data, w.data)
	}
	return carry(data, frames)
}

// completedSends returns the completions of a side's sends on a queue pair, without those of binds
// of windows.
func (o *observed) completedSends(side string, qpn uint32) []entry {
	return filter(ofQP(qpn, o.pick(side, sendDone)), func(e entry) bool { return e.done.Op != fabric.OpBind })
}

// indicated checks that each write of one channel of a side has in its immediate data the element
// that it consumes and the number of bytes, and that the other side's receives get exactly these
// immediate data, one receive per write and in order.
func (o *observed) indicated(from string, channel int) error {
	o.t.Helper()
	var writes []write
	var got []entry
	o.until(func() error {
		// Read both again: the kernel sends its own frames at any time.
		got = filter(ofQP(o.qpns[other(from)][channel], o.pick(other(from), recvDone)),
			func(e entry) bool { return e.done.Err() == nil })
		writes = writes[:0]
		for _, w := range o.writes(from) {
			if w.channel == channel {
				writes = append(writes, w)
			}
		}
		if len(got) != len(writes) {
			return fmt.Errorf("%d receives completed for %d writes", len(got), len(writes))
		}
		return nil
	})
	if len(writes) == 0 {
		return fmt.Errorf("%d receives completed for %d writes", len(got), len(writes))
	}
	for i, w := range writes {
		if w.send.Op != fabric.OpWriteImm {
			return fmt.Errorf("write %d carries no immediate data", i)
		}
		pool, element, length := protocol.ImmData(w.send.Imm).Unpack()
		if uint32(pool) != w.pool.Ref || uint32(element) != w.element || uint32(length) != w.send.Len {
			return fmt.Errorf("write %d of %d bytes into element %d of pool %d says element %d of pool %d, %d bytes",
				i, w.send.Len, w.element, w.pool.Ref, element, pool, length)
		}
		d := got[i].done
		if d.Op != fabric.OpRecvWriteImm || d.Flags&fabric.WithImm == 0 || d.Imm != w.send.Imm || d.Len != w.send.Len {
			return fmt.Errorf("write %d with immediate data %#x arrived as %+v", i, w.send.Imm, d)
		}
		if got[i].recv.Len != 0 {
			return fmt.Errorf("write %d consumed a receive with %d bytes of memory", i, got[i].recv.Len)
		}
	}
	return nil
}
