package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
)

// TestLockGuest starts one run of the harness more than are allowed at a time. It expects the
// last one to wait until another one ends, or until it is interrupted.
func TestLockGuest(t *testing.T) {
	pattern := filepath.Join(t.TempDir(), "guest-%d")
	synctest.Test(t, func(t *testing.T) {
		var releases []func()
		for range parallelGuests {
			release, err := lockGuest(t.Context(), pattern)
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := lockGuest(ctx, pattern); !errors.Is(err, context.Canceled) {
			t.Errorf("one more that is interrupted: %v", err)
		}
		locked := make(chan error)
		go func() {
			release, err := lockGuest(t.Context(), pattern)
			if err == nil {
				release()
			}
			locked <- err
		}()
		synctest.Wait()
		select {
		case err := <-locked:
			t.Fatalf("one more: %v", err)
		default:
		}
		releases[1]()
		if err := <-locked; err != nil {
			t.Error(err)
		}
		releases[0]()
	})
	if _, err := lockGuest(t.Context(), filepath.Join(t.TempDir(), "none", "guest-%d")); err == nil {
		t.Error("a lock in a directory that does not exist")
	}
}
