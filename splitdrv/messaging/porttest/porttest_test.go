package porttest

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestClosed uses a closed port, when the number of its descriptor is used again.
func TestClosed(t *testing.T) {
	p, w, err := Open(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	other, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Only the runtime opens other descriptors here.
	if err := unix.Dup3(other, p.FD(), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(p.FD())
	if _, err := p.ReadFrame(make([]byte, 64)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("reading: %v", err)
	}
	if err := p.WriteFrame(make([]byte, 8)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("writing: %v", err)
	}
	if n, err := unix.Read(other, make([]byte, 8)); err != nil {
		t.Errorf("somebody else's eventfd was read: %d, %v", n, err)
	}
}
