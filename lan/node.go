package lan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// openNodes opens the character device of a macvtap n times. It uses /dev/tapN if that is
// the right device, which takes no privilege.
//
// /dev/tapN is not always the right one. udev or devtmpfs makes it for the initial network
// namespace only, and not in containers, and N may be the index of a device in another
// namespace. In these cases openNodes reads the device number from a sysfs that is mounted
// in the right network namespace, and makes a node for it. Both are in a mount namespace
// that ends with the thread.
func openNodes(ns, name string, index, n int) ([]int, error) {
	if ns == "" {
		if node, ok := ownNode(name, index); ok {
			return openNode(node, name, n)
		}
	}
	var fds []int
	err := netns.OnThread(func() error {
		return netns.DoHere(ns, func() (err error) {
			fds, err = openNodesHere(name, index, n)
			return err
		})
	})
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w (needs CAP_SYS_ADMIN, CAP_MKNOD and, in a container, access to the character device; packet:NIC needs neither)", err)
	}
	return fds, err
}

func openNodesHere(name string, index, n int) ([]int, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, os.NewSyscallError("mount private", err)
	}
	// The new file system covers an existing directory, for this thread only. sysfs is mounted
	// below it, and not on /sys: if the same sysfs were mounted there already, the kernel would
	// refuse the mount with EBUSY.
	const dev, sys = "/dev", "/dev/sys"
	if err := unix.Mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=64k,mode=700"); err != nil {
		return nil, os.NewSyscallError("mount tmpfs", err)
	}
	if err := unix.Mkdir(sys, 0o700); err != nil {
		return nil, os.NewSyscallError("mkdir", err)
	}
	if err := unix.Mount("sysfs", sys, "sysfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC,
		""); err != nil {
		return nil, os.NewSyscallError("mount sysfs", err)
	}
	number, err := deviceNumber(filepath.Join(sys, "class/net", name, fmt.Sprintf("tap%d", index), "dev"))
	if err != nil {
		return nil, err
	}
	node := filepath.Join(dev, "tap")
	if err := unix.Mknod(node, unix.S_IFCHR|0o600, int(number)); err != nil {
		return nil, os.NewSyscallError("mknod", err)
	}
	return openNode(node, name, n)
}

// ownNode returns the path of a macvtap's character device in /dev. It reports false unless
// this device and /sys belong to this process's network namespace.
func ownNode(name string, index int) (string, bool) {
	device := fmt.Sprintf("tap%d", index)
	number, err := deviceNumber(filepath.Join("/sys/class/net", name, device, "dev"))
	if err != nil {
		return "", false
	}
	node := filepath.Join("/dev", device)
	var st unix.Stat_t
	if unix.Stat(node, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != number {
		return "", false
	}
	return node, true
}

// openNode opens node n times.
func openNode(node, name string, n int) ([]int, error) {
	var fds []int
	for range n {
		fd, err := unix.Open(node, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			hint := ""
			if errors.Is(err, unix.EPERM) {
				hint = " (let the service use it, DeviceAllow=char-macvtap rw, and restart it: the module macvtap has to be loaded before it starts)"
			}
			err = fmt.Errorf("opening the character device of %s: %w%s", name, &os.PathError{Op: "open", Path: node, Err: err},
				hint)
			for _, fd := range fds {
				err = errors.Join(err, unix.Close(fd))
			}
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// deviceNumber reads the device number from a file of sysfs that contains major:minor.
func deviceNumber(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("finding the character device: %w", err)
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(b)), ":")
	hi, err1 := strconv.ParseUint(major, 10, 32)
	lo, err2 := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("finding the character device: %s holds %q: %w", path, b, err)
	}
	return unix.Mkdev(uint32(hi), uint32(lo)), nil
}
