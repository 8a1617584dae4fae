package session

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets for how long data may be unacknowledged before the kernel ends the
// connection (TCP_USER_TIMEOUT of tcp(7)).
//
// The first seven retransmissions happen at equal intervals (TCP_THIN_LINEAR_TIMEOUTS;
// Documentation/networking/tcp-thin.rst). With exponential back-off there could be none in the
// second half of d, so that a gap of half of d would end the connection. The kernel takes a
// connection for thin only with a congestion control that has a slow-start threshold, which bbr
// does not have, so it is set to reno, which each kernel has. Where the administrator has forbidden
// reno (tcp_allowed_congestion_control), this is ignored.
//
// setUserTimeout does nothing for connections other than TCP.
func setUserTimeout(nc net.Conn, d time.Duration) error {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err == nil {
		var setErr error
		err = raw.Control(func(fd uintptr) {
			setErr = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds())),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1))
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		})
		err = errors.Join(err, setErr)
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT and TCP_THIN_LINEAR_TIMEOUTS: %w", err)
	}
	return nil
}
