package core

import "github.com/splitnic/splitnic/fabric"

// DataQP is the queue pair of a data channel with its completion queues.
type DataQP struct {
	Number  int // 1 to N; the control channel is 0
	Vector  int // completion vector of both completion queues
	QP      fabric.QP
	SendCQ  fabric.CQ
	RecvCQ  fabric.CQ
	PeerQPN uint32

	Moderated bool // SendCQ and RecvCQ are moderated
	Latency   bool // this is the latency channel
}

// NextFailure polls cq, which belongs to the caller, for a failed completion; first of all for one
// that is no consequence. Before, it looks at completions that were polled and not handled.
// Successful completions of a queue pair that has failed are no longer needed.
func NextFailure(cq fabric.CQ, polled, comps []fabric.Completion, channel int) (found error) {
	for {
		for i := range polled {
			switch polled[i].Status {
			case fabric.StatusSuccess:
			case fabric.StatusWRFlushErr:
				found = SendFailure(channel, &polled[i])
			default:
				return SendFailure(channel, &polled[i])
			}
		}
		n, err := cq.Poll(comps)
		if n == 0 || err != nil {
			return found
		}
		polled = comps[:n]
	}
}
