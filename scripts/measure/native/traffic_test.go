package native

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
)

const loopback = "127.0.0.1"

func TestStreams(t *testing.T) {
	testenv.NoLeaks(t)
	s, err := newStreams("", "", loopback, 3)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return s.count() > 10*chunk }, "streams carrying something")
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// TestStreamBreaks closes one end of a stream. Both ends have to fail, and stop has to return an
// error.
func TestStreamBreaks(t *testing.T) {
	tr, err := newStreams("", "", loopback, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := tr.(*streams)
	if err := s.ends[0].Close(); err != nil {
		t.Fatal(err)
	}
	err = s.movers.Wait() // until both ends have noticed
	if err2 := s.stop(); err == nil || err2 == nil {
		t.Error("nothing was said")
	}
}

// TestNetnsTorrent sends each kind of datagrams as fast as they arrive, as fast as possible, at a
// low rate, and at a rate that is too high.
func TestNetnsTorrent(t *testing.T) {
	testenv.NeedRoot(t) // for a receive buffer of that size
	for _, d := range append(overloads, small) {
		for _, rate := range []float64{asArrives, asPossible, 1e6, 1e12} {
			t.Run(fmt.Sprintf("%s at %g", d.name, rate), func(t *testing.T) {
				testenv.NoLeaks(t)
				ns := testenv.NetNS(t)
				tr, err := newTorrent(ns, ns, loopback, 64, d, rate)
				if err != nil {
					t.Fatal(err)
				}
				testenv.Eventually(t, func() bool { return tr.count() > 3*uint64(d.size*d.burst) }, "datagrams arriving")
				if err := tr.stop(); err != nil {
					t.Error(err)
				}
				if got := tr.count(); got%uint64(max(d.segment, 1)) != 0 || d.segment == 0 && got%uint64(d.size) != 0 {
					t.Errorf("%d bytes have arrived of datagrams of %d", got, d.size)
				}
			})
		}
	}
}

// TestNetnsTorrentLoses sends to an address where nothing arrives. The sender has to go on, and the
// receiver must not count anything. An overload has to be an error.
func TestNetnsTorrentLoses(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NoLeaks(t)
	from, to := testenv.NetNS(t), testenv.NetNS(t)
	tr, err := newTorrent(from, to, loopback, 1, small, asArrives)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return tr.sent.Load() > 0 }, "the sender going on")
	if err := tr.stop(); err != nil || tr.count() != 0 {
		t.Errorf("%d bytes arrived: %v", tr.count(), err)
	}
	var out bytes.Buffer
	rec := results.NewRecorder(&out)
	err = overloads[0].overload(t.Context(), from, to, loopback, rec.Of("overload", "x", 1))
	if err == nil || out.Len() > 0 {
		t.Errorf("%q, %v", &out, err)
	}
}

// TestRoomOfWhatIsLost has a full window of which nothing arrives. It counts as lost, and the sender
// may go on.
func TestRoomOfWhatIsLost(t *testing.T) {
	tr := &torrent{datagrams: small}
	tr.sent.Store(uint64(small.window))
	done := make(chan struct{})
	go func() { tr.room(); close(done) }()
	defer func() { tr.stopping.Store(true); <-done }()
	testenv.Eventually(t, func() bool { return tr.sent.Load() == 0 }, "the window being lost")
}

func TestNetnsRoundTrips(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NoLeaks(t)
	ns := testenv.NetNS(t)
	times, err := roundTrips(ns, ns, loopback, time.Millisecond)
	if err != nil || len(times) == 0 {
		t.Fatalf("%d round trips: %v", len(times), err)
	}
	for i := range times {
		if times[i] <= 0 || i > 0 && times[i] < times[i-1] {
			t.Fatalf("not in order: %v", times)
		}
	}
}

// TestNetnsCalls counts the system calls of a process that makes them all the time.
func TestNetnsCalls(t *testing.T) {
	testenv.NeedRoot(t)
	if _, err := exec.LookPath("perf"); err != nil {
		testenv.Missing(t, "perf", "%v", err)
	}
	c := exec.CommandContext(t.Context(), "dd", "if=/dev/zero", "of=/dev/null", "bs=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait() // killed
	}()
	n, err := calls(t.Context(), strconv.Itoa(c.Process.Pid), 10*time.Millisecond)
	if err != nil {
		testenv.Missing(t, "perf", "%v", err)
	}
	if n < 1000 {
		t.Errorf("%v system calls a second", n)
	}
	if _, err := calls(t.Context(), "-1", time.Millisecond); err == nil {
		t.Error("the calls of no process were counted")
	}
}

// TestNetnsSubjects tries the subjects that each kernel has.
func TestNetnsSubjects(t *testing.T) {
	testenv.NeedTUN(t)
	for i, s := range subjects() {
		if !s.network() {
			t.Run(s.String(), func(t *testing.T) { testSubject(t, i, s) })
		}
	}
}

