package frameasm

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExplain expects the advice for an administrator in the error. The library's advice for
// programmers, which distracts from the missing capability, has to be removed.
func TestExplain(t *testing.T) {
	err := Explain(errors.ErrUnsupported, "making a map", fmt.Errorf("map create: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", unix.EPERM))
	const want = "unsupported operation: making a map: operation not permitted " +
		"(needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN, and a seccomp filter that allows bpf)"
	if err.Error() != want || !errors.Is(err, unix.EPERM) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%q, want %q", err, want)
	}
}
