package cards

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(t.TempDir(), "state", "cards"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *Store) names(t *testing.T) (names []string) {
	t.Helper()
	specs, _, errs := s.Load()
	for _, err := range errs {
		t.Error(err)
	}
	for _, spec := range specs {
		names = append(names, spec.Name)
	}
	return names
}

// TestStore records and deletes cards.
func TestStore(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"b", "a", "b"} {
		if err := s.Put(&Spec{Name: name, Netdevice: name}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.names(t); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
	if info, err := os.Stat(s.path("a")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for range 2 { // the second time it does not exist
		if err := s.Delete("a"); err != nil {
			t.Error(err)
		}
	}
	if got := s.names(t); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%v", got)
	}
}

// TestStoreIsOne opens one state directory twice, as two agents would. It expects an error.
func TestStoreIsOne(t *testing.T) {
	s := newStore(t)
	if _, err := OpenStore(s.dir); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
}

// TestStoreUnwritable expects an error for a directory in which no card can be recorded, which
// names the directory.
func TestStoreUnwritable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cards")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	unwritable(t, dir)
	s, err := OpenStore(dir)
	if err == nil {
		s.Close()
		t.Fatal("the directory was accepted")
	}
	for _, part := range []string{dir, "--state"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %s: %v", part, err)
		}
	}
}

// TestStoreBecomesUnwritable has a directory that cannot be written to any longer. It expects
// that recording or deleting a card is an error, and deleting one without a record is not.
func TestStoreBecomesUnwritable(t *testing.T) {
	s := newStore(t)
	if err := s.Put(&Spec{Name: "there", Netdevice: "there"}); err != nil {
		t.Fatal(err)
	}
	unwritable(t, s.dir)
	if err := s.Put(&Spec{Name: "late", Netdevice: "late"}); err == nil {
		t.Error("a card was recorded")
	}
	if err := s.Delete("late"); err != nil {
		t.Error(err)
	}
	if err := s.Delete("there"); err == nil {
		t.Error("a card was forgotten")
	}
}

// unwritable makes a directory read-only until the end of the test. For root, this is a
// read-only mount in a new mount namespace of this thread, which is not used after the test. For
// other users, it is the mode of the directory.
func unwritable(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		return
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		source, target string
		flags          uintptr
	}{
		{"", "/", unix.MS_REC | unix.MS_PRIVATE},
		{dir, dir, unix.MS_BIND},
		{"", dir, unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY},
	} {
		if err := unix.Mount(m.source, m.target, "", m.flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestStoreDamage has unusable files beside a good one. It expects one error for each, which
// names the file, and the files to stay.
func TestStoreDamage(t *testing.T) {
	s := newStore(t)
	bad := map[string]string{
		"half": `{"version":1,"spec":{"na`, "empty": "", "later": `{"version":2,"spec":{"name":"later"}}`,
		"other": `{"version":1,"spec":{"name":"another"}}`, "odd": `{"version":1,"spec":{"name":"odd","mtu":1}}`,
		"field": `{"version":1,"spec":{"name":"field","colour":"red"}}`,
	}
	for name, text := range bad {
		if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(&Spec{Name: "good", Netdevice: "good"}); err != nil {
		t.Fatal(err)
	}
	// renameio leaves the first file when the machine stops; the second is no card's.
	for _, name := range []string{".good.json123", "README"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	specs, gone, errs := s.Load()
	if len(specs) != 1 || specs[0].Name != "good" || len(gone) != 0 || len(errs) != len(bad) {
		t.Errorf("%+v, %v, %v", specs, gone, errs)
	}
	for name := range bad {
		if !slices.ContainsFunc(errs, func(err error) bool { return strings.Contains(err.Error(), s.path(name)) }) {
			t.Errorf("no error names the file of %s: %v", name, errs)
		}
		if _, err := os.Stat(s.path(name)); err != nil {
			t.Error(err)
		}
	}
}

// TestStoreBoot loads the cards after a reboot of the machine. It expects those to be reported as
// gone whose network namespaces do not exist any more, and no others.
func TestStoreBoot(t *testing.T) {
	s := newStore(t)
	for name, ns := range map[string]string{"own": "", "there": "/proc/self/ns/net", "pod": "/run/netns/no-such-pod"} {
		if err := s.Put(&Spec{Name: name, Netdevice: name, NetNS: ns}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.names(t); !slices.Equal(got, []string{"own", "pod", "there"}) {
		t.Errorf("in the same boot: %v", got)
	}
	s.boot = "another"
	specs, gone, errs := s.Load()
	if len(specs) != 2 || len(gone) != 1 || gone[0].Name != "pod" || errs != nil {
		t.Errorf("%+v, %+v, %v", specs, gone, errs)
	}
}

// TestStoreLaterBoot has the namespace of a card disappear after a Load in a later boot has found
// it. It expects the card to stay, as one that was made in that boot.
func TestStoreLaterBoot(t *testing.T) {
	s := newStore(t)
	ns := filepath.Join(t.TempDir(), "pod")
	if err := os.WriteFile(ns, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(&Spec{Name: "pod", Netdevice: "pod", NetNS: ns}); err != nil {
		t.Fatal(err)
	}
	s.boot = "another"
	if got := s.names(t); !slices.Equal(got, []string{"pod"}) {
		t.Fatalf("in the next boot: %v", got)
	}
	if err := os.Remove(ns); err != nil {
		t.Fatal(err)
	}
	if specs, gone, errs := s.Load(); len(specs) != 1 || len(gone) != 0 || errs != nil {
		t.Errorf("%+v, %+v, %v", specs, gone, errs)
	}
}
