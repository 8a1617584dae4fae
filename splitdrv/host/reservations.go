package host

import (
	"context"
	"sync"
)

// reservations has an entry for each I/O unit with which a goroutine opens a session on standby,
// because an I/O unit has at most one such session of a host. Any goroutine may use it.
type reservations struct {
	mu    sync.Mutex
	units map[string]chan struct{} // by address; closed when the reservation is over
}

// reserve waits until no other goroutine has reserved an I/O unit, and reserves it until release
// is called.
func (r *reservations) reserve(ctx context.Context, addr string) (release func(), err error) {
	for {
		r.mu.Lock()
		busy := r.units[addr]
		if busy == nil {
			over := make(chan struct{})
			r.units[addr] = over
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				delete(r.units, addr)
				r.mu.Unlock()
				close(over)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
