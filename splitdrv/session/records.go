package session

import (
	"net"
	"sync/atomic"
)

// records is the connection to which TLS writes its records. TLS counts a record before it
// writes it. After a failed write, for example at a deadline, no further record may follow,
// not even the one with which TLS closes: the peer would take it for forged ("bad record
// MAC").
type records struct {
	net.Conn
	failed atomic.Pointer[error] // error of the failed write
}

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
