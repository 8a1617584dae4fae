package messaging

import (
	"fmt"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// flight is a frame on its way, or a work request that is none.
type flight struct {
	seq    uint32          // of the work request
	slot   uint32          // noSlot if it holds none
	pool   *bufpool.Remote // nil for a frame that is not the first of its transfer
	elem   uint16
	length uint32 // of the transfer
	owes   bool   // is to be indicated on the control channel when it has completed
	lands  bool   // of a work request that is no transfer: something follows when it has completed
}

const noSlot = ^uint32(0)

// flights are what is on its way, in the order of posting.
type flights struct {
	ring  []flight
	first int
	n     int
}

func newFlights(n int) flights { return flights{ring: make([]flight, n)} }

func (f *flights) len() int { return f.n }

func (f *flights) push(x flight) {
	i := f.first + f.n
	if i >= len(f.ring) {
		i -= len(f.ring)
	}
	f.ring[i] = x
	f.n++
}

// oldest is the one posted first; there must be one.
func (f *flights) oldest() *flight { return &f.ring[f.first] }

// newest is the one posted last; there must be one.
func (f *flights) newest() *flight {
	i := f.first + f.n - 1
	if i >= len(f.ring) {
		i -= len(f.ring)
	}
	return &f.ring[i]
}

func (f *flights) pop() {
	if f.first++; f.first == len(f.ring) {
		f.first = 0
	}
	f.n--
}

// add puts a frame, the first of those that were read, into the batch as a
// transfer of its own.
func (s *sender) add(g *bufpool.Remote, elem uint16, frame []byte) {
	s.seal()
	n := len(frame)
	mode := s.c.cfg.Mode
	s.posted++
	wr := fabric.SendWR{
		ID:   uint64(protocol.PackWRID(protocol.WRDataWrite, uint8(s.ch.number), 0, s.posted)),
		Addr: address(frame),
		Len:  uint32(n),
		LKey: s.region.LKey(),
	}
	f := flight{seq: s.posted, slot: s.readSlots[s.next], pool: g, elem: elem}
	switch {
	case mode.Sends():
		wr.Op = fabric.OpSend
	case mode == protocol.ModeImm && protocol.CanImm(g.Ref, uint32(elem), n):
		wr.Op, wr.RemoteAddr, wr.RKey = fabric.OpWriteImm, g.Address(elem), g.Key(elem)
	default:
		wr.Op, wr.RemoteAddr, wr.RKey = fabric.OpWrite, g.Address(elem), g.Key(elem)
		f.owes = true
		s.alone = mode == protocol.ModeImm
	}
	g.Pending++
	g.Last = s.posted
	s.last = len(s.wrs)
	s.open = transfer{first: frame, frames: 1, size: n}
	s.append(wr, f, n)
}

// append puts a record, a frame of n bytes, into the batch. Its transfer asks
// for a completion if so many frames before it did not.
func (s *sender) append(wr fabric.SendWR, f flight, n int) {
	s.wrs = append(s.wrs, wr)
	s.batch = append(s.batch, f)
	s.bytes += n
	s.next++
	if s.silent++; s.silent >= s.c.cfg.SignalEvery {
		s.signal(&s.wrs[s.last])
	}
}

// signal makes the latest work request one that asks for a completion.
func (s *sender) signal(wr *fabric.SendWR) {
	if wr.Flags&fabric.Signaled == 0 {
		s.count.signaled.Add(1)
	}
	wr.Flags |= fabric.Signaled
	s.signaled, s.silent = s.posted, 0
}

// post rings the doorbell for the batch. Only its last work request asks for
// the peer's attention; or, when that has to be got by an indication, for a
// completion.
func (s *sender) post() error {
	s.seal()
	last := &s.wrs[s.last]
	if s.batch[s.last].owes {
		s.signal(last)
	} else {
		last.Flags |= fabric.Solicited
		s.count.solicited.Add(1)
	}
	if n, err := s.ch.qp.PostSend(s.wrs); err != nil {
		return fmt.Errorf("post piece %d of a batch of %d on data channel %d: %w", n, len(s.wrs), s.ch.number, err)
	}
	inline := false
	for i := range s.batch {
		f := &s.batch[i]
		first := f.pool != nil
		if first {
			inline = s.wrs[i].Flags&fabric.Inline != 0
		}
		if inline {
			s.slots.Put(f.slot)
			f.slot = noSlot
		}
		if first || !inline {
			s.flights.push(*f)
		}
	}
	// The bytes first, as they are read last: who subtracts the headers of the
	// frames from them gets no less than nothing.
	s.count.bytes.Add(uint64(s.bytes))
	s.count.frames.Add(uint64(len(s.wrs)))
	s.count.posts.Add(1)
	s.wrs, s.batch, s.bytes = s.wrs[:0], s.batch[:0], 0
	return nil
}

// reclaim polls for completions and frees what they held. The completion of a
// work request completes all that were posted before it.
func (s *sender) reclaim() error {
	for {
		n, err := s.ch.sendCQ.Poll(s.comps[:])
		if err != nil {
			return fmt.Errorf("poll the send queue of data channel %d: %w", s.ch.number, err)
		}
		s.w.took(n)
		for i := range s.comps[:n] {
			c := &s.comps[i]
			if err := c.Err(); err != nil {
				return fmt.Errorf("transfer on data channel %d: %w", s.ch.number, err)
			}
			kind, _, _, seq := protocol.WRID(c.ID).Unpack()
			if kind != protocol.WRDataWrite {
				return fmt.Errorf("data channel %d completed a %v", s.ch.number, protocol.WRID(c.ID))
			}
			s.completed = seq
		}
		for s.flights.len() > 0 && int32(s.completed-s.flights.oldest().seq) >= 0 {
			f := *s.flights.oldest()
			s.flights.pop()
			if err := s.landed(&f); err != nil {
				return err
			}
		}
		if n < len(s.comps) {
			return nil
		}
	}
}

// landed frees what a completed work request held.
func (s *sender) landed(f *flight) error {
	if f.slot != noSlot {
		s.slots.Put(f.slot)
	}
	switch {
	case f.lands:
		return s.follow()
	case f.pool == nil:
	case f.owes:
		s.owed = append(s.owed, protocol.Indication{Pool: f.pool.Ref, Element: uint32(f.elem), Length: f.length})
		s.owedPools = append(s.owedPools, f.pool)
	default:
		f.pool.Pending--
	}
	return nil
}

// window is how many BufferRDMAIndicates may be unacknowledged.
func (s *sender) window() int {
	if s.c.cfg.Mode == protocol.ModeIndicate {
		return protocol.IndicatesPerChannel
	}
	return 1
}

func (s *sender) unacknowledged() int { return int(s.indicated - s.acked.Load()) }

// settle does what completions ask for: it indicates transfers, and lets go of
// pools that are to be put out of use.
func (s *sender) settle() error {
	if err := s.reclaim(); err != nil {
		return err
	}
	for len(s.owed) > 0 && s.unacknowledged() < s.window() {
		n := min(len(s.owed), protocol.MaxIndications)
		if err := s.c.control.sendIndicate(s, n); err != nil {
			return err
		}
		for _, g := range s.owedPools[:n] {
			g.Pending--
		}
		s.owed = s.owed[:copy(s.owed, s.owed[n:])]
		s.owedPools = s.owedPools[:copy(s.owedPools, s.owedPools[n:])]
		s.count.indicates.Add(1)
		s.count.indicated.Add(uint64(n))
	}
	if s.alone && s.flights.len() == 0 && len(s.owed) == 0 && s.unacknowledged() == 0 {
		s.alone = false
	}
	if err := s.letGo(); err != nil {
		return err
	}
	return s.perform()
}

// name numbers the message that is about to indicate the first n transfers, so
// that the return of any of their elements acknowledges it.
func (s *sender) name(n int) {
	s.indicated++
	for i := range s.owed[:n] {
		s.owedPools[i].Name(s.owed[i].Element, s.indicated)
	}
}

// acknowledge hears that the peer has returned an element. Called by the
// control handler.
func (s *sender) acknowledge(g *bufpool.Remote, elem uint16) {
	// Not of an earlier use of the element, which was not indicated so since.
	if n := g.NamedIn(elem); n > s.acked.Load() {
		s.acked.Store(n)
	}
}

// letGo finishes what is to be released and is out of use.
func (s *sender) letGo() error {
	for i := 0; i < len(s.releasing); {
		r := s.releasing[i]
		if r.pool == nil && (s.flights.len() > 0 || len(s.owed) > 0) {
			if int32(s.posted-s.signaled) > 0 {
				if err := s.fence(); err != nil {
					return err
				}
			}
			i++
			continue
		}
		if r.pool != nil && r.pool.Pending > 0 {
			if int32(r.pool.Last-s.signaled) > 0 {
				if err := s.fence(); err != nil {
					return err
				}
			}
			i++
			continue
		}
		if r.last {
			if done, err := s.invalidate(r.pool); !done || err != nil {
				return err
			}
		}
		s.releasing = append(s.releasing[:i], s.releasing[i+1:]...)
		switch {
		case r.pool != nil:
			if err := s.c.pools.step(bufpool.Event{Kind: bufpool.Stopped, Remote: r.pool, Last: r.last}); err != nil {
				return err
			}
		case r.done != nil:
			r.done <- struct{}{}
		}
	}
	return nil
}

// fence posts a write of nothing that asks for a completion, and so completes
// what was posted before. A write of no bytes needs neither address nor key
// (InfiniBand Architecture Specification, volume 1, C9-88).
func (s *sender) fence() error {
	s.posted++
	wr := [1]fabric.SendWR{{
		ID: uint64(protocol.PackWRID(protocol.WRDataWrite, uint8(s.ch.number), 0, s.posted)),
		Op: fabric.OpWrite,
	}}
	s.signal(&wr[0])
	if _, err := s.ch.qp.PostSend(wr[:]); err != nil {
		return fmt.Errorf("post a fence on data channel %d: %w", s.ch.number, err)
	}
	s.flights.push(flight{seq: s.posted, slot: noSlot})
	return nil
}
