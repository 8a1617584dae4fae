package verbs

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
)

func TestOpError(t *testing.T) {
	for _, c := range []struct {
		err  *OpError
		want string
	}{
		{&OpError{Op: "list RDMA devices", Err: io.EOF}, "list RDMA devices: EOF"},
		{&OpError{Op: "open device", Device: "rxe0", Err: syscall.ENODEV, Hint: "look"},
			"rxe0: open device: no such device (look)"},
		{&OpError{Op: "post send", Device: "rxe0", QPN: 0x11, Err: io.EOF}, "rxe0: queue pair 0x11: post send: EOF"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	err := opErr("rxe0", "x", syscall.EOPNOTSUPP, "")
	if !errors.Is(err, fabric.ErrUnsupported) || !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("%v is neither", err)
	}
	if err := opErr("rxe0", "x", syscall.EINVAL, ""); errors.Is(err, fabric.ErrUnsupported) ||
		!errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v", err)
	}
}

func TestHints(t *testing.T) {
	l := fabric.Limits{MaxQPWR: 100, MaxCQE: 200, CompVectors: 4}
	local, remote := GID{15: 1}, GID{15: 2}
	for _, c := range []struct {
		name, got string
		parts     []string // parts of the hint; none: no hint
	}{
		{"memlock", regHint(syscall.ENOMEM, 1<<20, 64<<10, true),
			[]string{"RLIMIT_MEMLOCK is 64KiB", "1MiB", "ulimit -l unlimited", "LimitMEMLOCK=infinity", "CAP_IPC_LOCK"}},
		{"no memory", regHint(syscall.ENOMEM, 1, 0, false), []string{"out of memory"}},
		{"read-only", regHint(syscall.EFAULT, 1, 0, false), []string{"not writable"}},
		{"reg other", regHint(syscall.EIO, 1, 0, false), nil},
		{"no ARP", rtrHint(syscall.ETIMEDOUT, local, remote), []string{"ARP", "GID ::2 to ::1"}},
		{"wrong GID", rtrHint(syscall.EINVAL, local, remote), []string{"local GID ::1", "remote GID ::2"}},
		{"rtr other", rtrHint(syscall.EIO, local, remote), nil},
		{"no device", openHints[syscall.ENODEV], []string{"rdma link add"}},
		{"no rights", openHints[syscall.EACCES], []string{"root"}},
		{"not allowed", openHints[syscall.EPERM], []string{"DeviceAllow=char-infiniband* rw", "--device /dev/infiniband"}},
		{"no uverbs", openHints[syscall.ENOENT], []string{"ib_uverbs"}},
		{"no user verbs", openHints[syscall.ENOSYS], []string{"modprobe ib_uverbs"}},
		{"open other", openHints[syscall.EIO], nil},
		{"cq", cqHint(syscall.EINVAL, 300, 9, l), []string{"1 … 200", "0 … 3", "300", "9"}},
		{"cq other", cqHint(syscall.EIO, 300, 9, l), nil},
		{"qp", qpHint(syscall.EINVAL, fabric.QPConfig{MaxSend: 300, MaxInline: 7}, l),
			[]string{"300 sends", "without inline data", "at most 100"}},
		{"no UC", qpHint(syscall.EOPNOTSUPP, fabric.QPConfig{Transport: fabric.UC}, l), []string{"send-uc"}},
		{"no RC", qpHint(syscall.EOPNOTSUPP, fabric.QPConfig{Transport: fabric.RC}, l), []string{"another device"}},
		{"cgroup", hintOf(opErr("", "", syscall.EAGAIN, "")), []string{"rdma.max", "rdma.current"}},
		{"no moderation", moderationHint(syscall.EOPNOTSUPP, 0, 0), []string{"every completion", "poll"}},
		{"moderation", moderationHint(syscall.EINVAL, 99, 7*time.Microsecond), []string{"99 completions", "7µs"}},
		{"moderation other", moderationHint(syscall.EIO, 99, 7*time.Microsecond), nil},
		{"qp memory", qpHint(syscall.ENOMEM, fabric.QPConfig{}, l), []string{"RLIMIT_MEMLOCK"}},
		{"qp other", qpHint(syscall.EIO, fabric.QPConfig{}, l), nil},
	} {
		if (c.got == "") != (c.parts == nil) {
			t.Errorf("%s: %q", c.name, c.got)
		}
		for _, p := range c.parts {
			if !strings.Contains(c.got, p) {
				t.Errorf("%s: %q lacks %q", c.name, c.got, p)
			}
		}
		if c.got != "" {
			testenv.Explained(t, (&OpError{Op: "doing something", Device: "rxe0", Err: syscall.EIO, Hint: c.got}).Error())
		}
	}
}

