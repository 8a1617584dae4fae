package testenv

import (
	"testing"

	"golang.org/x/sys/unix"
)

// KernelRelease is the release of the kernel that runs, as uname(2) tells it.
func KernelRelease(t testing.TB) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Release[:])
}
