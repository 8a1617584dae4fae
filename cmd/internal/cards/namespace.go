package cards

import (
	"os"

	"golang.org/x/sys/unix"
)

// space identifies a network namespace by its device and inode numbers (namespaces(7)). They stay
// the same as long as a descriptor of the card's netdevice keeps the namespace.
type space struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// spaceAt returns the namespace at a path. A runtime that has unmounted a namespace may leave an
// empty file at the path. For such a file, the error is ENOENT.
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
	return space{st.Dev, st.Ino}, nil
}
