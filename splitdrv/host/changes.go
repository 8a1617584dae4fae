package host

import "sync"

// signal signals a channel of capacity one. It never waits.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changes notifies any number of waiting goroutines.
type changes struct {
	mu sync.Mutex
	c  chan struct{} // nil: no goroutine waits
}

func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		c.c = make(chan struct{})
	}
	return c.c
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c != nil {
		close(c.c)
		c.c = nil
	}
}
