package main

import (
	"errors"
	"os"
	"syscall"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
)

// Exit statuses, for scripts and service managers.
const (
	exitFailure      = 1 // anything else
	exitUsage        = 2 // flags, arguments or the configuration file
	exitMissing      = 3 // a device, module, file or netdevice is missing
	exitPermission   = 4 // a capability or a limit
	exitKeys         = 5 // no key, or a peer that is not trusted
	exitAddressInUse = 6 // the port or the name is taken
	exitVersion      = 7 // the other half speaks another version
)

// exitError carries its exit status.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

// usageError is a mistake in flags, arguments or the configuration file.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// exitStatus is the status that the process ends with after err.
func exitStatus(err error) int {
	var exit exitError
	var usage usageError
	var untrusted *session.UntrustedError
	var version *session.VersionError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &untrusted), errors.Is(err, session.ErrSecurityMode):
		return exitKeys
	case errors.As(err, &version):
		return exitVersion
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EBUSY), errors.Is(err, tap.ErrExists):
		return exitAddressInUse
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOMEM):
		return exitPermission // memory is first of all RLIMIT_MEMLOCK
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO),
		errors.Is(err, host.ErrNetdeviceGone), errors.Is(err, statussock.ErrNobody):
		return exitMissing
	default:
		return exitFailure
	}
}
