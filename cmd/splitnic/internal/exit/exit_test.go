package exit

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
)

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("other"), Failure},
		{Usagef("%w", os.ErrNotExist), Usage},
		{With(Keys, os.ErrNotExist), Keys},
		{os.ErrNotExist, Missing},
		{unix.ENODEV, Missing},
		{fmt.Errorf("%w: %w", host.ErrNetdeviceGone, unix.EBADFD), Missing},
		{statussock.ErrNobody, Missing},
		{unix.EPERM, Permission},
		{&session.UntrustedError{}, Keys},
		{session.ErrSecurityMode, Keys},
		{unix.EADDRINUSE, AddressInUse},
		{fmt.Errorf("%w: %w", tap.ErrExists, unix.EBUSY), AddressInUse},
		{tap.ErrExists, AddressInUse}, // for a plain device
		{&session.VersionError{}, Version},
		{With(TimedOut, statussock.ErrNobody), TimedOut},
	} {
		wrapped := c.err
		if wrapped != nil {
			wrapped = errors.Join(fmt.Errorf("wrapped: %w", c.err))
		}
		if got := Status(wrapped); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestOfService expects a service not to be started again after a mistake in its configuration,
// unless a netdevice waits for it.
func TestOfService(t *testing.T) {
	for _, c := range []struct {
		status       int
		socket, held string
		want         int
	}{
		{Usage, "/run/systemd/notify", "", Config}, {Usage, "/run/systemd/notify", "2", Usage}, {Usage, "", "", Usage},
		{Missing, "/run/systemd/notify", "", Missing}, {0, "/run/systemd/notify", "", 0},
	} {
		env := map[string]string{"NOTIFY_SOCKET": c.socket, "LISTEN_FDS": c.held}
		if got := OfService(c.status, func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
