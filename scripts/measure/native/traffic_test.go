package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
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

// TestStreamBreaks shuts down one end of a stream. Both ends have to fail, and stop has to return
// an error.
func TestStreamBreaks(t *testing.T) {
	s, err := newStreams("", "", loopback, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(s.fds[0], unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.errs) == 2
	}, "both ends noticing")
	if err := s.stop(); err == nil {
		t.Error("nothing was said")
	}
}

func TestNetnsBlast(t *testing.T) {
	testenv.NeedRoot(t) // for a receive buffer of that size
	for _, flood := range []bool{false, true} {
		t.Run(fmt.Sprintf("flood %t", flood), func(t *testing.T) {
			testenv.NoLeaks(t)
			ns := testenv.NetNS(t)
			b, err := newBlast(ns, ns, netip.MustParseAddr(loopback), 64, flood)
			if err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, func() bool { return b.count() > 10000 }, "datagrams arriving")
			if n := b.onTheWay(); !flood && n > inFlight {
				t.Errorf("%d datagrams are on their way", n)
			}
			if err := b.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNetnsBlastLoses sends to an address where nothing arrives. The sender has to go on, and the
// receiver must not count anything.
func TestNetnsBlastLoses(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NoLeaks(t)
	from, to := testenv.NetNS(t), testenv.NetNS(t)
	b, err := newBlast(from, to, netip.MustParseAddr(loopback), 1, false)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return b.sent.Load() > 3*inFlight }, "the sender going on")
	if err := b.stop(); err != nil || b.count() != 0 {
		t.Errorf("%d datagrams arrived: %v", b.count(), err)
	}
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

// TestNetnsCount counts a system call that nothing else makes, and expects the exact number.
func TestNetnsCount(t *testing.T) {
	testenv.NeedRoot(t)
	id, err := tracepoint(systemCall)
	if err != nil {
		testenv.Missing(t, "perf", "%v", err)
	}
	events := []event{
		{name: allCalls, kind: unix.PERF_TYPE_TRACEPOINT, config: id},
		{"rare", unix.PERF_TYPE_TRACEPOINT, id, fmt.Sprintf("id == %d", unix.SYS_SCHED_GET_PRIORITY_MAX)},
	}
	can, why := countable(events)
	if len(can) != len(events) {
		testenv.Missing(t, "perf", "%v", why)
	}
	counted, err := count(os.Getpid(), events)
	if err != nil {
		t.Fatal(err)
	}
	defer counted.close()
	const calls = 1000
	for range calls {
		if _, _, errno := unix.Syscall(unix.SYS_SCHED_GET_PRIORITY_MAX, 0, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	got, err := counted.read()
	if err != nil || got["rare"] != calls || got[allCalls] < calls {
		t.Errorf("%v, %v", got, err)
	}
	if _, why := countable([]event{{name: "nothing", kind: unix.PERF_TYPE_TRACEPOINT, config: 1 << 40}}); len(why) != 1 {
		t.Errorf("an event that is not there: %q", why)
	}
}

// TestNetnsRaised writes to an eventfd(2) in semaphore mode and to another one, and expects only
// the writes to the first one to count as events of the fabric.
func TestNetnsRaised(t *testing.T) {
	testenv.NeedRoot(t)
	if got, err := raised(os.Getpid()); err != nil || len(got) != 0 {
		t.Fatalf("without any: %v, %v", got, err)
	}
	var fds [2]int
	for i, flags := range []int{unix.EFD_SEMAPHORE, 0} {
		var err error
		if fds[i], err = unix.Eventfd(0, flags|unix.EFD_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[i])
	}
	events, err := raised(os.Getpid())
	if err != nil || len(events) != 1 {
		testenv.Missing(t, "perf", "%d events, %v", len(events), err)
	}
	if _, why := countable(events); len(why) != 0 {
		testenv.Missing(t, "perf", "%v", why)
	}
	counted, err := count(os.Getpid(), events)
	if err != nil {
		t.Fatal(err)
	}
	defer counted.close()
	const writes = 100
	for i := range 3 * writes {
		if _, err := unix.Write(fds[min(i%3, 1)], []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := counted.read(); err != nil || got[fabricEvents] != writes {
		t.Errorf("%v, %v", got, err)
	}
}

// TestNetnsSubjects sends round trips, and datagrams of 1 and 64 flows, through every subject.
func TestNetnsSubjects(t *testing.T) {
	testenv.NeedTUN(t)
	for i, s := range subjects() {
		t.Run(s.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			st, err := newTopology(fmt.Sprintf("sntest-%d-%d", os.Getpid(), i), s)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := st.close(); err != nil {
					t.Error(err)
				}
			}()
			var m mover = &still{}
			switch s.what {
			case relay:
				m, err = newRelay(s, st)
			case splitnic:
				m, err = newEndpoints(s, st)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.close(); err != nil {
					t.Error(err)
				}
			}()
			if err := st.configure(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := roundTrips(st.host, st.lan, lanAddr, time.Millisecond); err != nil {
				t.Error(err)
			}
			for _, flows := range []int{1, 64} {
				b, err := newBlast(st.lan, st.host, firstOf(hostFlows), flows, false)
				if err != nil {
					t.Fatal(err)
				}
				testenv.Eventually(t, func() bool { return b.count() > 1000 }, "datagrams arriving")
				if err := b.stop(); err != nil {
					t.Error(err)
				}
			}
			got, err := m.counters()
			if s.process() && (err != nil || got.Frames[0] == 0 || got.Frames[1] < 2000 || got.Bytes[1] < 2000*udpPayload) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestNetnsTopologyFails makes a topology whose last namespace exists already. It expects an error,
// and that none of the other namespaces is left.
func TestNetnsTopologyFails(t *testing.T) {
	testenv.NeedRoot(t)
	prefix := fmt.Sprintf("sntest-%d-f", os.Getpid())
	if err := netns.New(prefix + "l"); err != nil {
		t.Fatal(err)
	}
	defer netns.Delete(prefix + "l")
	if _, err := newTopology(prefix, subject{what: veth}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a namespace of a name that is taken: %v", err)
	}
	left, err := filepath.Glob(netns.Path(prefix) + "*")
	if err != nil || len(left) != 1 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestNetnsTorrent sends each kind of datagrams as fast as they arrive, at a low rate, and at a
// rate that is too high.
func TestNetnsTorrent(t *testing.T) {
	testenv.NeedRoot(t) // for a receive buffer of that size
	for _, d := range overloads {
		for _, rate := range []float64{0, 1e6, 1e12} {
			t.Run(fmt.Sprintf("%s at %g", d.name, rate), func(t *testing.T) {
				testenv.NoLeaks(t)
				ns := testenv.NetNS(t)
				tr, err := newTorrent(ns, ns, loopback, d, rate)
				if err != nil {
					t.Fatal(err)
				}
				testenv.Eventually(t, func() bool { return tr.count() > 3*uint64(d.size) }, "datagrams arriving")
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

// TestNetnsWaste sends each kind of datagrams to the bridge that drops them, also beside others
// that have to arrive. The bridge is made once.
func TestNetnsWaste(t *testing.T) {
	testenv.NeedRoot(t)
	ns := testenv.NetNS(t)
	for _, d := range overloads {
		t.Run(d.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			waste, err := newWaste(ns, d, 1e6)
			if err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, func() bool { return waste.sent.Load() > 3*uint64(d.size) }, "datagrams being sent")
			if err := waste.stop(); err != nil || waste.count() > 0 {
				t.Errorf("%v; %d bytes have arrived", err, waste.count())
			}
			arrived, err := d.beside(t.Context(), ns, ns, loopback, 1e6, 2)
			if err != nil || arrived == 0 {
				t.Errorf("%g bytes a second arrive beside it: %v", arrived, err)
			}
		})
	}
}

// TestNetnsTorrentLost measures an overload where nothing arrives, and an unknown kind of
// datagrams. It expects errors.
func TestNetnsTorrentLost(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NoLeaks(t)
	from, to := testenv.NetNS(t), testenv.NetNS(t)
	var out strings.Builder
	err := overloadOnce(t.Context(), []string{"-time", "1ms", "fragments", from, to, loopback}, &out)
	if err == nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := overloadOnce(t.Context(), []string{"drops", from, to, loopback}, &out); err == nil {
		t.Error("an unknown kind was taken")
	}
}

// TestNetnsOverload measures an overload where as much arrives as is sent. It expects results
// for each factor.
func TestNetnsOverload(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NoLeaks(t)
	ns := testenv.NetNS(t)
	var out strings.Builder
	if err := overloadOnce(t.Context(), []string{"full", ns, ns, loopback}, &out); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String()); len(got) != 1+2*len(factors) {
		t.Errorf("%q", got)
	}
}

// TestNetnsTunnelled sends a stream through a tunnel over a veth pair, twice. It expects that
// nothing of the tunnel is left afterwards.
func TestNetnsTunnelled(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NoLeaks(t)
	r, err := newFixture(t.Context(), fmt.Sprintf("sntest-%d-", os.Getpid()), subject{what: veth})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	for range 2 {
		tr, err := newTunnelled(r.topology, func() (traffic, error) {
			return traffic1(newStreams(r.topology.host, r.topology.lan, tunnelLAN, 1))
		})
		if err != nil {
			testenv.Missing(t, "vxlan", "%v", err)
		}
		if mtu := testenv.Link(t, r.topology.lan, tunnelDev).Attrs().MTU; mtu != 1450 {
			t.Errorf("an MTU of %d", mtu)
		}
		testenv.Eventually(t, func() bool { return tr.count() > 10*chunk }, "the stream carrying something")
		if err := tr.stop(); err != nil {
			t.Error(err)
		}
		if testenv.Link(t, r.topology.host, tunnelDev) != nil || testenv.Link(t, r.topology.lan, tunnelDev) != nil {
			t.Error("the tunnel is still there")
		}
	}
}
