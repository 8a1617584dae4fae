package daemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testenv"
)

// onlyLock returns the path of the only lock file in dir.
func onlyLock(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*.lock"))
	if err != nil || len(found) != 1 {
		t.Fatalf("lock files: %q, %v", found, err)
	}
	return found[0]
}

func TestClaimCard(t *testing.T) {
	testenv.NoLeaks(t)
	dir := filepath.Join(t.TempDir(), "run")
	// Any local user can listen on this address, which must have no effect.
	squat, err := net.Listen("unix", "@splitnic/iounit/eth1")
	if err == nil { // otherwise a test in another checkout listens there
		defer squat.Close()
	}
	first, err := claimCard(dir, "eth1", "")
	if err != nil {
		t.Fatal(err)
	}
	path := onlyLock(t, dir)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var end exit.Error
	if _, err := claimCard(dir, "eth1", ""); !errors.As(err, &end) || end.Status != exit.AddressInUse {
		t.Errorf("a second I/O unit on the card: %v", err)
	}
	other, err := claimCard(dir, "eth2", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	// A killed process leaves its lock file.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := claimCard(dir, "eth1", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestClaimCardBetweenCloses claims and releases the same card in many goroutines. It expects at
// most one claim at a time, although each release removes the file.
func TestClaimCardBetweenCloses(t *testing.T) {
	dir := t.TempDir()
	var holders sync.Mutex
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 200 {
				claim, err := claimCard(dir, "eth1", "")
				var end exit.Error
				if errors.As(err, &end) && end.Status == exit.AddressInUse {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !holders.TryLock() {
					t.Error("two have the card")
					return
				}
				runtime.Gosched()
				holders.Unlock()
				if err := claim.Close(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
}

// TestErrdocOfClaims expects documented errors for lock files that cannot be trusted, or not be
// made.
func TestErrdocOfClaims(t *testing.T) {
	dir := t.TempDir()
	claim, err := claimCard(dir, "eth1", "")
	if err != nil {
		t.Fatal(err)
	}
	path := onlyLock(t, dir)
	if err := claim.Close(); err != nil {
		t.Fatal(err)
	}
	for name, make := range map[string]func() error{
		"for everybody": func() error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666))
		},
		"a link": func() error { return os.Symlink("elsewhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := make(); err != nil {
				t.Fatal(err)
			}
			_, err := claimCard(dir, "eth1", "")
			if err == nil {
				t.Fatal("it is taken")
			}
			testenv.Ended(t, 1, err.Error())
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("below a file", func(t *testing.T) {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := claimCard(filepath.Join(file, "run"), "eth1", "")
		if !errors.Is(err, unix.ENOTDIR) {
			t.Fatal(err)
		}
		testenv.Ended(t, 1, err.Error())
	})
}

// TestNetnsClaimCard claims cards of the same name in different network namespaces, which
// succeeds, and one card under two names of its namespace, which fails.
func TestNetnsClaimCard(t *testing.T) {
	a, b := testenv.NetNS(t), testenv.NetNS(t)
	dir := t.TempDir()
	for _, ns := range []string{a, b} {
		claim, err := claimCard(dir, "lo", ns)
		if err != nil {
			t.Fatal(err)
		}
		defer claim.Close()
	}
	if _, err := claimCard(dir, "lo", "/run/netns/"+a); err == nil || !strings.Contains(err.Error(), "another I/O unit") {
		t.Errorf("the same namespace by its path: %v", err)
	}
}
