package fabric

import "errors"

// RefusedError is the error of a post that the device has refused. Of a queue pair that has failed
// it is a consequence: some devices refuse such a post, others complete it as flushed.
type RefusedError struct {
	QPN   uint32
	Cause error
}

// Refused returns the error of a post to qp, nil if err is nil.
func Refused(qp QP, err error) error {
	if err == nil {
		return nil
	}
	return &RefusedError{qp.Num(), err}
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Cause.Error() }

// Unwrap returns the error of the device.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Consequence reports whether err can be the consequence of another failure of a queue pair, and
// returns the number of that.
func Consequence(err error) (qpn uint32, ok bool) {
	var wc *WCError
	var no *RefusedError
	switch {
	case errors.As(err, &wc):
		return wc.QPN, wc.Status == StatusWRFlushErr
	case errors.As(err, &no) && !errors.Is(err, ErrQueueFull):
		return no.QPN, true
	}
	return 0, false
}
