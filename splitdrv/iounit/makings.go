package iounit

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

// makings bound how many sessions are being made at once. To register memory, to
// make queue pairs and an interface takes milliseconds of a processor each, in the
// process whose workers move the frames of the sessions that there are: those who
// come wait for each other. Whoever asks for many sessions waits for itself. It may
// be used by several goroutines.
type makings struct {
	places chan struct{} // taken by sending
	each   int           // places that one owner may have

	mu sync.Mutex
	of map[string]*maker
}

// inParallel is how many sessions are made at once for each two processors. Each
// is some thirty system calls one after the other. On a busy machine, where each of
// them waits for a processor, one session at a time took 50 ms, of which it worked
// for 5.
const inParallel = 4

// maker is somebody who has sessions made, or waits for that.
type maker struct {
	places chan struct{} // of its own
	users  int
}

func newMakings() *makings {
	half := max(runtime.NumCPU()/2, 1)
	return &makings{
		places: make(chan struct{}, inParallel*half), each: max(half/2, 1), of: make(map[string]*maker),
	}
}

// take waits until a session of that owner can be made: until deadline at most, or
// until ctx or gone is done. Without an error, end must be called, and does nothing
// the second time.
func (m *makings) take(
	ctx context.Context, gone <-chan struct{}, deadline time.Time, owner string,
) (end func(), err error) {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	own := m.enter(owner)
	taken := 0
	end = sync.OnceFunc(func() {
		for _, places := range []chan struct{}{own.places, m.places}[:taken] {
			<-places
		}
		m.leave(owner)
	})
	// Its own first, so that those of one owner do not stand in each other's way
	// where everybody waits.
	for _, places := range []chan struct{}{own.places, m.places} {
		select {
		case places <- struct{}{}:
			taken++
			continue
		case <-late.C:
			err = fmt.Errorf("other sessions are being made: %w", os.ErrDeadlineExceeded)
		case <-gone:
			err = net.ErrClosed
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		end()
		return nil, err
	}
	return end, nil
}

func (m *makings) enter(owner string) *maker {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.of[owner]
	if own == nil {
		own = &maker{places: make(chan struct{}, m.each)}
		m.of[owner] = own
	}
	own.users++
	return own
}

func (m *makings) leave(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if own := m.of[owner]; own.users > 1 {
		own.users--
	} else {
		delete(m.of, owner)
	}
}
