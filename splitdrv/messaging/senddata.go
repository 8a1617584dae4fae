package messaging

import (
	"fmt"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// In the send modes a data channel has one pool, whose elements stand for
// receives. The message with sequence number s uses up element s modulo their
// number, whichever receive it is that the message arrives in.

// numbering is how far a receiver has come with the messages of its channel.
type numbering struct {
	expected uint64 // the sequence number of the next message

	// Mode send-uc: what the peer says that it has sent. One event is enough,
	// however often it says so.
	sent   atomic.Uint64
	mailed atomic.Bool
}

// takeSent handles frames that were sent as messages.
func (r *receiver) takeSent(comps []fabric.Completion) error {
	pool := (*r.local.Load())[0]
	for i := range comps {
		c := &comps[i]
		if err := c.Err(); err != nil {
			return fmt.Errorf("receive on data channel %d: %w", r.ch.number, err)
		}
		if c.Op != fabric.OpRecv {
			return r.violation(ErrImmediate, "immediate data %#x", c.Imm)
		}
		_, _, buffer, _ := protocol.WRID(c.ID).Unpack()
		msg := pool.Element(buffer)[:c.Len]
		m, err := protocol.DecodeSendData(msg)
		if err != nil {
			return r.violation(err, "SendData")
		}
		late, err := r.sequence(m.TransactionContext)
		if err != nil {
			return err
		}
		if !late {
			if err := r.used(pool, m.TransactionContext, len(msg)); err != nil {
				return err
			}
			if err := r.out.unpack(m.Data); err != nil {
				return err
			}
		}
		r.recvs[i] = r.bufferWR(pool, buffer)
	}
	return r.flush()
}

// sequence compares a message's number with the expected one. Messages that an
// unreliable channel has lost are counted, and so are those that come after
// they were taken for lost.
func (r *receiver) sequence(seq uint64) (late bool, err error) {
	ahead := int64(seq - r.expected)
	switch {
	case ahead == 0:
	case r.c.cfg.Mode != protocol.ModeSendUC:
		return false, r.violationOfSequence(seq)
	case ahead < 0:
		r.count.RxLate.Add(1)
		return true, nil
	default:
		if err := r.lose(uint64(ahead)); err != nil {
			return false, err
		}
	}
	r.expected = seq + 1
	return false, nil
}

// lose frees the elements of n messages that will not come.
func (r *receiver) lose(n uint64) error {
	pool := (*r.local.Load())[0]
	if n > uint64(pool.Elements.Len()) {
		return r.violationOfSequence(r.expected + n)
	}
	for i := range n {
		if err := r.used(pool, r.expected+i, protocol.SendDataOverhead+1); err != nil {
			return err
		}
	}
	r.expected += n
	r.count.RxLost.Add(n)
	return nil
}

// violationOfSequence is about a message of one of the send modes.
func (r *receiver) violationOfSequence(seq uint64) error {
	return r.violation(ErrSequence, "message %d where %d was expected", seq, r.expected)
}

// used marks the element of a message as free to return.
func (r *receiver) used(pool *bufpool.Local, seq uint64, length int) error {
	elem := int(seq % uint64(pool.Elements.Len()))
	if _, err := pool.Elements.Consume(elem, length); err != nil {
		return r.violation(err, "message %d", seq)
	}
	pool.Elements.Release(elem)
	return nil
}

// sentSoFar hears that the peer has sent everything below seq, and that it has
// no credit left: what has not come is lost. No update is urgent for that: if
// the peer has handled all updates, all elements are free now, which is due, and
// otherwise one is on its way that brings credits.
func (r *receiver) sentSoFar(seq uint64) error {
	if ahead := int64(seq - r.expected); ahead > 0 {
		return r.lose(uint64(ahead))
	}
	return nil
}

// postBuffers posts the receives of a pool.
func (r *receiver) postBuffers(p *bufpool.Local) error {
	for i := 0; i < p.Elements.Len(); {
		n := 0
		for ; n < len(r.recvs) && i < p.Elements.Len(); n++ {
			r.recvs[n] = r.bufferWR(p, uint16(i))
			i++
		}
		if err := r.post(n); err != nil {
			return err
		}
	}
	return nil
}

// bufferWR is the receive with number i of a pool.
func (r *receiver) bufferWR(p *bufpool.Local, i uint16) fabric.RecvWR {
	return fabric.RecvWR{
		ID:   uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(r.ch.number), i, 0)),
		Addr: address(p.Element(i)), Len: uint32(p.Elements.ElementSize()), LKey: p.Regions[0].LKey(),
	}
}
