package vhostuser_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/vhostuser"
)

// slowFile mounts a FUSE file system and returns a descriptor of the file in it. After open, its
// server counts the requests for attributes and contents and does not answer them before the end.
func slowFile(t *testing.T, asked *atomic.Int32) int {
	t.Helper()
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		testenv.Missing(t, "tools", "no FUSE: %v", err)
	}
	dir := t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d", dev, os.Getuid(), os.Getgid())
	if err := unix.Mount("fuse", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(dev)
		testenv.Missing(t, "tools", "no FUSE: %v", err)
	}
	var opened atomic.Bool
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveSlow(dev, &opened, asked)
	}()
	fd, err := unix.Open(filepath.Join(dir, "guest"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	opened.Store(true)
	t.Cleanup(func() {
		if fd >= 0 {
			unix.Close(fd)
		}
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH) // aborts what waits
		<-served
		unix.Close(dev)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// serveSlow answers requests for a file system with one file of a megabyte, as described by
// linux/fuse.h, until it is unmounted.
func serveSlow(dev int, opened *atomic.Bool, asked *atomic.Int32) {
	const lookup, getattr, open, statfs, init, opendir, flush = 1, 3, 14, 17, 26, 27, 25
	in := make([]byte, 1<<17)
	for {
		n, err := unix.Read(dev, in)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < 40 {
			return
		}
		le := binary.LittleEndian
		node, errno, body := le.Uint64(in[16:]), int32(0), []byte(nil)
		attr := func(node uint64) []byte { // struct fuse_attr
			b := make([]byte, 88)
			le.PutUint64(b, node)
			le.PutUint64(b[8:], 1<<20)
			le.PutUint32(b[60:], unix.S_IFREG|0o600)
			if node == 1 {
				le.PutUint32(b[60:], unix.S_IFDIR|0o700)
			}
			le.PutUint32(b[64:], 1)
			return b
		}
		switch op := le.Uint32(in[4:]); {
		case op == init:
			body = make([]byte, 64)
			le.PutUint32(body, 7)
			le.PutUint32(body[4:], 31)
			le.PutUint32(body[20:], 1<<16)
		case op == lookup:
			body = append(make([]byte, 40), attr(2)...)
			le.PutUint64(body, 2)
		case op == getattr && !opened.Load():
			body = append(make([]byte, 16), attr(node)...)
		case op == open, op == opendir:
			body = make([]byte, 16)
		case op == flush:
			errno = -int32(unix.ENOSYS)
		case op == getattr, op == statfs, op == 15: // and read
			asked.Add(1)
			continue
		default:
			errno = -int32(unix.ENOSYS)
		}
		out := le.AppendUint32(nil, uint32(16+len(body)))
		out = le.AppendUint32(out, uint32(errno))
		out = append(le.AppendUint64(out, le.Uint64(in[8:])), body...)
		if _, err := unix.Write(dev, out); err != nil {
			return
		}
	}
}

// TestNetnsMemoryOfFUSE passes a file as the memory whose pages come from a process that does not
// answer. The connection has to end with the reason, without a question to that process, and the
// next front end has to be served.
func TestNetnsMemoryOfFUSE(t *testing.T) {
	var asked atomic.Int32
	fd := slowFile(t, &asked)
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d := open(t, a, 1)
	defer d.Close()
	c := dial(t, a)
	send(t, c, 5, 1, append(words(1, 0), longs(0, 1<<19, 0, 0)...), fd)
	testenv.Eventually(t, func() bool {
		return asked.Load() > 0 || strings.Contains(d.Status().LastError, "not of a file in memory")
	}, "the end of the connection")
	if n := asked.Load(); n != 0 {
		t.Fatalf("the server of the file system was asked %d times", n)
	}
	c = dial(t, a)
	send(t, c, 1, 1, nil)
	answer(t, c, 1)
}
