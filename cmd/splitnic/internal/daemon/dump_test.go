package daemon

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestNotDumpable(t *testing.T) {
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0) }()
	if err := notDumpable(); err != nil {
		t.Fatal(err)
	}
	if now, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); now != 0 || err != nil {
		t.Errorf("dumpable is %d, %v", now, err)
	}
}
