package eventfd_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/eventfd"
)

// TestRaiseAndLower raises an event twice, and lowers it with one read, or with two as a
// semaphore.
func TestRaiseAndLower(t *testing.T) {
	for flags, want := range map[int][]uint64{0: {2}, unix.EFD_SEMAPHORE: {1, 1}} {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC|flags)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		for range 2 {
			if err := eventfd.Raise(fd); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range want {
			got := uint64(0)
			if err := eventfd.Lower(fd, &got); err != nil || got != n {
				t.Errorf("with flags %#x: %d, %v; want %d", flags, got, err, n)
			}
		}
		if err := eventfd.Lower(fd, new(uint64)); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("with flags %#x, of an event that is down: %v", flags, err)
		}
	}
}

// TestErrors expects errors for a descriptor that does not exist.
func TestErrors(t *testing.T) {
	if err := eventfd.Raise(-1); !errors.Is(err, unix.EBADF) {
		t.Errorf("raise: %v", err)
	}
	if err := eventfd.Lower(-1, new(uint64)); !errors.Is(err, unix.EBADF) {
		t.Errorf("lower: %v", err)
	}
}

// TestDoesNotAllocate expects no allocations in Raise and Lower, which are called for each batch
// of frames.
func TestDoesNotAllocate(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	got := new(uint64)
	if n := testing.AllocsPerRun(100, func() {
		if errors.Join(eventfd.Raise(fd), eventfd.Lower(fd, got)) != nil {
			t.Fatal("an event that was raised is not up")
		}
		if eventfd.Lower(fd, got) == nil {
			t.Fatal("an event that was lowered is up")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
