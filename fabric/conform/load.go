package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/splitnic/splitnic/fabric"
)

// testBothDirections has both ends send and receive at the same time, each in one goroutine.
func testBothDirections(r *fixture) {
	r.connect(fabric.RC)
	ctx, cancel := r.context()
	defer cancel()
	total := 4000 / r.Scale / batch * batch
	half := func(me, peer *end) error {
		// Each end uses its own half of every memory: sources low, targets high.
		const shift = memSize / 2
		wrs := make([]fabric.SendWR, batch)
		in, out := make([]fabric.Completion, batch), make([]fabric.Completion, 1)
		for seq := 0; seq < total; seq += batch {
			slotWrites(wrs, seq, me, peer)
			for i := range wrs {
				wrs[i].RemoteAddr += shift
			}
			if _, err := me.qp.PostSend(wrs); err != nil {
				return err
			}
			if err := reapMessages(ctx, me, shift, seq, in); err != nil {
				return err
			}
			if _, err := me.qp.PostRecv(numbered(uint64(seq+2*batch), batch)); err != nil {
				return err
			}
			if _, err := reap(ctx, me.sendCQ, out); err != nil {
				return err
			}
			if err := out[0].Err(); err != nil {
				return err
			}
		}
		return nil
	}
	// Two batches of receives: the peer is at most one batch ahead.
	r.receive(r.a.qp, numbered(0, 2*batch)...)
	r.receive(r.b.qp, numbered(0, 2*batch)...)
	r.together(
		func() error { return half(r.a, r.b) },
		func() error { return half(r.b, r.a) },
	)
}

// reapMessages waits for messages from seq on, which have come to their slots from an offset of e's
// memory on, and to receives with the same numbers.
func reapMessages(ctx context.Context, e *end, offset, seq int, in []fabric.Completion) error {
	if _, err := reap(ctx, e.recvCQ, in); err != nil {
		return err
	}
	for i := range in {
		if err := in[i].Err(); err != nil || in[i].Imm != uint32(seq+i) || in[i].ID != uint64(seq+i) {
			return fmt.Errorf("message %d arrived as %+v: %v", seq+i, in[i], err)
		}
		if !slotHolds(&end{mem: e.mem[offset:]}, seq+i) {
			return fmt.Errorf("message %d did not arrive whole", seq+i)
		}
	}
	return nil
}

// together runs fs concurrently and reports their errors.
func (r *fixture) together(fs ...func() error) {
	r.Helper()
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	r.check(errors.Join(errs...))
}

// testConcurrency runs one goroutine for each role that may be separate: posting sends, polling
// sends, polling receives, posting receives. Credits are passed in channels, so that no message
// finds the receiver not ready.
func testConcurrency(r *fixture) {
	r.connect(fabric.RC)
	ctx, cancel := r.context()
	defer cancel()
	total := 8000 / r.Scale / batch * batch
	credits := make(chan struct{}, depth/batch) // batches of receives posted
	space := make(chan struct{}, depth/batch)   // batches of send slots
	used := make(chan struct{}, depth/batch)    // batches of receives consumed
	for range depth / batch {
		space <- struct{}{}
		used <- struct{}{}
	}
	next := func(c <-chan struct{}) error {
		select {
		case <-c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.together(
		func() error { // posts receives
			for seq := 0; seq < total; seq += batch {
				if err := next(used); err != nil {
					return err
				}
				if _, err := r.b.qp.PostRecv(numbered(uint64(seq), batch)); err != nil {
					return err
				}
				credits <- struct{}{}
			}
			return nil
		},
		func() error { // posts sends
			wrs := make([]fabric.SendWR, batch)
			for seq := 0; seq < total; seq += batch {
				if err := errors.Join(next(credits), next(space)); err != nil {
					return err
				}
				slotWrites(wrs, seq, r.a, r.b)
				if _, err := r.a.qp.PostSend(wrs); err != nil {
					return err
				}
			}
			return nil
		},
		func() error { // reaps sends
			out := make([]fabric.Completion, 1)
			for seq := 0; seq < total; seq += batch {
				if _, err := reap(ctx, r.a.sendCQ, out); err != nil {
					return err
				}
				if err := out[0].Err(); err != nil || out[0].ID != uint64(seq+batch-1) {
					return fmt.Errorf("completion %+v of request %d: %v", out[0], seq+batch-1, err)
				}
				space <- struct{}{}
			}
			return nil
		},
		func() error { // reaps receives
			in := make([]fabric.Completion, batch)
			for seq := 0; seq < total; seq += batch {
				if err := reapMessages(ctx, r.b, 0, seq, in); err != nil {
					return err
				}
				used <- struct{}{}
			}
			return nil
		},
	)
}

// testCloseWhileBusy closes a device while goroutines use its objects. Each goroutine must end,
// with net.ErrClosed or a failed completion.
func testCloseWhileBusy(r *fixture) {
	r.connect(fabric.RC)
	ctx, cancel := r.context()
	defer cancel()
	started := make(chan struct{}, 3)
	until := func(f func() error) func() error {
		return func() error {
			for i := 0; ctx.Err() == nil; i++ {
				err := f()
				if i == 0 {
					started <- struct{}{}
				}
				switch {
				case errors.Is(err, net.ErrClosed):
					return nil
				case err != nil && !errors.Is(err, fabric.ErrQueueFull):
					return err
				}
			}
			return context.Cause(ctx)
		}
	}
	wcs := make([]fabric.Completion, batch)
	r.together(
		until(func() error {
			return failing(r.a.qp.PostSend([]fabric.SendWR{write(fabric.OpWrite, 0, r.a, r.b, 64)}))
		}),
		until(func() error { return failing(r.a.qp.PostRecv(numbered(0, 1))) }),
		until(func() error { return failing(r.a.sendCQ.Poll(wcs)) }),
		func() error {
			if err := r.a.recvCQ.Wait(ctx); !errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("sleeping on a queue that is closed: %w", err)
			}
			return nil
		},
		func() error {
			for range cap(started) {
				<-started
			}
			return r.a.dev.Close()
		},
	)
}
