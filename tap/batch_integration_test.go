package tap_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// portFixture returns a TAP device and the network stack behind it.
func portFixture(t testing.TB, open func(tap.Config) (*tap.Device, error), cfg tap.Config) *testenv.PortFixture {
	ns := testenv.NetNS(t)
	testenv.DisableIPv6(t, ns)
	cfg.Name, cfg.NetNS, cfg.Offloads, cfg.MAC = "sn0", ns, vnet.AllOffloads, testMAC
	d, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := errors.Join(d.Up(), d.SetCarrier(true)); err != nil {
		t.Fatal(err)
	}
	return &testenv.PortFixture{
		Port:   d.Queues()[0],
		Here:   net.HardwareAddr{2, 0, 0, 0, 0, 2},
		There:  testMAC,
		Send:   testenv.SenderRaw(t, ns, "sn0"),
		Super:  d.Offloads() != 0,
		Close:  d.Close,
		Listen: func() *testenv.Listener { return testenv.ListenRaw(t, ns, "sn0") },
		Down: func() {
			if err := d.SetUp(false); err != nil {
				t.Fatal(err)
			}
		},
		Gone: func() {
			testenv.With(t, ns, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, ns, "sn0")) })
		},
	}
}

func TestNetnsBatches(t *testing.T) {
	testenv.NeedTUN(t)
	for kind, open := range openers {
		for _, noRing := range []bool{false, true} {
			t.Run(kind+map[bool]string{true: " without ring"}[noRing], func(t *testing.T) {
				testenv.TestBatches(t, func(t *testing.T) *testenv.PortFixture {
					return portFixture(t, open, tap.Config{NoRing: noRing})
				})
			})
		}
	}
}

// TestNetnsBatchCalls counts the system calls of batches.
func TestNetnsBatchCalls(t *testing.T) {
	testenv.NeedTUN(t)
	r := portFixture(t, tap.Open, tap.Config{})
	q := r.Port.(*tap.Queue)
	if !q.Rings() {
		t.Skip("this kernel has no rings for TAP devices: Linux 6.4 has")
	}
	reads, writes := q.Enters()
	calls := func() (r, w uint64) {
		r, w = q.Enters()
		r, w, reads, writes = r-reads, w-writes, r, w
		return r, w
	}

	frames := func(n, size int) (ops []vnet.WriteOp) {
		for i := range n {
			ops = append(ops, vnet.WriteOp{Head: r.Probe(false, uint32(i), size)})
		}
		return ops
	}
	for _, tc := range []struct {
		frames, size int
		calls        uint64
	}{{1, 60, 0}, {2, 60, 1}, {64, 60, 1}, {65, 1514, 1}, {66, 60, 2}, {200, 1000, 4}, {10, 9000, 0}} {
		if n := q.WriteFrames(frames(tc.frames, tc.size)); n != tc.frames {
			t.Fatalf("%d of %d written", n, tc.frames)
		}
		if _, w := calls(); w != tc.calls {
			t.Errorf("writing %d frames of %d bytes: %d system calls of the ring, want %d", tc.frames, tc.size, w, tc.calls)
		}
	}

	ops := testenv.Slots(64, vnet.MaxFrame+1)
	for _, tc := range []struct {
		why    string
		queued int
		size   int
		asked  int
		got    int // number of filled operations, including one with EAGAIN
		calls  uint64
	}{
		{"nothing", 0, 0, 64, 1, 0},
		{"two times read(2), and then 2, 4, 8 and 16", 32, 60, 32, 32, 4},
		{"so many were there", 32, 60, 32, 32, 1},
		{"and a little more", 20, 60, 64, 21, 1},
		{"19 and EAGAIN: now 19 are asked for, and 38", 64, 60, 64, 64, 3},
		{"as many as there can be", 64, 60, 64, 64, 1},
		{"the first frame is long", 3, 20000, 64, 1, 0},
		{"and the second", 0, 0, 64, 1, 0},
		{"and the third", 0, 0, 64, 1, 0},
		{"one frame, and the ring finds no other", 1, 60, 64, 2, 1},
		{"one frame, and read(2) finds no other", 1, 60, 64, 2, 0},
		{"one operation", 1, 60, 1, 1, 0},
	} {
		var frames [][]byte
		for i := range tc.queued {
			frames = append(frames, r.Probe(true, uint32(i), tc.size))
		}
		r.Send(frames...)
		n := q.ReadFrames(ops[:tc.asked])
		if c, _ := calls(); n != tc.got || c != tc.calls {
			t.Errorf("%s: reading %d frames of %d bytes filled %d operations in %d system calls of the ring, want %d in %d",
				tc.why, tc.queued, tc.size, n, c, tc.got, tc.calls)
		}
	}

	// The test whether io_uring is available must not consume a frame.
	r = portFixture(t, tap.Open, tap.Config{NoRing: true})
	q = r.Port.(*tap.Queue)
	if q.Rings() {
		t.Error("there are rings although NoRing is set")
	}
	r.Send(r.Probe(true, 1, 60))
	if err := q.UseRings(); err != nil || !q.Rings() {
		t.Error(err)
	}
	if n := q.ReadFrames(ops[:1]); n != 1 || ops[0].Err != nil {
		t.Errorf("%d operations filled, %v", n, ops[0].Err)
	}
}

