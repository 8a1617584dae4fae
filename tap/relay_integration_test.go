package tap_test

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// device opens a device in a namespace of its own, up, with carrier and addresses. Without
// addresses, the network stack sends nothing by itself.
func device(
	t *testing.T, open func(tap.Config) (*tap.Device, error), addrs []string, cfg tap.Config,
) (*tap.Device, string) {
	t.Helper()
	ns := testenv.NetNS(t)
	if len(addrs) == 0 {
		testenv.DisableIPv6(t, ns)
	}
	cfg.Name, cfg.NetNS = "sn0", ns
	d, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(d.Up(), d.SetCarrier(true)); err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		testenv.Address(t, ns, "sn0", a)
	}
	return d, ns
}

func TestNetnsRelay(t *testing.T) {
	testenv.NeedTUN(t)
	for _, tc := range []struct {
		name     string
		open     func(tap.Config) (*tap.Device, error)
		offloads vnet.Offloads
		mtu      int
		queues   int
		super    bool
	}{
		{"all offloads", tap.Open, vnet.AllOffloads, 1500, 1, true},
		{"jumbo, two queues", tap.Open, vnet.AllOffloads, 9000, 2, true},
		{"checksum only", tap.Open, vnet.CSUM, 1500, 1, false},
		{"no offloads", tap.Open, 0, 1500, 1, false},
		{"plain", openPlain, vnet.AllOffloads, 1500, 1, false},
		{"plain, two queues", openPlain, vnet.AllOffloads, 1500, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			cfg := tap.Config{Queues: tc.queues, Offloads: tc.offloads, MTU: tc.mtu}
			a, nsA := device(t, tc.open, []string{"10.9.0.1/24", "fd09::1/64"}, cfg)
			b, nsB := device(t, tc.open, []string{"10.9.0.2/24", "fd09::2/64"}, cfg)
			r := testenv.NewRelay(t)
			var traffic []*testenv.Traffic
			for i := range tc.queues {
				ab, ba := r.Join(a.Queues()[i], b.Queues()[i], tc.mtu)
				traffic = append(traffic, ab, ba)
			}
			testenv.Ping(t, nsA, "10.9.0.2")
			testenv.Ping(t, nsB, "10.9.0.1", "-s", "4000")
			testenv.Exchange(t, nsB, "10.9.0.2", nsA, 16<<20)
			testenv.Exchange(t, nsB, "fd09::2", nsA, 16<<20)
			if a.Offloads()&vnet.CSUM != 0 { // older kernels do not segment without checksums
				if got := testenv.UDPSegments(t, nsB, "10.9.0.2", nsA, 10); got != 400000 {
					t.Errorf("%d bytes of UDP", got)
				}
			}
			if n := testenv.CsumErrors(t, nsA) + testenv.CsumErrors(t, nsB); n != 0 {
				t.Errorf("%d packets with a wrong checksum", n)
			}
			super, longest, udp := int64(0), int64(0), int64(0)
			for _, tr := range traffic {
				t.Log(tr)
				super += tr.Super.Load()
				udp += tr.UDP.Load()
				longest = max(longest, tr.Longest.Load())
				if tr.Refused.Load() != 0 {
					t.Errorf("%d frames refused", tr.Refused.Load())
				}
			}
			if tc.super != (super > 0) || tc.super != (longest > int64(tc.mtu)+vnet.MinFrame) {
				t.Errorf("%d super-frames, the longest frame has %d bytes", super, longest)
			}
			if a.Offloads()&vnet.USO != 0 && udp == 0 {
				t.Error("no UDP super-frame passed")
			}
		})
	}
}

// rawFrame returns a broadcast frame of n bytes with an experimental EtherType.
func rawFrame(n int) []byte {
	f := make([]byte, n)
	copy(f[vnet.HdrLen:], []byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 7, 0x88, 0xb5})
	return f
}

