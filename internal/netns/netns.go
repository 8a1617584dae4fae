// Package netns runs code in, and opens netlink handles to, other network
// namespaces.
//
// A namespace is named by a path (/proc/1234/ns/net), by a name as ip-netns(8)
// uses it (under /run/netns), or by the empty string for the current one.
//
// A thread that has changed its namespace is never given back to the Go
// scheduler: it dies with the call. So no other goroutine can ever find itself
// in the wrong namespace, whatever fails.
package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Dir is where ip-netns(8) keeps named namespaces.
const Dir = "/run/netns"

// errNoReturn is what Do returns when its function ended the goroutine.
var errNoReturn = errors.New("the function ended its goroutine instead of returning")

// Path returns the file that stands for the namespace ns, "" for the current
// one.
func Path(ns string) string {
	if ns == "" || strings.ContainsRune(ns, '/') {
		return ns
	}
	return filepath.Join(Dir, ns)
}

// Do calls fn in network namespace ns and returns its error. Descriptors that
// fn opens keep the namespace for as long as they live. fn must not start
// goroutines that rely on the namespace. With an empty ns it just calls fn.
func Do(ns string, fn func() error) error {
	if ns == "" {
		return fn()
	}
	return OnThread(func() error { return DoHere(ns, fn) })
}

// DoHere is Do for a function that is already called by OnThread: it changes
// the network namespace of the calling thread for good.
func DoHere(ns string, fn func() error) error {
	if ns != "" {
		if err := enter(ns); err != nil {
			return err
		}
	}
	return fn()
}

// OnThread calls fn on an operating-system thread that ends with the call, so
// that fn may change what belongs to the thread: namespaces, root, umask.
func OnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread cannot end, and /proc/self would show the
			// changes. While it is held here, another one does the work.
			done <- OnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		// Locked to the end: the runtime then ends the thread.
		err := errNoReturn
		defer func() { done <- err }()
		err = fn()
	}()
	return <-done
}

// enter moves the calling thread to ns for good, unless it is there.
func enter(ns string) error {
	f, err := os.OpenFile(Path(ns), os.O_RDONLY|unix.O_NONBLOCK, 0) // opening a pipe would block
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("opening network namespace %q: %w (ip netns list shows the named ones; a path must contain a slash)", ns, err)
		}
		return fmt.Errorf("opening network namespace %q: %w", ns, err)
	}
	defer f.Close()
	if isHere(f) {
		return nil // without the capability that entering takes
	}
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("entering network namespace %q: %w (needs CAP_SYS_ADMIN)", ns, err)
		}
		return fmt.Errorf("entering network namespace %q: %w", ns, err)
	}
	return nil
}

// isHere reports whether f is the calling thread's network namespace.
func isHere(f *os.File) bool {
	var there, here unix.Stat_t
	if unix.Fstat(int(f.Fd()), &there) != nil || unix.Stat("/proc/thread-self/ns/net", &here) != nil {
		return false
	}
	return there.Dev == here.Dev && there.Ino == here.Ino
}

// Links lists the devices that h sees. A listing during which a device changed
// can be wrong; it is done again.
func Links(h *netlink.Handle) ([]netlink.Link, error) {
	for {
		links, err := h.LinkList()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return links, err
		}
	}
}

// Handle opens a route netlink handle that works in ns from any thread. The
// caller closes it.
func Handle(ns string) (*netlink.Handle, error) {
	var h *netlink.Handle
	err := Do(ns, func() error {
		var err error
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	return h, nil
}

// New makes an empty network namespace and gives it a name that ip-netns(8)
// sees too.
func New(name string) error {
	if name == "" || strings.ContainsRune(name, '/') || name == "." || name == ".." {
		return fmt.Errorf("network namespace %q: not a valid name", name)
	}
	err := OnThread(func() error {
		if err := shareDir(); err != nil {
			return err
		}
		handle, err := netns.NewNamed(name)
		if err == nil {
			err = handle.Close()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("making network namespace %q: %w", name, err)
	}
	return nil
}

// shareDir makes Dir a mount of its own that is shared with other mount namespaces, as
// ip-netns(8) and the libraries of CNI do. It has to come before the names: those that
// are there when somebody else does it are mounted twice, and cannot be deleted.
func shareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Of two at the same time, which ip-netns(8) takes the same lock for, only one
	// mounts. It goes with the descriptor.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", Dir, err)
	}
	share := func() error { return unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	if err := share(); !errors.Is(err, unix.EINVAL) { // no mount
		return err
	}
	if err := unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", Dir, err)
	}
	return share()
}

// Delete takes the name away from a namespace made by New. The namespace goes
// when nothing uses it any more.
func Delete(name string) error {
	err := netns.DeleteNamed(name)
	if errors.Is(err, unix.EINVAL) { // not mounted any more
		err = os.Remove(Path(name))
	}
	if err != nil {
		return fmt.Errorf("deleting network namespace %q: %w", name, err)
	}
	return nil
}
