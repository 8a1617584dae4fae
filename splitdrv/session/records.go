package session

import (
	"net"
	"sync/atomic"
)

// records is the connection to which TLS writes its records. TLS counts a record before
// it writes it. When the write of one has failed, at a deadline for example, nothing may
// follow, not even the record by which TLS closes: the peer would take that for forged
// ("bad record MAC"), where the connection has only come to its end.
type records struct {
	net.Conn
	failed atomic.Pointer[error] // the error of a write
}

// Write implements net.Conn.
func (r *records) Write(b []byte) (int, error) {
	if err := r.failed.Load(); err != nil {
		return 0, *err
	}
	n, err := r.Conn.Write(b)
	if err != nil {
		r.failed.Store(&err)
	}
	return n, err
}
