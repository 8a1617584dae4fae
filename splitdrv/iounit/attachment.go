package iounit

import (
	"sync"

	"github.com/splitnic/splitnic/protocol"
)

// attachment is one host's session and everything it holds.
type attachment struct {
	host
	gone        chan struct{} // closed when everything is released
	established bool          // the session, at some time; of the goroutine that serves it
	leaving     leaving       // when the I/O unit drains

	mu       sync.Mutex // guards what follows, for Status
	services *services  // nil unless the session is established
	governed *services  // the same, but from before its first frame on: the policy can change
	mode     protocol.Mode
}

// show makes the session visible to Status, or takes it away.
func (a *attachment) show(s *services) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services, a.governed = s, s
}

// begin makes the session one that changes of the policy are about.
func (a *attachment) begin(s *services, mode protocol.Mode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.governed, a.mode = s, mode
}
