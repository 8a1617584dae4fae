package directed

import (
	"fmt"

	"github.com/splitnic/splitnic/protocol"
)

// StatusError is the answer to a request that was not carried out completely.
type StatusError struct {
	Status protocol.DirectedStatus
	Bytes  uint64 // number of bytes that were transferred
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("directed I/O after %d bytes: %v", e.Bytes, e.Status)
}

// Is reports whether target is a *StatusError with the same status. Bytes may differ.
func (e *StatusError) Is(target error) bool {
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status
}
