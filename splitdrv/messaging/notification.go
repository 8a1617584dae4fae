package messaging

import (
	"errors"

	"github.com/splitnic/splitnic/fabric"
)

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
