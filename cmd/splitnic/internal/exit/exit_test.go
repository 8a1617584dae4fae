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
