package messaging

import "github.com/splitnic/splitnic/fabric"

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
