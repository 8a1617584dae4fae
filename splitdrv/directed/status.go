package directed

import (
	"fmt"

	"github.com/splitnic/splitnic/protocol"
)

// StatusError is the answer to a request that was not carried out as a whole.
type StatusError struct {
	Status protocol.DirectedStatus
	Bytes  uint64 // that were transferred
}

// Error says what happened.
func (e *StatusError) Error() string {
	return fmt.Sprintf("directed I/O after %d bytes: %v", e.Bytes, e.Status)
}

// Is makes errors of the same status equal, whatever was transferred.
func (e *StatusError) Is(target error) bool {
	t, ok := target.(*StatusError)
	return ok && t.Status == e.Status
}
