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
// process whose workers move the frames of the sessions that there are: half of
// the processors are theirs, and those who come wait for each other. Whoever asks
// for many sessions waits for itself. It may be used by several goroutines.
type makings struct {
	places chan struct{} // taken by sending

	mu sync.Mutex
	of map[string]*maker
}

// maker is somebody who has sessions made, or waits for that.
type maker struct {
	places chan struct{} // of its own; it may have half of those that there are
	users  int
}

func newMakings() *makings {
	return &makings{places: make(chan struct{}, max(runtime.NumCPU()/2, 1)), of: make(map[string]*maker)}
}

// take waits until a session of that owner can be made: until deadline at most, or
// until ctx or gone is done. Without an error, end must be called, and does nothing
// the second time.
func (m *makings) take(ctx context.Context, gone <-chan struct{}, deadline time.Time, owner string) (end func(), err error) {
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
		own = &maker{places: make(chan struct{}, max(cap(m.places)/2, 1))}
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
