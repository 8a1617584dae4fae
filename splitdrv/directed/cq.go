package directed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// post posts wrs, the last of which has to be signaled, and waits until all are complete. Its error
// is the cause of a failure, if cq shows it within the time look.
func post(ctx context.Context, qp fabric.QP, cq fabric.CQ, wrs []fabric.SendWR, look time.Duration) error {
	if _, err := qp.PostSend(wrs); err != nil {
		return causeOf(ctx, fabric.Refused(qp, err), qp, cq, look)
	}
	var done [1]fabric.Completion
	if _, err := fabric.Reap(ctx, cq, done[:]); err != nil {
		return err
	}
	// The completion of the first failed request, or that of the last one.
	return causeOf(ctx, done[0].Err(), qp, cq, look)
}

// When a queue pair fails, its other work requests complete as flushed, and some devices refuse to
// post more. What has failed is in another completion, of this queue or of the one for receives,
// which another goroutine polls.
const (
	// afterFlush is how long one looks for the cause. There may be none.
	afterFlush = 50 * time.Millisecond
	flushLook  = time.Millisecond // some devices complete what they flush without an event
)

// causeOf returns the cause of err if err is only the consequence of another failure of qp, and cq has
// the cause, or gets it before ctx is done and the time look is over. Otherwise it returns err, and a
// refused post counts as flushed.
func causeOf(ctx context.Context, err error, qp fabric.QP, cq fabric.CQ, look time.Duration) error {
	if _, ok := fabric.Consequence(err); !ok {
		return err
	}
	late := time.NewTimer(look)
	defer late.Stop()
	tick := time.NewTicker(flushLook)
	defer tick.Stop()
	var done [1]fabric.Completion
	for {
		for n, failure := cq.Poll(done[:]); n > 0 && failure == nil; n, failure = cq.Poll(done[:]) {
			failure := done[0].Err()
			if _, follows := fabric.Consequence(failure); failure != nil && !follows {
				return failure
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-late.C:
			return asFlushed(qp, err)
		case <-tick.C:
		}
	}
}

// asFlushed returns err, which also says that the work request was flushed if it was refused by a
// queue pair that has failed.
func asFlushed(qp fabric.QP, err error) error {
	if errors.As(err, new(*fabric.WCError)) {
		return err
	}
	if failed, e := qp.Failed(); e != nil || !failed {
		return err // the queue pair is well, or does not say
	}
	return fmt.Errorf("%w: %w", err, &fabric.WCError{Status: fabric.StatusWRFlushErr, QPN: qp.Num()})
}

// pinned is registered memory outside the Go heap.
type pinned struct {
	fabric.Region
	mem []byte
}

func pin(dom fabric.Domain, size int, access fabric.Access) (*pinned, error) {
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	r, err := dom.Register(mem, access)
	if err != nil {
		_ = unix.Munmap(mem)
		return nil, err
	}
	return &pinned{Region: r, mem: mem}, nil
}

// closeWith closes the domain of the memory, with all objects in it, and unmaps the memory. p may be
// nil. The domain of a device that is gone can be closed, unlike its objects.
func (p *pinned) closeWith(dom fabric.Domain) error {
	if err := dom.Close(); err != nil || p == nil || p.mem == nil {
		return err
	}
	mem := p.mem
	p.mem = nil
	return unix.Munmap(mem)
}

// Close deregisters and unmaps the memory.
func (p *pinned) Close() error {
	if err := p.Region.Close(); err != nil {
		return err
	}
	return unix.Munmap(p.mem)
}

// listen has the functions called with the reason when an event of the device says that dom or its
// device has failed, and when the port goes down. They must not wait.
func listen(dom fabric.Domain, failed, portDown func(error)) {
	if f, ok := dom.(device.Failing); ok {
		f.OnFailure(failed)
		f.OnPortDown(portDown)
	}
}