func TestNetnsQueueErrors(t *testing.T) {
	testenv.NeedTUN(t)
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			d, ns := device(t, open, nil, tap.Config{MTU: 9000})
			q := d.Queues()[0]
			slot := make([]byte, vnet.MaxFrame+1)
			if _, err := q.ReadFrame(slot[:vnet.MinFrame-1]); !errors.Is(err, unix.EINVAL) {
				t.Errorf("slot without room for a frame: %v", err)
			}
			if err := q.WriteParts(rawFrame(60)[:vnet.MinFrame-1], nil); !errors.Is(err, unix.EINVAL) {
				t.Errorf("frame too short: %v", err)
			}
			bad := rawFrame(100)
			(&vnet.Header{Flags: vnet.FlagNeedsCsum, CsumStart: 95, CsumOffset: 16}).Encode(bad)
			if err := q.WriteParts(bad, nil); !errors.Is(err, unix.EINVAL) {
				t.Errorf("checksum outside the frame: %v", err)
			}
			if err := q.WriteParts(rawFrame(100), nil); err != nil {
				t.Errorf("good frame: %v", err)
			}
			// A frame that does not fit is dropped; the next one is read.
			drain(t, q, slot)
			testenv.SendRaw(t, ns, "sn0", rawFrame(vnet.HdrLen+4000), rawFrame(vnet.HdrLen+200))
			if _, err := q.ReadFrame(slot[:2000]); !errors.Is(err, vnet.ErrTooLong) {
				t.Errorf("frame of 4000 bytes into a slot of 2000: %v", err)
			}
			for i := range slot {
				slot[i] = 0xff // an earlier frame may have left any bytes
			}
			f, err := q.ReadFrame(slot)
			if err != nil || len(f) != vnet.HdrLen+200 {
				t.Errorf("the next frame: %d bytes, %v", len(f), err)
			} else if !bytes.Equal(f[:vnet.HdrLen], make([]byte, vnet.HdrLen)) {
				t.Errorf("its header is % x", f[:vnet.HdrLen])
			}
			if q.TooLong() != 1 {
				t.Errorf("%d frames counted as too long", q.TooLong())
			}
			if _, err := q.ReadFrame(slot); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("empty queue: %v", err)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
			if err := q.Close(); err != nil {
				t.Errorf("second Close: %v", err)
			}
			if _, err := q.ReadFrame(slot); !errors.Is(err, net.ErrClosed) {
				t.Errorf("ReadFrame after Close: %v", err)
			}
			if err := q.WriteParts(rawFrame(100), nil); !errors.Is(err, net.ErrClosed) {
				t.Errorf("WriteFrame after Close: %v", err)
			}
		})
	}
}

// drain reads the waiting frames, which the kernel has sent by itself.
func drain(t *testing.T, q *tap.Queue, slot []byte) {
	t.Helper()
	for {
		_, err := q.ReadFrame(slot)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNetnsQueueAllocs(t *testing.T) {
	testenv.NeedTUN(t)
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			d, ns := device(t, open, nil, tap.Config{})
			q := d.Queues()[0]
			slot := make([]byte, vnet.MaxFrame+1)
			drain(t, q, slot)
			const runs = 50
			sent := slices.Repeat([][]byte{rawFrame(vnet.HdrLen + 1000)}, runs+1) // one more to warm up
			testenv.SendRaw(t, ns, "sn0", sent...)
			frame, bad := rawFrame(1000), rawFrame(100)
			bad[1] = 77
			var errs [5]error
			if n := testing.AllocsPerRun(runs, func() {
				_, errs[0] = q.ReadFrame(slot)
				errs[1] = q.WriteParts(frame, nil)
				errs[2] = q.WriteParts(bad, nil)
			}); n != 0 {
				t.Errorf("%v allocations for a frame", n)
			}
			if n := testing.AllocsPerRun(runs, func() {
				_, errs[3] = q.ReadFrame(slot)
				_, errs[4] = q.ReadFrame(slot[:1])
			}); n != 0 {
				t.Errorf("%v allocations without a frame", n)
			}
			want := []error{nil, nil, unix.EINVAL, unix.EAGAIN, unix.EINVAL}
			if !slices.EqualFunc(errs[:], want, func(a, b error) bool { return errors.Is(a, b) }) {
				t.Errorf("results %v, want %v", errs, want)
			}
		})
	}
}
