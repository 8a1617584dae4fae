// Package netns runs code in, and opens netlink handles to, other network
// namespaces.
//
// A namespace is given by a path (/proc/1234/ns/net), by a name of ip-netns(8) (a file in
// /run/netns), or by the empty string, which is the current one.
//
// A thread that has changed its namespace ends with the call, and does not return to the Go
// scheduler. So no goroutine can run in a wrong namespace, whatever fails.
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

// errNoReturn is returned by Do if the function has ended its goroutine.
var errNoReturn = errors.New("the function ended its goroutine instead of returning")

// Path returns the file of the namespace ns, where "" is the current one.
func Path(ns string) string {
	if ns == "" || strings.ContainsRune(ns, '/') {
		return ns
	}
	return filepath.Join(Dir, ns)
}

// Do calls fn in network namespace ns and returns its error. Descriptors that fn opens stay
// in the namespace. fn must not start goroutines that need the namespace. With an empty ns,
// Do only calls fn.
func Do(ns string, fn func() error) error {
	if ns == "" {
		return fn()
	}
	return OnThread(func() error { return DoHere(ns, fn) })
}

// DoHere is Do for callers within OnThread. It changes the network namespace of the calling
// thread permanently.
func DoHere(ns string, fn func() error) error {
	if ns != "" {
		if err := enter(ns); err != nil {
			return err
		}
	}
	return fn()
}

// OnThread calls fn on an operating-system thread that ends with the call. So fn may change
// attributes of the thread: namespaces, root directory, umask.
func OnThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			// The main thread cannot end, and /proc/self would show the changes. While this
			// goroutine occupies it, another thread calls fn.
			done <- OnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		// The goroutine stays locked, so the runtime ends the thread.
		err := errNoReturn
		defer func() { done <- err }()
		err = fn()
	}()
	return <-done
}

// enter moves the calling thread to ns permanently, unless it is there already.
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
		return nil // works without the capability for setns(2)
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

// Cookie returns the number of a network namespace that no other one of this boot of the machine
// has had (SO_NETNS_COOKIE). It fails before Linux 5.14.
func Cookie(ns string) (cookie uint64, err error) {
	err = Do(ns, func() error {
		s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer unix.Close(s)
		cookie, err = unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return os.NewSyscallError("getsockopt", err)
	})
	return cookie, err
}

// Links lists the network devices in the namespace of h. It repeats a listing during which a
// device has changed, because that can be inconsistent.
func Links(h *netlink.Handle) ([]netlink.Link, error) {
	for {
		links, err := h.LinkList()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return links, err
		}
	}
}

// Handle opens a route netlink handle for ns that any thread can use. The caller closes it.
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

// New creates an empty network namespace with a name of ip-netns(8).
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

// shareDir makes Dir a mount point with shared propagation, like ip-netns(8) and the CNI
// libraries do. This must precede the creation of names: names that exist when another
// program does it are mounted twice and cannot be deleted.
func shareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// If two processes do this at the same time, only one mounts. ip-netns(8) takes the
	// same lock. Closing the descriptor releases it.
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

// Delete removes the name of a namespace made by New. The kernel removes the namespace when
// nothing uses it.
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
