// Package exit defines the exit statuses of splitnic, for scripts and service managers, and the
// status of each error.
package exit

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
)

// The exit statuses.
const (
	Failure      = 1 // anything else
	Usage        = 2 // flags, arguments or the configuration file
	Missing      = 3 // a device, module, file or netdevice is missing
	Permission   = 4 // a missing capability, or a limit
	Keys         = 5 // no key, or a peer that is not trusted
	AddressInUse = 6 // the port or the name is taken
	Version      = 7 // the peer speaks another version
	TimedOut     = 8 // a condition was not met in time
	// Config is Usage for a service manager that is not to start the process again: EX_CONFIG of
	// sysexits.h. A panic of Go has the status 2, too.
	Config = 78
)

// OfService returns the exit status of a daemon for the status that Status has returned. getenv is
// os.Getenv at the start. A service manager that keeps netdevices for the process (sd_listen_fds(3))
// has to try again, because they are removed when it gives up.
func OfService(status int, getenv func(string) string) int {
	if status == Usage && getenv("NOTIFY_SOCKET") != "" && getenv("LISTEN_FDS") == "" {
		return Config
	}
	return status
}

// Error is an error with an exit status.
type Error struct {
	Status int
	Err    error
}

func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its status.
func (e Error) Unwrap() error { return e.Err }

// With returns err with an exit status.
func With(status int, err error) error { return Error{status, err} }

// Usagef returns an error about flags, arguments or the configuration file, with status Usage.
func Usagef(format string, args ...any) error {
	return Error{Usage, fmt.Errorf(format, args...)}
}

// Status returns the exit status of the process for err.
func Status(err error) int {
	var exit Error
	var untrusted *session.UntrustedError
	var version *session.VersionError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.Status
	case errors.As(err, &untrusted), errors.Is(err, session.ErrSecurityMode):
		return Keys
	case errors.As(err, &version):
		return Version
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EBUSY), errors.Is(err, tap.ErrExists):
		return AddressInUse
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOMEM):
		return Permission // ENOMEM is most likely due to RLIMIT_MEMLOCK
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO),
		errors.Is(err, host.ErrNetdeviceGone), errors.Is(err, statussock.ErrNobody):
		return Missing
	default:
		return Failure
	}
}
