package directed

import (
	"fmt"

	"github.com/splitnic/splitnic/protocol"
)

// StatusError is the answer to a request that was not carried out completely.
type StatusError struct {
	Status protocol.DirectedStatus
	Done   int    // number of transactions that were carried out completely
	Bytes  uint64 // number of bytes that were transferred, by those and by the next one
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("directed I/O after %d transactions and %d bytes: %v", e.Done, e.Bytes, e.Status)
}

// Is reports whether target is a *StatusError with the same status. Done and Bytes may differ.
func (e *StatusError) Is(target error) bool {
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status
}