// TestNetnsBatchesAreCounted reads some of the waiting frames in one batch. It expects the filter
// before the queue to count the remaining frames.
func TestNetnsBatchesAreCounted(t *testing.T) {
	testenv.NeedTUN(t)
	const sent, asked = 64, 20
	for _, noRing := range []bool{false, true} {
		t.Run(map[bool]string{false: "ring", true: "loop"}[noRing], func(t *testing.T) {
			r := portFixture(t, tap.Open, tap.Config{NoRing: noRing})
			q := r.Port.(*tap.Queue)
			var frames [][]byte
			for i := range uint32(sent) {
				frames = append(frames, r.Probe(true, i, 60))
			}
			r.Send(frames...)
			for left := sent - asked; left >= 0; left -= asked {
				if n := q.ReadFrames(testenv.Slots(asked, vnet.MaxFrame+1)); n != asked {
					t.Fatalf("%d operations filled", n)
				}
				if n := q.Waiting(); n != left {
					t.Errorf("%d frames wait, want %d", n, left)
				}
			}
		})
	}
}

// killedVar is the environment variable of a process that makes a device and is then killed. It has
// the namespace of the device.
const killedVar = "SPLITNIC_TEST_KILLED"

// TestNetnsKilled makes a device with the name of the device of a killed process. That device may
// exist a little longer than the process.
func TestNetnsKilled(t *testing.T) {
	testenv.NeedTUN(t)
	if ns := os.Getenv(killedVar); ns != "" {
		if _, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Queues: 2}); err != nil {
			t.Fatal(err)
		}
		t.Fatal(unix.Kill(os.Getpid(), unix.SIGKILL))
	}
	ns := testenv.NetNS(t)
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNetnsKilled$")
		cmd.Env = append(os.Environ(), killedVar+"="+ns)
		if out, err := cmd.CombinedOutput(); err == nil || len(out) != 0 {
			t.Fatalf("%v: %s", err, out)
		}
		d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if testenv.Link(t, ns, "sn0") != nil {
			t.Fatal("a device that is closed is still there")
		}
	}
}

func BenchmarkNetnsBatches(b *testing.B) {
	testenv.NeedTUN(b)
	for _, noRing := range []bool{false, true} {
		b.Run(map[bool]string{false: "ring", true: "loop"}[noRing], func(b *testing.B) {
			testenv.BenchBatches(b, portFixture(b, tap.Open, tap.Config{NoRing: noRing}))
		})
	}
}
