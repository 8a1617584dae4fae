package statussock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// maxPath is the longest path of a socket in bytes: sun_path of unix(7) without
// the zero at its end.
const maxPath = 107

// elsewhere is the remedy for a path at which the socket cannot be.
const elsewhere = "put it elsewhere with --status-socket"

// served reports whether a process listens on the socket at path.
func served(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// isSocket reports whether there is a socket at path, or nothing.
func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().Type() == os.ModeSocket
}

// Discard removes the socket at path that a killed process has left, if there is one. A socket on
// which a process listens stays. A file that is not a socket stays too, and is an error.
func Discard(path string) error {
	if served(path) {
		return nil
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("status socket %s: there is something that is no socket; %s", path, elsewhere)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("status socket: remove what a killed process left: %w", err)
	}
	return nil
}

// listen makes a socket for its owner only, from its first moment on: the file gets the
// permissions that the socket has when it is bound (unix(7)).
func listen(path string) (net.Listener, error) {
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if controlErr := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); controlErr != nil {
			return controlErr
		}
		return err
	}}
	return cfg.Listen(context.Background(), "unix", path)
}
