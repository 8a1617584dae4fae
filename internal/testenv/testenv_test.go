package testenv

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

func TestRequired(t *testing.T) {
	for _, tc := range []struct {
		list, what string
		want       bool
	}{
		{"", "root", false},
		{"root", "root", true},
		{"tun, root", "root", true},
		{"tun,rdma", "root", false},
		{"rooted", "root", false},
		{"all", "rdma", true},
	} {
		if got := required(tc.list, tc.what); got != tc.want {
			t.Errorf("required(%q, %q) = %t", tc.list, tc.what, got)
		}
	}
}

// recorder is a testing.TB that records whether the test was skipped or failed.
type recorder struct {
	testing.TB
	skipped, failed bool
	cleanups        []func()
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.skipped = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true }
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Error(...any)          { r.failed = true }
func (r *recorder) Failed() bool          { return r.failed }
func (r *recorder) Cleanup(f func())      { r.cleanups = append(r.cleanups, f) }

func TestMissing(t *testing.T) {
	t.Setenv(requireVar, "")
	r := &recorder{TB: t}
	NeedTools(r, "no-such-program-anywhere")
	if !r.skipped || r.failed {
		t.Errorf("without requirement: skipped %t, failed %t", r.skipped, r.failed)
	}
	t.Setenv(requireVar, "tools")
	r = &recorder{TB: t}
	NeedTools(r, "no-such-program-anywhere")
	if !r.failed {
		t.Error("a required tool is missing and the test did not fail")
	}
}

func TestNoLeaksSeesLeaks(t *testing.T) {
	r := &recorder{TB: t}
	NoLeaks(r)
	p, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cleanups[0]()
	p.Close()
	w.Close()
	if !r.failed {
		t.Error("two open descriptors were not noticed")
	}

	r = &recorder{TB: t}
	NoLeaks(r)
	r.cleanups[0]()
	if r.failed {
		t.Error("a leak was seen where none is")
	}
}

func TestNetnsHelpers(t *testing.T) {
	NeedRoot(t)
	NoLeaks(t)
	ns1, ns2 := NetNS(t), NetNS(t)
	Veth(t, ns1, "left", ns2, "right")
	Bridge(t, ns2, "br0", "right")
	if got := strings.Join(Links(t, ns2), " "); got != "lo right br0" && got != "lo br0 right" {
		t.Errorf("links in %s: %s", ns2, got)
	}
	if Link(t, ns1, "left") == nil || Link(t, ns1, "right") != nil {
		t.Error("the pair is not where it should be")
	}

	var before, inside, after unix.Stat_t
	stat := func(s *unix.Stat_t) error { return unix.Stat("/proc/thread-self/ns/net", s) }
	if err := stat(&before); err != nil {
		t.Fatal(err)
	}
	if err := netns.Do(ns1, func() error { return stat(&inside) }); err != nil {
		t.Fatal(err)
	}
	if err := stat(&after); err != nil {
		t.Fatal(err)
	}
	if inside.Ino == before.Ino || after.Ino != before.Ino {
		t.Errorf("namespaces before, inside and after: %d, %d, %d", before.Ino, inside.Ino, after.Ino)
	}
	if err := netns.Do("sntest-none", func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("entering a namespace that does not exist: %v", err)
	}
	if err := netns.New(ns1); err == nil {
		t.Error("a namespace could be made twice")
	}
}

// TestNetnsDirIsShared makes a namespace where /run/netns is an empty directory, and another one
// with `ip netns`, which makes the directory a mount. It expects that both can be deleted.
func TestNetnsDirIsShared(t *testing.T) {
	NeedRoot(t)
	NeedTools(t, "ip")
	const inside = "SPLITNIC_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestNetnsDirIsShared$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := netns.New("sntest-ours"); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"add", "delete"} {
		if out, err := exec.Command("ip", "netns", what, "sntest-theirs").CombinedOutput(); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
	}
	if err := netns.Delete("sntest-ours"); err != nil {
		t.Error(err)
	}
}