// TestErrno expects that a negative result of a driver means the same as a positive one, and that
// no result is taken for another.
func TestErrno(t *testing.T) {
	for _, c := range []struct {
		result int32
		want   syscall.Errno
	}{{0, 0}, {22, syscall.EINVAL}, {-22, syscall.EINVAL}, {-95, syscall.EOPNOTSUPP}, {-1, syscall.EPERM},
		{math.MinInt32, 1 << 31}} {
		if got := errno(c.result); got != c.want {
			t.Errorf("%d: %d, want %d", c.result, got, c.want)
		}
	}
	for _, no := range []int32{-95, 95, -524, -int32(syscall.ENOSYS)} {
		if err := opErr("rxe0", "arm", errno(no), ""); !errors.Is(err, fabric.ErrUnsupported) {
			t.Errorf("%d: %v", no, err)
		}
	}
}

func TestMemlockLimit(t *testing.T) {
	var r syscall.Rlimit
	const memlock = 8 // RLIMIT_MEMLOCK, see setrlimit(2)
	if err := syscall.Getrlimit(memlock, &r); err != nil {
		t.Fatal(err)
	}
	limit, limited := MemlockLimit()
	if limited != (r.Cur != ^uint64(0)) || limited && limit != r.Cur {
		t.Errorf("%d, %v; the kernel says %d", limit, limited, r.Cur)
	}
}

// TestSendHint expects a hint with the reason for a refused request. The device only
// returns EINVAL.
func TestSendHint(t *testing.T) {
	const more, inline = fabric.More, fabric.Inline
	rec := func(op fabric.Opcode, f fabric.Flags, n uint32) fabric.SendWR {
		return fabric.SendWR{Op: op, Flags: f, Len: n}
	}
	c := fabric.QPConfig{MaxSGE: 3, MaxInline: 60}
	for _, x := range []struct {
		name, part string // part of the hint; empty: no hint
		wrs        []fabric.SendWR
	}{
		{"unknown opcode", "opcode 77", []fabric.SendWR{rec(77, 0, 1)}},
		{"bind", "opcode 6", []fabric.SendWR{rec(fabric.OpBind, 0, 1)}},
		{"read", "MaxRdAtomic", []fabric.SendWR{rec(fabric.OpRead, 0, 1)}},
		{"opcode behind the last", "opcode 9", []fabric.SendWR{rec(fabric.OpSendImm+1, 0, 1)}},
		{"no opcode, in pieces", "opcode 0", []fabric.SendWR{rec(0, more, 1), rec(0, 0, 1)}},
		{"invalidation in pieces", "More with opcode 5", []fabric.SendWR{rec(fabric.OpLocalInv, more, 1), rec(0, 0, 1)}},
		{"unfinished", "last record", []fabric.SendWR{rec(fabric.OpSend, more, 1), rec(0, more, 1)}},
		{"pieces", "4 pieces of data, the queue pair takes 3",
			[]fabric.SendWR{rec(fabric.OpWrite, more, 1), rec(0, more, 1), rec(0, more, 1), rec(0, 0, 1),
				rec(fabric.OpWrite, 0, 1)}},
		{"inline", "61 bytes inline, the queue pair takes 60",
			[]fabric.SendWR{rec(fabric.OpWrite, more|inline, 60), rec(0, 0, 1)}},
		{"long", "4294967296 bytes", []fabric.SendWR{rec(fabric.OpWrite, more, 1<<31), rec(0, 0, 1<<31)}},
		{"something else", "", []fabric.SendWR{rec(fabric.OpWrite, more|inline, 30), rec(0, more, 0), rec(0, 0, 30),
			rec(fabric.OpWrite, inline, 61)}},
	} {
		got := sendHint(x.wrs, c)
		if (got == "") != (x.part == "") || !strings.Contains(got, x.part) {
			t.Errorf("%s: %q, want %q", x.name, got, x.part)
		}
	}
}

func TestOpenErrno(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "uverbs0")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		no      syscall.Errno
		charDev string
		want    syscall.Errno
	}{
		{syscall.ENOENT, "", syscall.ENOENT},                            // there is no character device
		{syscall.ENOENT, file, syscall.ENOENT},                          // the file exists, so there is another reason
		{syscall.ENOENT, dir, syscall.EISDIR},                           // the error of open(2)
		{syscall.ENOENT, filepath.Join(file, "below"), syscall.ENOTDIR}, // the error of open(2) again
		{syscall.EIO, dir, syscall.EIO},                                 // the error of libibverbs stays
	} {
		if got := openErrno(c.no, c.charDev); got != c.want {
			t.Errorf("%v of %q: %v, not %v", c.no, c.charDev, got, c.want)
		}
	}
}

// hintOf returns the hint of an *OpError.
func hintOf(err error) string {
	var e *OpError
	if !errors.As(err, &e) {
		return ""
	}
	return e.Hint
}
