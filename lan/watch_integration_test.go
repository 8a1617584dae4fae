package lan_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/vnet"
)

// watcher collects the states that Watch reports.
type watcher struct {
	t      *testing.T
	states chan lan.LinkState
	ended  chan error
	cancel context.CancelFunc
}

func watch(t *testing.T, p lan.Interface) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{t: t, states: make(chan lan.LinkState, 64), ended: make(chan error, 1), cancel: cancel}
	go func() { w.ended <- p.Watch(ctx, func(s lan.LinkState) { w.states <- s }) }()
	t.Cleanup(cancel)
	return w
}

// until waits until Watch reports a state that ok accepts, and returns the state.
func (w *watcher) until(what string, ok func(lan.LinkState) bool) lan.LinkState {
	w.t.Helper()
	timeout := time.After(testenv.Patience)
	for {
		select {
		case s := <-w.states:
			if ok(s) {
				return s
			}
		case err := <-w.ended:
			w.t.Fatalf("waiting for %s: Watch returned %v", what, err)
		case <-timeout:
			w.t.Fatalf("waiting for %s", what)
		}
	}
}

// end waits for Watch to return.
func (w *watcher) end() error {
	w.t.Helper()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(testenv.Patience):
		w.t.Fatal("Watch does not end")
		return nil
	}
}

func TestNetnsWatch(t *testing.T) {
	testenv.NeedTUN(t)
	for _, kind := range strings.Fields(kinds) {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newTestbed(t)
			p := s.open(t, s.spec(t, kind), lan.Config{MAC: macA, Offloads: vnet.AllOffloads})
			set := func(ns, name string, change func(*netlink.Handle, netlink.Link) error) {
				testenv.With(t, ns, func(h *netlink.Handle) error { return change(h, testenv.Link(t, ns, name)) })
			}
			w := watch(t, p)
			up := func(s lan.LinkState) bool { return s.Up && s.MTU == 1500 }
			if st := w.until("the first state", up); kind != "tap" && st.Speed != 10000 {
				t.Errorf("speed %d, a veth's is 10000", st.Speed)
			}
			if st, err := p.State(); err != nil || !up(st) {
				t.Errorf("state %+v, %v", st, err)
			}

			set(s.station, "eth0", (*netlink.Handle).LinkSetDown)
			if kind == "tap" {
				// A bridge has carrier while one of its ports has carrier, and the port of the host
				// has carrier.
				set(s.unit, "br0", (*netlink.Handle).LinkSetDown)
			}
			w.until("carrier lost", func(s lan.LinkState) bool { return !s.Up })
			set(s.station, "eth0", (*netlink.Handle).LinkSetUp)
			if kind == "tap" {
				set(s.unit, "br0", (*netlink.Handle).LinkSetUp)
			}
			w.until("carrier back", up)

			card := nic
			if kind == "tap" {
				card = "br0"
			}
			for _, mtu := range []int{1400, 1450} {
				set(s.unit, card, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetMTU(l, mtu) })
				w.until("a new MTU", func(s lan.LinkState) bool { return s.MTU == mtu })
				if got := testenv.Link(t, s.unit, p.Name()).Attrs().MTU; got != mtu {
					t.Errorf("the port has MTU %d instead of %d", got, mtu)
				}
			}
			w.cancel()
			if err := w.end(); err != nil {
				t.Errorf("cancelled: %v", err)
			}

			w = watch(t, p)
			w.until("the first state", func(lan.LinkState) bool { return true })
			set(s.unit, card, (*netlink.Handle).LinkDel)
			if err := w.end(); !errors.Is(err, lan.ErrGone) {
				t.Errorf("after the card went: %v", err)
			}
			last := lan.LinkState{Up: true}
			for len(w.states) > 0 {
				last = <-w.states
			}
			if last.Up {
				t.Error("the last state is up")
			}
			if err := p.Close(); err != nil {
				t.Errorf("Close after the card went: %v", err)
			}
		})
	}
}

// TestNetnsWatchPort deletes the port's netdevice, but not the card. It expects Watch to return
// ErrGone.
func TestNetnsWatchPort(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	s := newTestbed(t)
	p := s.open(t, nic, lan.Config{MAC: macA})
	w := watch(t, p)
	w.until("the first state", func(s lan.LinkState) bool { return s.Up })
	testenv.With(t, s.unit, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, s.unit, p.Name())) })
	if err := w.end(); !errors.Is(err, lan.ErrGone) {
		t.Errorf("%v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close after the netdevice went: %v", err)
	}
}

func TestNetnsLinkInfo(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	s := newTestbed(t)
	info, err := lan.LinkInfo(nic, s.unit)
	a := testenv.Link(t, s.unit, nic).Attrs()
	if err != nil || info.Name != nic || info.Index != a.Index || info.Type != "veth" ||
		!bytes.Equal(info.MAC[:], a.HardwareAddr) || info.MTU != 1500 || !info.Up || info.Speed != 10000 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := lan.LinkInfo("eth7", s.unit); err == nil || !strings.Contains(err.Error(), nic) {
		t.Errorf("missing card: %v", err)
	}
}

// TestNetnsPrepare prepares a card that is down. It expects the card to be up, and the size of its
// super-frames to be limited until restore is called.
func TestNetnsPrepare(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	s := newTestbed(t)
	gro := func() int { return int(testenv.Link(t, s.unit, nic).Attrs().GROMaxSize) }
	before := gro()
	// Linux has a limit for IPv4 of its own from 6.3 on.
	gro4 := func() int { return int(testenv.Link(t, s.unit, nic).Attrs().GROIPv4MaxSize) }
	const large = 185000
	for _, sizes := range [][2]int{{before, large}, {large, large}, {large, before}, {40000, large}, {before, before}} {
		if gro4() == 0 {
			break
		}
		testenv.With(t, s.unit, func(h *netlink.Handle) error {
			l := testenv.Link(t, s.unit, nic)
			return errors.Join(h.LinkSetGROMaxSize(l, sizes[0]), h.LinkSetGROIPv4MaxSize(l, sizes[1]))
		})
		restore, err := lan.Prepare(nic, s.unit)
		if err != nil {
			t.Fatal(err)
		}
		if gro() != min(sizes[0], vnet.GSOMaxSize) || gro4() != min(sizes[1], vnet.GSOMaxSize) {
			t.Errorf("of %d: gro_max_size %d, gro_ipv4_max_size %d", sizes, gro(), gro4())
		}
		if err := restore(); err != nil || gro() != sizes[0] || gro4() != sizes[1] {
			t.Errorf("restored to %d and %d of %d, %v", gro(), gro4(), sizes, err)
		}
	}
	testenv.With(t, s.unit, func(h *netlink.Handle) error { return h.LinkSetDown(testenv.Link(t, s.unit, nic)) })
	restore, err := lan.Prepare(nic, s.unit)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := lan.LinkInfo(nic, s.unit); err != nil || !info.Up {
		t.Errorf("%+v, %v", info, err)
	}
	if before != 0 && gro() != vnet.GSOMaxSize {
		t.Errorf("gro_max_size %d", gro())
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	if gro() != before {
		t.Errorf("gro_max_size %d, before %d", gro(), before)
	}
	if _, err := lan.Prepare("eth7", s.unit); err == nil {
		t.Error("prepared a card that does not exist")
	}
	// If the card is gone, restore has nothing to do.
	restore, err = lan.Prepare(nic, s.unit)
	if err != nil {
		t.Fatal(err)
	}
	testenv.With(t, s.unit, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, s.unit, nic)) })
	if err := restore(); err != nil {
		t.Error(err)
	}
}