// TestRDMASubjects tries the kernel's networks that encrypt. It is a test of guests, whose kernel has
// them. Others say that they are left out, as bench-native does.
func TestRDMASubjects(t *testing.T) {
	testenv.NeedTUN(t)
	for i, s := range subjects() {
		if s.network() && s.what != wireguardGo {
			t.Run(s.String(), func(t *testing.T) { testSubject(t, i, s) })
		}
	}
}

// testSubject sends round trips, and datagrams of 1 and 64 flows, through a subject. It expects
// counters of the frames, and that nothing is left.
func testSubject(t *testing.T, i int, s subject) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, ctx, err := testbed.New(ctx, fmt.Sprint(i))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	st, err := newTopology(b, s)
	if n, ok := networks[s.what]; ok && err == nil {
		_, err = n.join(ctx, b, st.host, st.lan)
	} else if err == nil && s.process() {
		err = s.open(ctx, b, st)
	}
	if errors.Is(err, errLacking) {
		testenv.Missing(t, s.String(), "%v", err)
	}
	if err == nil {
		err = st.configure(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.network() {
		testEncrypts(t, st)
	}
	if _, err := roundTrips(st.host, st.lan, lanAddr, time.Millisecond); err != nil {
		t.Error(err)
	}
	for _, flows := range []int{1, 64} {
		tr, err := newTorrent(st.lan, st.host, firstOf(hostFlows), flows, small, asArrives)
		if err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, func() bool { return tr.count() > 1000*uint64(small.size) }, "datagrams arriving")
		if err := tr.stop(); err != nil {
			t.Error(err)
		}
	}
	if s.what == veth {
		testTunnel(t, st)
	}
}

// testEncrypts sends a datagram through a network, and expects that the cable carries more than the
// datagram, and not the datagram itself. It looks at the sender's end of the cable: at the other end,
// IPsec shows what it has decrypted as well.
func testEncrypts(t *testing.T, st *topology) {
	var fd int
	if err := netns.Do(st.host, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cable := testenv.Link(t, st.host, cableDev).Attrs().Index
	const everything = 0x0300 // ETH_P_ALL in network order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: cable}); err != nil {
		t.Fatal(err)
	}
	secret := bytes.Repeat([]byte("secret"), 20)
	if err := netns.Do(st.host, func() error {
		c, err := net.Dial("udp4", net.JoinHostPort(lanAddr, "7"))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(secret)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 2048)
	testenv.Eventually(t, func() bool {
		n, _, err := unix.Recvfrom(fd, frame, unix.MSG_DONTWAIT)
		if err == nil && bytes.Contains(frame[:n], secret) {
			t.Errorf("the cable carries it in the clear")
		}
		return err == nil && n > len(secret)+28+14
	}, "a frame with the datagram at the cable")
	if mtu := testenv.Link(t, st.host, st.hostDev).Attrs().MTU; st.hostDev != cableDev && mtu != lanMTU {
		t.Errorf("an MTU of %d", mtu)
	}
}

// testTunnel sends a stream through a tunnel, twice. It expects that nothing of the tunnel is left
// afterwards.
func testTunnel(t *testing.T, st *topology) {
	for _, toLAN := range []bool{true, false} {
		tr, err := newTunnelled(st, toLAN)
		if err != nil {
			testenv.Missing(t, "vxlan", "%v", err)
		}
		if mtu := testenv.Link(t, st.lan, tunnelDev).Attrs().MTU; mtu != 1450 {
			t.Errorf("an MTU of %d", mtu)
		}
		testenv.Eventually(t, func() bool { return tr.count() > 10*chunk }, "the stream carrying something")
		if err := tr.stop(); err != nil {
			t.Error(err)
		}
		if testenv.Link(t, st.host, tunnelDev) != nil || testenv.Link(t, st.lan, tunnelDev) != nil {
			t.Error("the tunnel is still there")
		}
	}
}

// TestNetnsMeasure makes a measurement of each kind of a veth pair, and expects its figures.
func TestNetnsMeasure(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTools(t, "ping")
	for _, only := range []string{"veth:tcp.tx", "veth:flood.rx", "veth:rtt", "veth:ping", "veth:overload.tx.full"} {
		var samples bytes.Buffer
		rec := results.NewRecorder(&samples)
		if err := (&options{only: only}).measure(t.Context(), rec, 1, nil); err != nil {
			t.Errorf("%s: %v", only, err)
			continue
		}
		f, err := Suite().Read(&samples)
		if err != nil || len(f.Rows) == 0 || f.Rows[0].Median <= 0 {
			t.Errorf("%s: %+v, %v", only, f.Rows, err)
		}
	}
	for _, o := range []options{{only: "nothing"}} {
		if err := o.measure(t.Context(), results.NewRecorder(os.Stderr), 1, nil); err == nil {
			t.Errorf("%q was measured", o.only)
		}
	}
}
