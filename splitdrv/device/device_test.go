package device_test

import (
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// watched is a device of a new network that is listened to.
type watched struct {
	*device.Device
	t   *testing.T
	net *fabrictest.Network
}

func watch(t *testing.T) *watched {
	t.Helper()
	return watchOn(t, fabrictest.New())
}

func watchOn(t *testing.T, n *fabrictest.Network) *watched {
	t.Helper()
	fabrictest.NoLeaks(t, n)
	d, err := device.Open(device.Config{
		Open:  func() (fabric.Device, error) { return n.Open("a") },
		Log:   slog.New(slog.DiscardHandler),
		Retry: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &watched{d, t, n}
}

// session is a domain with a queue pair, like that of a session.
type session struct {
	dom   fabric.Domain
	cq    fabric.CQ
	qp    fabric.QP
	ended chan error
}

func (w *watched) session() *session {
	w.t.Helper()
	dom, err := w.NewDomain()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &session{dom: dom, ended: make(chan error, 10)}
	if s.cq, err = dom.NewCQ(16, 0); err != nil {
		w.t.Fatal(err)
	}
	s.qp, err = dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: s.cq, RecvCQ: s.cq, MaxSend: 4, MaxRecv: 4})
	if err != nil {
		w.t.Fatal(err)
	}
	dom.(device.Failing).OnFailure(func(err error) { s.ended <- err })
	return s
}

// end waits for the end of the session and returns its reason.
func (w *watched) end(s *session) error {
	w.t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(testenv.Patience):
		w.t.Fatal("the session goes on")
		return nil
	}
}

// heard waits until n events of the type have been heard.
func (w *watched) heard(t fabric.EventType, n uint64) {
	w.t.Helper()
	testenv.Eventually(w.t, func() bool { return w.Status().Events[t.Key()] == n }, "%d times %v", n, t)
}

// TestEventEndsItsSession expects that an event about a queue pair or a completion queue ends the
// session that it belongs to, with the event as the reason, once, and no other.
func TestEventEndsItsSession(t *testing.T) {
	for _, typ := range []fabric.EventType{
		fabric.EventQPFatal, fabric.EventQPReqErr, fabric.EventQPAccessErr, fabric.EventCQErr,
	} {
		t.Run(typ.Key(), func(t *testing.T) {
			w := watch(t)
			other, s := w.session(), w.session()
			ev := fabric.Event{Type: typ, QPN: s.qp.Num()}
			if typ == fabric.EventCQErr {
				ev = fabric.Event{Type: typ, CQ: s.cq.(fabric.Numbered).Handle()}
			}
			w.net.Raise("a", ev)
			var reason *device.EventError
			err := w.end(s)
			testenv.Explained(t, err.Error())
			if !errors.As(err, &reason) || reason.Event != ev || errors.Is(err, device.ErrGone) {
				t.Errorf("it ended with %v", err)
			}
			w.heard(typ, 1)
			if len(other.ended) != 0 || w.Status().Gone {
				t.Errorf("another session ended with %d reasons; %+v", len(other.ended), w.Status())
			}
			// Events are heard in turn: with the last one, the session would know of the one before.
			w.net.Raise("a", ev)
			w.net.Raise("a", fabric.Event{Type: fabric.EventGIDChange, Port: 1})
			w.heard(fabric.EventGIDChange, 1)
			if n := len(s.ended); n != 0 {
				t.Errorf("it ended %d times more", n)
			}
		})
	}
}

// TestPortEvents expects that the events of a port end no session, and are shown.
func TestPortEvents(t *testing.T) {
	w := watch(t)
	s := w.session()
	for _, e := range []struct {
		typ  fabric.EventType
		down []int
	}{
		{fabric.EventPortErr, []int{2}}, {fabric.EventGIDChange, []int{2}}, {fabric.EventPortActive, nil},
		{fabric.EventLIDChange, nil}, {fabric.EventPKeyChange, nil},
	} {
		ev := fabric.Event{Type: e.typ, Port: 2}
		w.net.Raise("a", ev)
		w.heard(e.typ, 1)
		if st := w.Status(); !reflect.DeepEqual(st.DownPorts, e.down) || st.LastEvent != ev.String() {
			t.Errorf("after %v: %+v", ev, st)
		}
	}
	if len(s.ended) != 0 {
		t.Errorf("the session ended: %v", <-s.ended)
	}
}

// TestGone removes the device. All of its sessions must end at once, and can be closed although the
// driver refuses that; the device comes back, and nothing of the first opening is left open.
func TestGone(t *testing.T) {
	w := watch(t)
	for round := range 3 {
		sessions := []*session{w.session(), w.session()}
		w.net.Remove("a")
		for _, s := range sessions {
			if err := w.end(s); !errors.Is(err, device.ErrGone) {
				t.Errorf("a session ended with %v", err)
			}
			if _, err := s.cq.Poll(make([]fabric.Completion, 1)); !errors.Is(err, unix.EIO) {
				t.Errorf("polling: %v", err)
			}
		}
		_, err := w.NewDomain()
		if !errors.Is(err, device.ErrGone) {
			t.Fatalf("a new domain: %v", err)
		}
		testenv.Explained(t, err.Error())
		if st := w.Status(); !st.Gone || st.Losses != uint64(round+1) {
			t.Errorf("%+v", st)
		}
		for _, s := range sessions {
			if err := s.dom.Close(); err != nil {
				t.Error(err)
			}
		}
		testenv.Eventually(t, func() bool { return w.net.Live() == fabrictest.Live{} }, "nothing open")
		w.net.Restore("a")
		testenv.Eventually(t, func() bool { return !w.Status().Gone }, "the device")
	}
}

// TestGoneUnheard lets a call find that the device is gone, without an event.
func TestGoneUnheard(t *testing.T) {
	w := watch(t)
	s := w.session()
	f := s.dom.(device.Failing)
	if err := f.Explain(unix.EIO); !errors.Is(err, unix.EIO) || errors.Is(err, device.ErrGone) || w.Status().Gone {
		t.Errorf("EIO of a device that is there: %v", err)
	}
	w.net.RemoveSilently("a")
	if err := f.Explain(unix.EIO); !errors.Is(err, device.ErrGone) {
		t.Errorf("EIO of a device that is gone: %v", err)
	}
	err := w.end(s)
	testenv.Explained(t, err.Error())
	if !errors.Is(err, device.ErrGone) {
		t.Errorf("the session ended with %v", err)
	}
	if !w.Status().Gone {
		t.Errorf("%+v", w.Status())
	}
}

// TestCloseGone closes the device while it is gone and a session is still open.
func TestCloseGone(t *testing.T) {
	w := watch(t)
	s := w.session()
	w.net.Remove("a")
	_ = w.end(s)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestFailedBefore sets the function for a failure after the failure.
func TestFailedBefore(t *testing.T) {
	w := watch(t)
	s := w.session()
	w.net.Raise("a", fabric.Event{Type: fabric.EventQPFatal, QPN: s.qp.Num()})
	_ = w.end(s)
	s.dom.(device.Failing).OnFailure(func(err error) { s.ended <- err })
	if err := w.end(s); !errors.As(err, new(*device.EventError)) {
		t.Error(err)
	}
}
