package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

var errStopping = errors.New("the host is shutting down")

// switchRequest is to go over to another I/O unit.
type switchRequest struct {
	addr    string
	to      *attachment // on standby; nil: make it afterwards
	reason  uplink.Reason
	started time.Time
	done    chan error // of capacity one
}

func newSwitchRequest(addr string, to *attachment, reason uplink.Reason) *switchRequest {
	return &switchRequest{addr: addr, to: to, reason: reason, started: time.Now(), done: make(chan error, 1)}
}

// result is what became of the request when a is in use.
func (o *switchRequest) result(a *attachment) error {
	if a.addr == o.addr {
		return nil
	}
	return fmt.Errorf("that I/O unit could not be had; there is a session with the one at %s", a.addr)
}

// switching is how requests to go over to another I/O unit get to Host.use.
type switching struct {
	requests chan *switchRequest
	over     chan struct{} // closed when nobody handles requests any more
	retired  *retired
}

// submit has a request handled, and returns what became of it.
func (s *switching) submit(ctx context.Context, o *switchRequest) error {
	var err error
	select {
	case s.requests <- o:
		select { // from here on it ends soon
		case err := <-o.done:
			return err
		case <-s.over:
			return errStopping
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.over:
		err = errStopping
	}
	s.retired.endUnused(o.to)
	return err
}
