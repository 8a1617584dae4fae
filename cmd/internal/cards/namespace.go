package cards

import (
	"os"

	"golang.org/x/sys/unix"
)

// space is a network namespace, as the file system knows it (namespaces(7)). It stays the
// same for as long as a descriptor of the card's netdevice keeps the namespace.
type space struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// spaceAt is the namespace that has that path. When a runtime has unmounted one, an empty
// file may be left, which is none.
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
