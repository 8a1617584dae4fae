package directed

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// reap waits for completions and returns the number of completions in out.
func reap(ctx context.Context, cq fabric.CQ, out []fabric.Completion) (int, error) {
	for armed := false; ; {
		n, err := cq.Poll(out)
		if n != 0 || err != nil {
			return n, err
		}
		if !armed {
			err = cq.Arm(false)
		} else {
			err = cq.Wait(ctx)
		}
		if err != nil {
			return 0, err
		}
		armed = !armed
	}
}

// post posts wrs, the last of which has to be signaled, and waits until all are complete.
func post(ctx context.Context, qp fabric.QP, cq fabric.CQ, wrs []fabric.SendWR) error {
	if _, err := qp.PostSend(wrs); err != nil {
		return err
	}
	var done [1]fabric.Completion
	if _, err := reap(ctx, cq, done[:]); err != nil {
		return err
	}
	return done[0].Err() // the completion of the first failed request, or that of the last one
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

// Close deregisters and unmaps the memory.
func (p *pinned) Close() error {
	if err := p.Region.Close(); err != nil {
		return err
	}
	return unix.Munmap(p.mem)
}
