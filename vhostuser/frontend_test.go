package vhostuser_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/vhostuser"
)

// dial connects to a device as a front end.
func dial(t *testing.T, a vhostuser.Address) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a.Path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// words returns a body of 32-bit numbers.
func words(ws ...uint32) (b []byte) {
	for _, w := range ws {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// longs returns a body of 64-bit numbers.
func longs(ws ...uint64) (b []byte) {
	for _, w := range ws {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// send sends a message with file descriptors.
func send(t *testing.T, c *net.UnixConn, request, flags uint32, body []byte, fds ...int) {
	t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	m := append(words(request, flags, uint32(len(body))), body...)
	if _, _, err := c.WriteMsgUnix(m, oob, nil); err != nil && !errors.Is(err, unix.EPIPE) {
		t.Fatal(err)
	}
}

// answer returns the body of the answer to a request.
func answer(t *testing.T, c *net.UnixConn, request uint32) []byte {
	t.Helper()
	b := make([]byte, 20)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	if got := binary.LittleEndian.Uint32(b); got != request || binary.LittleEndian.Uint32(b[4:]) != 5 {
		t.Fatalf("answer %x to %d", b, request)
	}
	return b[12:]
}

// memfd returns the descriptor of a new file of size bytes in memory.
func memfd(t *testing.T, size int64) int {
	t.Helper()
	return memfdNamed(t, "guest", size)
}

func memfdNamed(t *testing.T, name string, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// opened returns a descriptor of the file at a path, for reading.
func opened(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func eventfd(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// descriptors returns the number of file descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(l)
}

// TestHostileFrontEnd sends invalid messages, each as a new front end. It expects the connection to
// be closed, the reason in the status, the next front end to be served, and no descriptor to leak.
func TestHostileFrontEnd(t *testing.T) {
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d := open(t, a, 1)
	t.Cleanup(func() { d.Close() })
	const need, notInMemory = 1 | 8, "its descriptor is not of a file in memory"
	file, small, event, other := memfd(t, 1<<20), memfd(t, 4096), eventfd(t), int(os.Stdin.Fd())
	named := memfdNamed(t, "[eventfd]", 1<<20)
	proc, sys := opened(t, "/proc/self/status"), opened(t, "/sys/kernel/mm/transparent_hugepage/enabled")
	region := func(guest, size, user, offset uint64) []byte { return longs(guest, size, user, offset) }
	table := func(regions ...[]byte) []byte {
		b := words(uint32(len(regions)), 0)
		for _, r := range regions {
			b = append(b, r...)
		}
		return b
	}
	first := dial(t, a)
	send(t, first, 1, 1, nil)
	answer(t, first, 1)
	before := descriptors(t)
	first.Close()
	for name, c := range map[string]struct {
		request uint32
		flags   uint32
		body    []byte
		fds     []int
		want    string
	}{
		"version":          {1, 2, nil, nil, "message 1 has flags 0x2"},
		"length":           {2, 1, make([]byte, 5000), nil, "has 5000 bytes"},
		"unknown message":  {99, 1, nil, nil, "message 99 is for something that was not offered"},
		"log":              {6, 1, longs(0, 0), []int{file}, "as for live migration, is not offered"},
		"log feature":      {2, 1, longs(1 << 26), nil, "as for live migration, is not offered"},
		"feature":          {2, 1, longs(1 << 33), nil, "features 0x200000000 were not offered"},
		"protocol feature": {16, 1, longs(1 << 1), nil, "protocol features 0x2 were not offered"},
		"short":            {2, 1, words(0), nil, "message 2 has 4 bytes instead of 8"},
		"ring":             {8, 1, words(2, 256), nil, "ring 2; there are 2"},
		"ring's size":      {8, 1, words(0, 1<<15+1), nil, "a ring of 32769 descriptors"},
		"no size":          {8, 1, words(0, 0), nil, "a ring of 0 descriptors"},
		"no kick":          {12, 1, longs(0), nil, "message 12 has 0x0, and 0 descriptors"},
		"polled ring":      {12, 1, longs(1 << 8), nil, "ring 0 is to be polled"},
		"kick of another":  {12, 1, longs(0), []int{other}, "instead of an eventfd"},
		"call of another":  {13, 1, longs(0), []int{file}, "instead of an eventfd"},
		"two kicks":        {12, 1, longs(0), []int{event, event}, "message 12 has 2 descriptors; it may have 1"},
		"descriptors":      {1, 1, nil, []int{event}, "message 1 has 1 descriptors; it may have 0"},
		"many descriptors": {5, 1, table(), []int{file, file, file, file, file, file, file, file, file, file, file, file}, "descriptors"},
		"table without":    {5, 1, table(region(0, 4096, 0, 0)), nil, "of 1 regions with 0 descriptors"},
		"table of nine":    {5, 1, words(9, 0), nil, "a memory table of 9 regions"},
		"no file":          {5, 1, table(region(0, 4096, 0, 0)), []int{event}, notInMemory},
		"file of procfs":   {5, 1, table(region(0, 4096, 0, 0)), []int{proc}, notInMemory},
		"file of sysfs":    {5, 1, table(region(0, 4096, 0, 0)), []int{sys}, notInMemory},
		"one of two": {
			5, 1, table(region(0, 4096, 0, 0), region(4096, 4096, 4096, 0)), []int{small, sys}, notInMemory,
		},
		"region in sysfs":            {37, 1, append(longs(0), region(0, 4096, 0, 0)...), []int{sys}, notInMemory},
		"end of file":                {5, 1, table(region(0, 8192, 0, 0)), []int{small}, "its file ends after 4096 bytes"},
		"end by its offset":          {5, 1, table(region(0, 4096, 0, 1)), []int{small}, "its file ends after 4096 bytes"},
		"endless":                    {5, 1, table(region(0, 1<<63, 0, 0)), []int{file}, "ends behind the last address"},
		"behind the end":             {5, 1, table(region(1<<64-4096, 8192, 0, 0)), []int{file}, "ends behind the last address"},
		"nothing":                    {5, 1, table(region(0, 0, 0, 0)), []int{file}, "it has no bytes"},
		"overlap":                    {5, 1, table(region(0, 8192, 0, 0), region(4096, 8192, 1<<20, 0)), []int{file, file}, "overlap"},
		"overlap of the front end's": {5, 1, table(region(0, 8192, 0, 0), region(1<<20, 8192, 4096, 0)), []int{file, file}, "overlap"},
		"region without":             {37, 1, append(longs(0), region(0, 4096, 0, 0)...), nil, "without descriptor"},
		"region in no file":          {37, 1, append(longs(0), region(0, 4096, 0, 0)...), []int{other}, notInMemory},
		"enabled twice":              {18, need, words(0, 2), nil, "is to be enabled with 2"},
		"file named as an eventfd":   {13, 1, longs(0), []int{named}, "instead of an eventfd"},
	} {
		t.Run(name, func(t *testing.T) {
			c1 := dial(t, a)
			send(t, c1, c.request, c.flags, c.body, c.fds...)
			if n, err := io.Copy(io.Discard, c1); err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Fatalf("after %d bytes: %v", n, err)
			}
			c1.Close()
			testenv.Eventually(t, func() bool { return strings.Contains(d.Status().LastError, c.want) }, c.want)
			testenv.Explained(t, d.Status().LastError)
			// The next front end is served.
			c2 := dial(t, a)
			defer c2.Close()
			send(t, c2, 1, 1, nil)
			answer(t, c2, 1)
			if got := descriptors(t); got > before {
				t.Errorf("%d descriptors instead of %d", got, before)
			}
		})
	}
}

// TestMemoryComesAndGoes adds and removes a region as a front end while rings run, and at the end
// removes the region of the rings. A ring runs as long as it has its memory, and ends without it.
// That is no error.
func TestMemoryComesAndGoes(t *testing.T) {
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d := open(t, a, 1)
	t.Cleanup(func() { d.Close() })
	c := dial(t, a)
	ok := func(request uint32, body []byte, fds ...int) {
		t.Helper()
		send(t, c, request, 1|8, body, fds...)
		if got := binary.LittleEndian.Uint64(answer(t, c, request)); got != 0 {
			t.Fatalf("message %d: %d", request, got)
		}
	}
	const features = 1<<32 | 1<<30 | 1<<15
	send(t, c, 18, 1, words(0, 1)) // as QEMU does, before features are agreed
	send(t, c, 2, 1, longs(features))
	send(t, c, 16, 1, longs(1<<3|1<<15|1<<4)) // protocol features: answers, single regions, MTU
	file := memfd(t, 1<<20)
	first := longs(0, 0x10000, 1<<19, 0x20000, 0)
	second := longs(0, 1<<20, 4096, 1<<30, 1<<19)
	ok(37, first, file)
	for ring := range uint32(2) {
		ok(8, words(ring, 64))
		ok(9, append(words(ring, 0), longs(0x20000, 0x22000, 0x21000, 0)...))
		ok(10, words(ring, 0))
		ok(12, longs(uint64(ring)), eventfd(t))
		ok(13, longs(uint64(ring)), eventfd(t))
		ok(18, words(ring, 1))
	}
	waitUp(t, d, true)
	for range 3 {
		ok(37, second, file)
		ok(38, second)
	}
	ok(20, longs(1400))
	send(t, c, 20, 1|8, longs(3))
	if got := binary.LittleEndian.Uint64(answer(t, c, 20)); got == 0 {
		t.Error("an MTU of 3 is good")
	}
	if s := d.Status(); s.Rings != 2 || s.MTU != 1400 || s.LastError != "" {
		t.Errorf("%+v", s)
	}
	ok(18, words(0, 0))
	waitUp(t, d, false)
	ok(18, words(0, 1))
	waitUp(t, d, true)
	send(t, c, 11, 1, words(0, 0))
	if got := answer(t, c, 11); binary.LittleEndian.Uint64(got) != 0 {
		t.Errorf("the ring is at %x", got)
	}
	waitUp(t, d, false)
	ok(38, first)
	if s := d.Status(); s.LastError != "" {
		t.Errorf("%+v", s)
	}
}

// TestFrontEndDoesNotRead closes a front end's connection for reading before the answer to a
// message arrives, and expects no error.
func TestFrontEndDoesNotRead(t *testing.T) {
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d := open(t, a, 1)
	defer d.Close()
	c := dial(t, a)
	if err := c.CloseRead(); err != nil {
		t.Fatal(err)
	}
	send(t, c, 1, 1, nil)
	dial(t, a) // is served after a pause, during which the status would have the reason of an error
	why := ""
	testenv.Eventually(t, func() bool {
		s := d.Status()
		why = cmp.Or(s.LastError, why)
		return s.Connections == 2
	}, "the next front end")
	if why != "" {
		t.Error(why)
	}
}

// TestNameOfFrontEnd connects a front end whose process name contains control characters of
// terminals, and expects the status to have question marks instead.
func TestNameOfFrontEnd(t *testing.T) {
	const file = "/proc/self/comm"
	name, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("a\x1b[2J\nb\xff"), 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, name[:len(name)-1], 0); err != nil {
			t.Error(err)
		}
	}()
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d := open(t, a, 1)
	defer d.Close()
	dial(t, a)
	testenv.Eventually(t, func() bool { return d.Status().FrontEnd != "" }, "a front end")
	if got := d.Status().FrontEnd; !strings.HasPrefix(got, "a?[2J?b? (pid ") {
		t.Errorf("%q", got)
	}
}

// TestSocket makes the socket at paths where a file exists, and at paths that cannot exist. A
// socket without a process has to be replaced, other paths have to be refused.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	a := vhostuser.Address{Path: path}
	d := open(t, a, 1)
	refused := func(name, path, want string) {
		t.Run(name, func(t *testing.T) {
			_, err := vhostuser.Open(vhostuser.Config{Address: vhostuser.Address{Path: path}, Pairs: 1})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%s: %v, want %q", path, err, want)
			}
			testenv.Explained(t, err.Error())
		})
	}
	refused("in use", path, unix.EADDRINUSE.Error())
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	open(t, a, 1).Close() // the socket of a process that has ended
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a file", path, "is not a socket")
	other, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(other)
	notify := filepath.Join(dir, "notify")
	if err := unix.Bind(other, &unix.SockaddrUnix{Name: notify}); err != nil {
		t.Fatal(err)
	}
	refused("a socket of datagrams", notify, "protocol wrong type for socket")
	if _, err := os.Lstat(notify); err != nil {
		t.Errorf("the socket of another process: %v", err)
	}
	refused("below a file", path+"/s", "is not a directory")
	refused("no directory", filepath.Join(dir, "no", "s"), "mkdir -p")
	t.Run("nobody listens", func(t *testing.T) {
		d := open(t, vhostuser.Address{Path: filepath.Join(dir, "nobody"), Client: true}, 1)
		defer d.Close()
		testenv.Eventually(t, func() bool { return d.Status().LastError != "" }, "an error")
		testenv.Explained(t, d.Status().LastError)
	})
}

func TestParseAddress(t *testing.T) {
	for s, want := range map[string]vhostuser.Address{
		"vhost-user:/s":        {Path: "/s"},
		"vhost-user:/s,client": {Path: "/s", Client: true},
	} {
		if got, err := vhostuser.ParseAddress(s); got != want || err != nil || got.String() != s {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	for s, want := range map[string]string{
		"/s": "must be tap, vhost-user:PATH", "vhost-user:s": "must begin with /", "vhost-user:/s,server": "must be client",
		"vhost-user:/" + strings.Repeat("x", 107): "has at most 107 bytes, and this one 108",
	} {
		if _, err := vhostuser.ParseAddress(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", s, err, want)
		}
	}
}
