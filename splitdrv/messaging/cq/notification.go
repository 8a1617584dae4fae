package cq

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
)

// Notification requests the events of a completion queue (ibv_req_notify_cq(3)). A worker
// arms it each time before it sleeps: the event that has woken it may belong to a
// completion that it had already polled, and each request raises only one event.
type Notification struct {
	CQ        fabric.CQ
	Solicited bool
	armed     bool // at least once
}

// Arm requests an event. It first reads the event of the last request, if that has been
// raised. If not, that event may still be raised at any time, so arm requests another one
// in any case. At most two events are unread, because each call reads one.
func (n *Notification) Arm() error {
	if n.armed {
		if _, err := n.CQ.ReadEvent(); err != nil {
			return err
		}
	}
	n.armed = true
	err := n.CQ.Arm(n.Solicited)
	if n.Solicited && errors.Is(err, fabric.ErrUnsupported) {
		n.Solicited = false // every completion raises an event from now on
		err = n.CQ.Arm(false)
	}
	return err
}
