package testenv

import (
	"testing"

	"golang.org/x/sys/unix"
)

// KernelRelease returns the release of the running kernel (uname(2)).
func KernelRelease(t testing.TB) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Release[:])
}
