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

// spaceAt returns the namespace at a path, without its cookie. A runtime that has unmounted a
// namespace may leave an empty file at the path. For such a file, the error is ENOENT.
func spaceAt(path string) (space, error) {
	fail := func(call string, err error) (space, error) {
		return space{}, &os.PathError{Op: call, Path: path, Err: err}
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
	return space{Dev: st.Dev, Ino: st.Ino}, nil
}

// holdSpace returns the namespace at a path. The error is that of spaceAt.
func holdSpace(path string) (*heldSpace, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe would block
	if err != nil {
		return nil, err
	}
	held := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	in, err := spaceAt(held)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if cookie, err := netns.Cookie(held); err == nil {
		in.Cookie = cookie
	}
	return &heldSpace{in, f}, nil
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

// isAt reports whether a path is that of the namespace. The error is that of spaceAt.
func (h *heldSpace) isAt(path string) (bool, error) {
	there, err := spaceAt(path)
	return err == nil && h != nil && h.is(there), err
}
