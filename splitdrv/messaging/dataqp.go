package messaging

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
)

// dataQP is the queue pair of a data channel with its completion queues.
type dataQP struct {
	number  int // 1 to N; the control channel is 0
	vector  int // completion vector of both completion queues
	qp      fabric.QP
	sendCQ  fabric.CQ
	recvCQ  fabric.CQ
	peerQPN uint32

	moderated bool // sendCQ and recvCQ are moderated
	latency   bool // this is the latency channel
}

// notification requests the events of a completion queue (ibv_req_notify_cq(3)). A worker
// arms it each time before it sleeps: the event that has woken it may belong to a
// completion that it had already polled, and each request raises only one event.
type notification struct {
	cq        fabric.CQ
	solicited bool
	armed     bool // at least once
}

// arm requests an event. It first reads the event of the last request, if that has been
// raised. If not, that event may still be raised at any time, so arm requests another one
// in any case. At most two events are unread, because each call reads one.
func (n *notification) arm() error {
	if n.armed {
		if _, err := n.cq.ReadEvent(); err != nil {
			return err
		}
	}
	n.armed = true
	err := n.cq.Arm(n.solicited)
	if n.solicited && errors.Is(err, fabric.ErrUnsupported) {
		n.solicited = false // every completion raises an event from now on
		err = n.cq.Arm(false)
	}
	return err
}

// nextFailure polls cq, which belongs to the caller, for a failed completion; first of all for one
// that is no consequence. Before, it looks at completions that were polled and not handled.
// Successful completions of a queue pair that has failed are no longer needed.
func nextFailure(cq fabric.CQ, polled, comps []fabric.Completion, channel int) (found error) {
	for {
		for i := range polled {
			switch polled[i].Status {
			case fabric.StatusSuccess:
			case fabric.StatusWRFlushErr:
				found = sendFailure(channel, &polled[i])
			default:
				return sendFailure(channel, &polled[i])
			}
		}
		n, err := cq.Poll(comps)
		if n == 0 || err != nil {
			return found
		}
		polled = comps[:n]
	}
}
