package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/netns"
)

// claimCard reserves network card nic, in network namespace ns, for this process until the
// result is closed or the process ends in any way. Two I/O units on one card would remove each
// other's devices.
//
// The claim is a lock (flock(2)) on a file in dir, which only users that run I/O units can write
// to. A socket in the abstract namespace (unix(7)) would be open to every local user: another one
// could bind it first, and no I/O unit would start. The file has the number of the network
// namespace in its name, because cards in different namespaces can have the same name. When a
// process is killed, the kernel releases its lock; the file that is left does not matter.
func claimCard(dir, nic, ns string) (*cardClaim, error) {
	fail := func(err error) (*cardClaim, error) {
		return nil, fmt.Errorf("lock network card %s: %w; only I/O units may write to %s: install -d -m 755 %s",
			nic, err, dir, dir)
	}
	number, err := namespaceNumber(ns)
	if err != nil {
		return nil, fmt.Errorf("lock network card %s: %w", nic, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("card-%s.%d.lock", nic, number))
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return fail(err)
		}
		current, err := lockFile(f, path)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, exit.With(exit.AddressInUse,
				fmt.Errorf("--lan: another I/O unit shares network card %s; stop that one, or choose another card", nic))
		case err != nil:
			f.Close()
			return fail(err)
		case current:
			return &cardClaim{f}, nil
		}
		f.Close() // its owner has removed it meanwhile: at path is another file, or none
	}
}

// lockFile locks f, which was opened at path, and reports whether f is still the file at path.
func lockFile(f *os.File, path string) (current bool, err error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	mode := mine.Mode().Perm()
	st, ok := mine.Sys().(*syscall.Stat_t)
	if ok && (mode&0o077 != 0 || st.Uid != 0 && st.Uid != uint32(os.Geteuid())) {
		return false, fmt.Errorf("%s belongs to user %d (mode %#o), who can hold the lock: remove it", path, st.Uid, mode)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// cardClaim is the claim on a network card; nil if the card needs none.
type cardClaim struct{ file *os.File }

// Close ends the claim. It removes the file while the file is still locked. Otherwise another
// process could lock the file before the removal, and later processes would not find this lock.
func (c *cardClaim) Close() error {
	if c == nil {
		return nil
	}
	if err := errors.Join(os.Remove(c.file.Name()), c.file.Close()); err != nil {
		return fmt.Errorf("unlock the network card: %w", err)
	}
	return nil
}

// namespaceNumber returns the inode number of a network namespace. No other namespace has the
// same number while this one is in use.
func namespaceNumber(ns string) (uint64, error) {
	var st unix.Stat_t
	err := netns.Do(ns, func() error {
		if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
			return &os.PathError{Op: "stat", Path: "/proc/thread-self/ns/net", Err: err}
		}
		return nil
	})
	return st.Ino, err
}
