package tap_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// udp returns a frame to no host with this type of service and source port, and with VLAN tags of
// these types.
func udp(tos byte, port, size int, tags ...uint16) []byte {
	f := make([]byte, vnet.HdrLen, 2000)
	f = append(f, 2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7)
	for _, tpid := range tags {
		f = binary.BigEndian.AppendUint16(f, tpid)
		f = append(f, 0, 5)
	}
	f = append(f, 8, 0)
	ip := make([]byte, size)
	ip[0], ip[1], ip[8], ip[9] = 0x45, tos, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(size))
	copy(ip[12:], []byte{10, 9, 0, 1, 10, 9, 0, 2})
	binary.BigEndian.PutUint16(ip[20:], uint16(port))
	return append(f, ip...)
}

// arrived reads all frames of all queues, and returns the number of frames for each queue.
func arrived(t *testing.T, d *tap.Device) []int {
	t.Helper()
	slot := make([]byte, vnet.MaxFrame+1)
	n := make([]int, len(d.Queues()))
	for i, q := range d.Queues() {
		for {
			_, err := q.ReadFrame(slot)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBADFD) { // empty, or detached
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			n[i]++
		}
	}
	return n
}

func TestNetnsSteer(t *testing.T) {
	testenv.NeedTUN(t)
	const ef = 46 << 2
	for kind, open := range openers {
		t.Run(kind, func(t *testing.T) {
			d, ns := device(t, open, nil, tap.Config{Queues: 4, MTU: 1500})
			rule := steer.Rule{Classes: steer.DefaultClasses(), Queues: 4, Limit: 1518}
			if err := d.Steer(&rule); err != nil {
				t.Fatal(err)
			}
			arrived(t, d)
			var marked, bulk [][]byte
			for i := range 32 {
				marked = append(marked, udp(ef, i, 100), udp(ef, i, 100, 0x8100), udp(ef, i, 100, 0x88a8, 0x8100))
				bulk = append(bulk, udp(0, i, 100), udp(0, i, 100, 0x8100), udp(0, i, 100, 0x88a8, 0x8100))
			}
			testenv.SendRaw(t, ns, "sn0", marked...)
			if n := arrived(t, d); n[3] != len(marked) || n[0]+n[1]+n[2] != 0 {
				t.Errorf("%d marked frames came to %v", len(marked), n)
			}
			testenv.SendRaw(t, ns, "sn0", bulk...)
			if n := arrived(t, d); n[3] != 0 || n[0] == 0 || n[1] == 0 || n[2] == 0 || n[0]+n[1]+n[2] != len(bulk) {
				t.Errorf("%d bulk frames came to %v", len(bulk), n)
			}

			// With fewer queues in use, the latency queue is the last queue in use.
			rule.Queues = 2
			if err := errors.Join(d.SetActive(2), d.Steer(&rule)); err != nil {
				t.Fatal(err)
			}
			testenv.SendRaw(t, ns, "sn0", append(marked, bulk...)...)
			if n := arrived(t, d); n[0] != len(bulk) || n[1] != len(marked) {
				t.Errorf("%d marked and %d bulk frames came to %v", len(marked), len(bulk), n)
			}

			// Without a rule the kernel distributes all flows.
			if err := d.Steer(nil); err != nil {
				t.Fatal(err)
			}
			testenv.SendRaw(t, ns, "sn0", marked...)
			if n := arrived(t, d); n[0] == 0 || n[0]+n[1] != len(marked) {
				t.Errorf("%d marked frames came to %v without steering", len(marked), n)
			}

			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if d.Steer(&rule) == nil || d.Steer(nil) == nil {
				t.Error("a device that is closed steers")
			}
		})
	}
}

// TestNetnsSteerSuperFrames sends super-frames over a marked TCP connection. Super-frames do not
// fit into the latency queue. It expects them in another queue, and all data to arrive.
func TestNetnsSteerSuperFrames(t *testing.T) {
	testenv.NeedTUN(t)
	cfg := tap.Config{Queues: 2, Offloads: vnet.AllOffloads, MTU: 1500}
	a, nsA := device(t, tap.Open, []string{"10.9.0.1/24"}, cfg)
	b, nsB := device(t, tap.Open, []string{"10.9.0.2/24"}, cfg)
	rule := steer.Rule{Classes: steer.DefaultClasses(), Queues: 2, Limit: 1518}
	if err := errors.Join(a.Steer(&rule), b.Steer(&rule)); err != nil {
		t.Fatal(err)
	}
	r := testenv.NewRelay(t)
	bulk, _ := r.Join(a.Queues()[0], b.Queues()[0], 1500)
	latency, _ := r.Join(a.Queues()[1], b.Queues()[1], 1500)
	testenv.Ping(t, nsA, "10.9.0.2", "-Q", "0xb8", "-s", "1000")
	before := latency.Frames.Load()
	if before < 4 {
		t.Errorf("4 marked echo requests: %v", latency)
	}
	const n = 16 << 20
	l := testenv.ListenTCP(t, nsB, "10.9.0.2")
	sent := make(chan error, 1)
	go func() { sent <- netns.Do(nsA, func() error { return sendMarked(l.Addr().String(), n) }) }()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.Copy(io.Discard, c)
	if err := errors.Join(err, <-sent); err != nil || got != n {
		t.Fatalf("%d bytes arrived, %v", got, err)
	}
	if latency.Super.Load() != 0 || latency.Longest.Load() > 1518+vnet.HdrLen || bulk.Super.Load() == 0 {
		t.Errorf("bulk: %v; latency: %v", bulk, latency)
	}
	// Only the handshake and frames after a pause use the latency queue.
	if few := latency.Frames.Load() - before; few > bulk.Frames.Load()/4 {
		t.Errorf("%d frames of the connection overtake %d others", few, bulk.Frames.Load())
	}
}

// sendMarked sends n bytes over a TCP connection that is marked EF.
func sendMarked(addr string, n int64) error {
	d := net.Dialer{Timeout: time.Minute, Control: func(_, _ string, c syscall.RawConn) (err error) {
		e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 46<<2) })
		return errors.Join(e, err)
	}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return err
	}
	_, err = io.CopyN(c, rand.New(rand.NewSource(1)), n)
	return errors.Join(err, c.Close())
}
