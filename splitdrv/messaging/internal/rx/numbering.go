package rx

import (
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
)

// In the send modes a data channel has one pool, whose elements are receive buffers. The
// message with sequence number s uses up the credit of element s modulo the number of
// elements, whichever receive it arrives in.

// numbering checks the sequence numbers of the messages on a receiver's channel.
type numbering struct {
	channel int
	lossy   bool // mode send-uc
	count   *core.RxCount

	pool     *bufpool.Local // the only pool of the channel
	expected uint64         // sequence number of the next message

	sent atomic.Uint64 // mode send-uc: the last number that the peer has reported
}

// sequence compares the number of a message with the expected one. On an unreliable channel
// it counts the messages that were lost, and those that arrive after they were counted as
// lost (late).
func (n *numbering) sequence(seq uint64) (late bool, err error) {
	ahead := int64(seq - n.expected)
	switch {
	case ahead == 0:
	case !n.lossy:
		return false, n.violation(seq)
	case ahead < 0:
		n.count.RxLate.Add(1)
		return true, nil
	default:
		if err := n.lose(uint64(ahead)); err != nil {
			return false, err
		}
	}
	n.expected = seq + 1
	return false, nil
}

// lose frees the elements of the next messages, which are lost.
func (n *numbering) lose(lost uint64) error {
	if lost > uint64(n.pool.Elements.Len()) {
		return n.violation(n.expected + lost)
	}
	for i := range lost {
		if err := n.used(n.expected+i, protocol.SendDataOverhead+1); err != nil {
			return err
		}
	}
	n.expected += lost
	n.count.RxLost.Add(lost)
	return nil
}

// violation returns the error for a message with a wrong sequence number.
func (n *numbering) violation(seq uint64) error {
	return core.ChannelViolation(n.channel, core.ErrSequence, "message %d where %d was expected", seq, n.expected)
}

// used frees the element of a message, to be returned to the peer.
func (n *numbering) used(seq uint64, length int) error {
	elem := int(seq % uint64(n.pool.Elements.Len()))
	if _, err := n.pool.Elements.Consume(elem, length); err != nil {
		return core.ChannelViolation(n.channel, err, "message %d", seq)
	}
	n.pool.Elements.Release(elem)
	return nil
}

// sentSoFar handles the peer's report that it has sent all messages below seq and has no
// credit left. Those that have not arrived are lost. The update for their elements is not
// urgent: if the peer has handled all updates, all elements are free now, so an update is
// due anyway; otherwise one with credits is in flight.
func (n *numbering) sentSoFar(seq uint64) error {
	if ahead := int64(seq - n.expected); ahead > 0 {
		return n.lose(uint64(ahead))
	}
	return nil
}

// bufferWR returns the receive into element i.
func (n *numbering) bufferWR(i uint16) fabric.RecvWR {
	return fabric.RecvWR{
		ID:   uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(n.channel), i, 0)),
		Addr: memory.Address(n.pool.Element(i)), Len: uint32(n.pool.Elements.ElementSize()), LKey: n.pool.Regions[0].LKey(),
	}
}
