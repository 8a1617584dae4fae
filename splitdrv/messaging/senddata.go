package messaging

import (
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
	channel int
	lossy   bool // mode send-uc
	count   *rxCounters

	pool     *bufpool.Local // the channel's
	expected uint64         // the sequence number of the next message

	// Mode send-uc: what the peer says that it has sent. One event is enough,
	// however often it says so.
	sent       atomic.Uint64
	sentQueued atomic.Bool
}

// sequence compares a message's number with the expected one. Messages that an
// unreliable channel has lost are counted, and so are those that come after
// they were taken for lost.
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

// lose frees the elements of messages that will not come.
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

// violation is about a message of one of the send modes.
func (n *numbering) violation(seq uint64) error {
	return channelViolation(n.channel, ErrSequence, "message %d where %d was expected", seq, n.expected)
}

// used marks the element of a message as free to return.
func (n *numbering) used(seq uint64, length int) error {
	elem := int(seq % uint64(n.pool.Elements.Len()))
	if _, err := n.pool.Elements.Consume(elem, length); err != nil {
		return channelViolation(n.channel, err, "message %d", seq)
	}
	n.pool.Elements.Release(elem)
	return nil
}

// sentSoFar hears that the peer has sent everything below seq, and that it has
// no credit left: what has not come is lost. No update is urgent for that: if
// the peer has handled all updates, all elements are free now, which is due, and
// otherwise one is on its way that brings credits.
func (n *numbering) sentSoFar(seq uint64) error {
	if ahead := int64(seq - n.expected); ahead > 0 {
		return n.lose(uint64(ahead))
	}
	return nil
}

// bufferWR is the receive with number i of the pool.
func (n *numbering) bufferWR(i uint16) fabric.RecvWR {
	return fabric.RecvWR{
		ID:   uint64(protocol.PackWRID(protocol.WRDataRecv, uint8(n.channel), i, 0)),
		Addr: address(n.pool.Element(i)), Len: uint32(n.pool.Elements.ElementSize()), LKey: n.pool.Regions[0].LKey(),
	}
}
