package cards

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// space identifies a network namespace by its device and inode numbers (namespaces(7)) and its
// cookie (socket(7)). The kernel gives the numbers of a namespace that is gone to a new one, but not
// its cookie as long as the machine runs.
type space struct {
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Cookie uint64 `json:"cookie,omitzero"` // zero: unknown, as before Linux 5.14
}

// is reports whether both are the same namespace.
func (s space) is(other space) bool {
	return s.Dev == other.Dev && s.Ino == other.Ino &&
		(s.Cookie == other.Cookie || s.Cookie == 0 || other.Cookie == 0)
}

// heldSpace is a network namespace with a descriptor, which keeps it. So no other namespace gets
// its numbers.
type heldSpace struct {
	space
	file *os.File
}

// holdSpace returns the namespace at a path. A runtime that has unmounted a namespace may leave an
// empty file at the path. For such a file, the error is ENOENT.
func holdSpace(path string) (*heldSpace, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe would block
	if err != nil {
		return nil, err
	}
	fail := func(call string, err error) (*heldSpace, error) {
		f.Close()
		return nil, &os.PathError{Op: call, Path: path, Err: err}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return fail("fstatfs", err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return fail("fstatfs", unix.ENOENT)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fail("fstat", err)
	}
	h := &heldSpace{space{Dev: st.Dev, Ino: st.Ino}, f}
	if cookie, err := netns.Cookie(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil {
		h.Cookie = cookie
	}
	return h, nil
}

// spaceOf returns the network namespace of a transient card, or nil if there is none at its path.
func spaceOf(spec *Spec) *heldSpace {
	if !spec.Transient {
		return nil
	}
	h, err := holdSpace(spec.NetNS)
	if err != nil {
		return nil
	}
	return h
}

func (h *heldSpace) release() {
	if h != nil {
		h.file.Close()
	}
}

// isAt reports whether a path is that of the namespace. The error is that of holdSpace.
func (h *heldSpace) isAt(path string) (bool, error) {
	fail := func(call string, err error) (bool, error) {
		return false, &os.PathError{Op: call, Path: path, Err: err}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fail("statfs", err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return fail("statfs", unix.ENOENT)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fail("stat", err)
	}
	return h != nil && st.Dev == h.Dev && st.Ino == h.Ino, nil
}
