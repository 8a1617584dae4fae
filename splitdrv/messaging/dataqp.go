package messaging

import "github.com/splitnic/splitnic/fabric"

// dataQP is the queue pair of a data channel with its completion queues.
type dataQP struct {
	number  int // 1 to N; the control channel is 0
	vector  int // of the completion queues
	qp      fabric.QP
	sendCQ  fabric.CQ
	recvCQ  fabric.CQ
	peerQPN uint32

	moderated bool // sendCQ and recvCQ
	latency   bool // it is the latency channel
}

// notification is that of a completion queue whose worker asks for an event before it sleeps.
// One that has woken has to come back here before it sleeps again: the event may
// be that of a completion that it had found before, and no other one comes until
// it is asked for.
type notification struct {
	cq        fabric.CQ
	solicited bool
	armed     bool // once at least
}

// arm asks for an event, after it has read the one that was asked for before,
// if that has come. If not it may still be on its way, unseen, when the worker
// begins to wait; so another one is asked for in any case. There are never more
// than two unread, because one is read for each that is asked for.
func (n *notification) arm() error {
	if n.armed {
		if _, err := n.cq.ReadEvent(); err != nil {
			return err
		}
	}
	n.armed = true
	return n.cq.Arm(n.solicited)
}
