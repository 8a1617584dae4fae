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

// leaving is what an attachment has for that. roster.mu guards it, but for told.
type leaving struct {
	known   bool // whether it is able: it is established
	able    bool // it has the feature drain
	asked   bool // since the I/O unit drains
	why     string
	stays   chan struct{} // of capacity one: the host has said why it stays
	telling chan struct{} // of capacity one: has a token while the host is told something
	told    bool          // that the I/O unit drains; with whoever has the token
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
