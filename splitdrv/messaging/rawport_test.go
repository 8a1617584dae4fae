package messaging_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
)

// rawPort is a port on one end of a socket pair. The test uses the other end directly, because
// allocations of a test helper would be counted.
type rawPort struct{ fd int }

func (p rawPort) FD() int { return p.fd }

func (p rawPort) ReadFrame(slot []byte) ([]byte, error) {
	n, err := unix.Read(p.fd, slot)
	if err != nil {
		return nil, err
	}
	return slot[:n], nil
}

func (p rawPort) WriteFrame(frame []byte) error {
	_, err := unix.Write(p.fd, frame)
	return err
}

// newRawPort returns a port and the other end, which blocks.
func newRawPort(t *testing.T) (messaging.Port, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	return porttest.Batched{Single: rawPort{fds[0]}}, fds[1]
}
