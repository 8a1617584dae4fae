// Package testenv checks for tests what their machine supports, and provides network namespaces
// and leak checks.
//
// A test that needs something the machine lacks is skipped, unless the
// environment variable SPLITNIC_REQUIRE lists what it needs: root, tun, rdma,
// tools, vm, pods, adapter, or all, separated by commas. Then the skip is a failure, so that
// a CI job cannot turn green by running nothing.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// requireVar is the environment variable that lists what must not be missing.
const requireVar = "SPLITNIC_REQUIRE"

// required reports whether list, the value of requireVar, names what.
func required(list, what string) bool {
	for _, f := range strings.Split(list, ",") {
		if f = strings.TrimSpace(f); f == what || f == "all" {
			return true
		}
	}
	return false
}

// Missing ends the test because the machine lacks what: it skips the test, or
// fails it if SPLITNIC_REQUIRE lists what.
func Missing(t testing.TB, what, format string, args ...any) {
	t.Helper()
	if required(os.Getenv(requireVar), what) {
		t.Fatalf(requireVar+" lists "+what+", but "+format, args...)
	}
	t.Skipf(format, args...)
}

// NeedRoot needs root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root", "this test needs root")
	}
}

// NeedTUN needs root and a usable /dev/net/tun.
func NeedTUN(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		Missing(t, "tun", "the tun driver is missing: %v", err)
	}
	f.Close()
}

// NeedRDMA needs at least n RDMA devices and returns the names of all.
func NeedRDMA(t testing.TB, n int) []string {
	t.Helper()
	entries, err := os.ReadDir("/sys/class/infiniband")
	if err != nil || len(entries) < n {
		Missing(t, "rdma", "%d RDMA devices are needed and %d are there", n, len(entries))
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// NeedVM needs root, and SPLITNIC_REQUIRE to list vm: a virtual machine takes long to boot.
func NeedVM(t testing.TB) {
	t.Helper()
	needAsked(t, "vm", "this test boots a virtual machine: make test-vm")
}

// NeedPods needs root, SPLITNIC_REQUIRE to list pods, and the programs of a container runtime.
func NeedPods(t testing.TB, names ...string) {
	t.Helper()
	needAsked(t, "pods", "this test runs a container runtime: make test-pods")
	NeedTools(t, names...)
}

func needAsked(t testing.TB, what, how string) {
	t.Helper()
	NeedRoot(t)
	if !required(os.Getenv(requireVar), what) {
		t.Skip(how)
	}
}

// NeedTools needs the given programs in the search path.
func NeedTools(t testing.TB, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			Missing(t, "tools", "program %s is missing: %v", n, err)
		}
	}
}

// Patience is the time after which a test gives up waiting for something that has to happen. It is
// no measure of speed: it ends a test that hangs, and costs nothing otherwise. It is long, because
// the machine can have much else to do, and a guest without KVM takes ten times as long.
const Patience = time.Minute

// Eventually waits until cond holds, and fails the test if that takes longer than Patience. It is for
// states of the kernel without notification.
func Eventually(t testing.TB, cond func() bool, format string, args ...any) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not after %v: "+format, append([]any{Patience}, args...)...)
		}
	}
}

// Program returns the path of a program of a package that is unpacked below build/debian of
// the checkout (scripts/unpack), and not installed.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir, err := above("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "build/debian", name)
	if _, err := os.Stat(path); err != nil {
		Missing(t, "tools", "%s is not unpacked (scripts/setup.sh test): %v", name, err)
	}
	return path
}

// KernelRelease returns the release of the running kernel (uname(2)).
func KernelRelease(t testing.TB) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return unix.ByteSliceToString(u.Release[:])
}
