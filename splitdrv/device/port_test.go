package device_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// ofPort is a device whose queue pairs use port 2.
type ofPort struct {
	fabric.Device
	fabric.EventSource
}

func (ofPort) PortNumber() int { return 2 }

// TestPortDown expects that who wants to know hears when the port of the queue pairs goes down, or is
// down, and hears nothing of other ports and other events.
func TestPortDown(t *testing.T) {
	n := fabrictest.New()
	fabrictest.NoLeaks(t, n)
	d, err := device.Open(device.Config{
		Open: func() (fabric.Device, error) {
			d, err := n.Open("a")
			if err != nil {
				return nil, err
			}
			return ofPort{d, d.(fabric.EventSource)}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{d, t, n}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	markers := uint64(0)
	raise := func(ev fabric.Event) {
		t.Helper()
		n.Raise("a", ev)
		markers++
		n.Raise("a", fabric.Event{Type: fabric.EventSQDrained})
		w.heard(fabric.EventSQDrained, markers) // and ev before it
	}
	listen := func() chan error {
		t.Helper()
		told := make(chan error, 10)
		w.session().dom.(device.Failing).OnPortDown(func(err error) { told <- err })
		return told
	}
	expect := func(told chan error, want int) {
		t.Helper()
		for ; len(told) > 0; want-- {
			var reason *device.EventError
			down := fabric.Event{Type: fabric.EventPortErr, Port: 2}
			if err := <-told; !errors.As(err, &reason) || reason.Event != down {
				t.Errorf("%v", err)
			}
		}
		if want != 0 {
			t.Errorf("%d calls are missing", want)
		}
	}
	first := listen()
	for port, calls := range map[int]int{1: 0, 2: 1} {
		raise(fabric.Event{Type: fabric.EventPortErr, Port: port})
		expect(first, calls)
	}
	expect(listen(), 1)
	raise(fabric.Event{Type: fabric.EventPortActive, Port: 2})
	raise(fabric.Event{Type: fabric.EventLIDChange, Port: 2})
	expect(first, 0)
	expect(listen(), 0)
}
