package iounit

import (
	"sync"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// attachment is the session of a host with everything that belongs to it.
type attachment struct {
	host
	gone        chan struct{} // closed when everything is released
	established bool          // the session was established; only the goroutine that serves it uses this
	leaving     leaving       // state of a drain
	keys        *seal.Keys    // of frames and messages; nil: they are not encrypted

	mu       sync.Mutex // guards the fields below
	services *services  // nil unless the session is established
	governed *services  // like services, but already set before the first frame, for changes of the policy
	mode     protocol.Mode
}

// leaving is the state of an attachment while the I/O unit is being drained. roster.mu
// guards it, except told.
type leaving struct {
	known   bool // able is known, because the session is established
	able    bool // the session has the feature drain
	asked   bool // the host was asked to move
	why     string
	stays   chan struct{} // signaled when the host has reported why it stays; capacity one
	telling chan struct{} // has a token while a message is sent to the host; capacity one
	told    bool          // the host was told of the drain; guarded by the token
}

// show makes the session visible to Status; nil removes it.
func (a *attachment) show(s *services) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.services, a.governed = s, s
}

// begin makes changes of the policy apply to the session.
func (a *attachment) begin(s *services, mode protocol.Mode) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.governed, a.mode = s, mode
}
