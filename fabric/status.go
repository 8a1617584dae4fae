package fabric

import (
	"fmt"

	"github.com/splitnic/splitnic/internal/printable"
)

// Status is the status of a completion: the values of enum ibv_wc_status in
// rdma-core's <infiniband/verbs.h>.
type Status uint32

// The statuses that a reliable or unreliable connection can report.
const (
	StatusSuccess Status = iota
	StatusLocLenErr
	StatusLocQPOpErr
	StatusLocEECOpErr
	StatusLocProtErr
	StatusWRFlushErr
	StatusMWBindErr
	StatusBadRespErr
	StatusLocAccessErr
	StatusRemInvReqErr
	StatusRemAccessErr
	StatusRemOpErr
	StatusRetryExcErr
	StatusRNRRetryExcErr
	StatusLocRDDViolErr
	StatusRemInvRDReqErr
	StatusRemAbortErr
	StatusInvEECNErr
	StatusInvEECStateErr
	StatusFatalErr
	StatusRespTimeoutErr
	StatusGeneralErr
)

var statusText = [...]string{
	StatusSuccess:        "success",
	StatusLocLenErr:      "local length error",
	StatusLocQPOpErr:     "local QP operation error",
	StatusLocEECOpErr:    "local EE context operation error",
	StatusLocProtErr:     "local protection error",
	StatusWRFlushErr:     "work request flushed",
	StatusMWBindErr:      "memory window bind error",
	StatusBadRespErr:     "bad response",
	StatusLocAccessErr:   "local access error",
	StatusRemInvReqErr:   "remote invalid request",
	StatusRemAccessErr:   "remote access error",
	StatusRemOpErr:       "remote operation error",
	StatusRetryExcErr:    "transport retry counter exceeded",
	StatusRNRRetryExcErr: "receiver-not-ready retry counter exceeded",
	StatusLocRDDViolErr:  "local RDD violation",
	StatusRemInvRDReqErr: "remote invalid RD request",
	StatusRemAbortErr:    "remote aborted",
	StatusInvEECNErr:     "invalid EE context number",
	StatusInvEECStateErr: "invalid EE context state",
	StatusFatalErr:       "fatal error",
	StatusRespTimeoutErr: "response timeout",
	StatusGeneralErr:     "general error",
}

// String returns a description of the status.
func (s Status) String() string { return printable.Name(statusText[:], s, "status") }

// WCError is the error of a failed work completion. It has no opcode and length, because these
// are not valid in a failed completion.
type WCError struct {
	Status    Status
	VendorErr uint32
	QPN       uint32
	ID        uint64
}

// Error implements error.
func (e *WCError) Error() string {
	return fmt.Sprintf("queue pair %#x: %v (vendor error %#x)", e.QPN, e.Status, e.VendorErr)
}

// Is reports whether target is a *WCError with the same status, so that
// errors.Is(err, &WCError{Status: s}) tests for a status.
func (e *WCError) Is(target error) bool {
	t, ok := target.(*WCError)
	return ok && t.Status == e.Status
}
