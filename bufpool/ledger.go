package bufpool

import "fmt"

// Ledger counts the elements of one pool by state. The initiator's side uses
// Available and Out, the target's side the other three.
type Ledger struct {
	Elements  int `json:"elements"`
	Available int `json:"available"` // initiator: may be written
	Out       int `json:"out"`       // initiator: taken for a transfer, and not yet returned
	Lent      int `json:"lent"`      // target: the peer may write it, or has and it was not indicated yet
	Consumed  int `json:"consumed"`  // target: indicated, and not yet taken by the port
	Returning int `json:"returning"` // target: free, and not yet returned to the peer
}

// Check returns an error if the states do not add up to the number of elements.
func (l Ledger) Check() error {
	if sum := l.Available + l.Out + l.Lent + l.Consumed + l.Returning; sum != l.Elements {
		return fmt.Errorf("bufpool: %d elements are accounted for as %d: %+v", l.Elements, sum, l)
	}
	return nil
}
