package framefd_test

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/framefd"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestClose closes a descriptor while a reader and a writer use it for several frames. It
// expects Close to wait for them, and that no reader or writer can begin afterwards.
func TestClose(t *testing.T) {
	testenv.NoLeaks(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	f := framefd.New(fds[0])
	if err := f.UseRings(); err == nil || f.Rings() {
		t.Error("a socket has rings")
	}
	if _, err := f.BeginReads(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.BeginWrites(); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	testenv.Eventually(t, func() bool {
		// The writer begins again until this fails.
		f.EndWrites()
		_, err := f.BeginWrites()
		return errors.Is(err, net.ErrClosed)
	}, "the writer is told")
	select {
	case <-closed:
		t.Error("closed although the reader has not ended")
	default:
	}
	f.EndReads()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := f.BeginReads(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reader after Close: %v", err)
	}
	messages := make([]unix.Mmsghdr, 1)
	if _, err := f.ReceiveMany(messages, 0); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ReceiveMany after Close: %v", err)
	}
	if _, err := f.SendMany(messages); !errors.Is(err, net.ErrClosed) {
		t.Errorf("SendMany after Close: %v", err)
	}
}
