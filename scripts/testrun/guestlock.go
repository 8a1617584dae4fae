package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// parallelGuests is the greatest number of runs of the harness at a time, of all checkouts
	// on a machine together. If each checkout had so many, emulated guests would get too little
	// processor time, and the time limits of tests would be too short.
	parallelGuests = 2
	// guestLock is the pattern of the names of lock files. Each run of the harness locks one.
	guestLock = "/tmp/splitnic-test-guest-%d"
)

// lockGuest waits until fewer than parallelGuests runs of the harness are active on this
// machine, of all checkouts together. It then counts one more, until release is called or the
// process ends. pattern is the pattern of the names of lock files.
func lockGuest(ctx context.Context, pattern string) (release func(), err error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		for i := range parallelGuests {
			f, err := tryLock(fmt.Sprintf(pattern, i))
			if err != nil {
				return nil, err
			}
			if f != nil {
				return func() { f.Close() }, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLock opens and locks a file. It returns nil if the file is locked already.
func tryLock(path string) (*os.File, error) {
	// The kernel refuses O_CREATE for another user's file in /tmp (fs.protected_regular).
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("counting the runs of the harness: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}
