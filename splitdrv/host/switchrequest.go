package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

var errStopping = errors.New("the host is shutting down")

// switchRequest is a request to switch to another I/O unit.
type switchRequest struct {
	addr    string
	to      *attachment // session on standby; nil: open one afterwards
	reason  uplink.Reason
	started time.Time
	done    chan error // capacity one
}

func newSwitchRequest(addr string, to *attachment, reason uplink.Reason) *switchRequest {
	return &switchRequest{addr: addr, to: to, reason: reason, started: time.Now(), done: make(chan error, 1)}
}

// result returns the result of the request when a is in use.
func (o *switchRequest) result(a *attachment) error {
	if a.addr == o.addr {
		return nil
	}
	return fmt.Errorf("that I/O unit could not be had; there is a session with the one at %s", a.addr)
}

// switching passes requests to switch to Host.use.
type switching struct {
	requests chan *switchRequest
	over     chan struct{} // closed when requests are no longer handled
	retired  *retired
}

// submit passes a request to Host.use and returns its result.
func (s *switching) submit(ctx context.Context, o *switchRequest) error {
	var err error
	select {
	case s.requests <- o:
		select { // Host.use has it, and answers soon
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
