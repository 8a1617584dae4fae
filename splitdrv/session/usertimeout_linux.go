package session

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout bounds how long data may stay unacknowledged before the kernel
// gives the connection up (TCP_USER_TIMEOUT of tcp(7)). Connections other than
// TCP have no such bound.
func setUserTimeout(nc net.Conn, d time.Duration) error {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	if err == nil {
		err = setErr
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}
