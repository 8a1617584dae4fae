package bufpool

import "fmt"

// Ledger counts the elements of one pool by state. The initiator's side uses
// Available and Out, the target's side the other three.
type Ledger struct {
	Elements  int `json:"elements"`
	Available int `json:"available"` // initiator: may be written
	Out       int `json:"out"`       // initiator: written, or being written, and not yet returned
	Lent      int `json:"lent"`      // target: the peer's to write, or written and not yet seen
	Consumed  int `json:"consumed"`  // target: indicated, being handed to the port
	Returning int `json:"returning"` // target: free, not yet returned to the peer
}

// Check reports a ledger whose states do not add up to its elements.
func (l Ledger) Check() error {
	if sum := l.Available + l.Out + l.Lent + l.Consumed + l.Returning; sum != l.Elements {
		return fmt.Errorf("bufpool: %d elements are accounted for as %d: %+v", l.Elements, sum, l)
	}
	return nil
}
