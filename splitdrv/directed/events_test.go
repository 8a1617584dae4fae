package directed

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// deafDevice is a device whose queue pairs, while mute is set, take RDMA reads and writes and do
// nothing.
type deafDevice struct {
	fabric.Device
	fabric.EventSource
	mute *atomic.Bool
	took *atomic.Bool
}

// NewDomain implements fabric.Device.
func (d deafDevice) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return deafDomain{dom, d}, err
}

type deafDomain struct {
	fabric.Domain
	d deafDevice
}

// NewQP implements fabric.Domain.
func (m deafDomain) NewQP(c fabric.QPConfig) (fabric.QP, error) {
	qp, err := m.Domain.NewQP(c)
	return deafQP{qp, m.d}, err
}

type deafQP struct {
	fabric.QP
	d deafDevice
}

// PostSend implements fabric.QP.
func (q deafQP) PostSend(wrs []fabric.SendWR) (int, error) {
	if q.d.mute.Load() && wrs[0].Op != fabric.OpSend {
		q.d.took.Store(true)
		return len(wrs), nil
	}
	return q.QP.PostSend(wrs)
}

// listening is a ground whose devices are listened to.
type listening struct {
	*ground
	heard [sides]*device.Device
	mute  atomic.Bool
	took  atomic.Bool
}

// on is a fabricOf.
func (l *listening) on(t *testing.T) *ground {
	n := fabrictest.New()
	l.ground = grounded(t, n)
	for i, d := range l.devices {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		heard, err := device.Open(device.Config{
			Open: func() (fabric.Device, error) {
				opened, err := n.Open(d.Name())
				if err != nil {
					return nil, err
				}
				return deafDevice{opened, opened.(fabric.EventSource), &l.mute, &l.took}, nil
			},
			Log: slog.New(slog.DiscardHandler), Retry: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		l.devices[i], l.heard[i] = heard, heard
	}
	return l.ground
}

// raise raises an event of a side's device, and waits until it was handled. A device that has failed is
// removed.
func (l *listening) raise(t *testing.T, side int, ev fabric.Event) {
	t.Helper()
	d := l.heard[side]
	if ev.Type == fabric.EventDeviceFatal {
		l.network.Remove(d.Name())
		testenv.Eventually(t, func() bool { return d.Status().Gone }, "the loss of the device")
		return // no more events are heard
	}
	l.network.Raise(d.Name(), ev)
	testenv.Eventually(t, func() bool { return d.Status().Events[ev.Type.Key()] > 0 }, "%v", ev)
	seen := d.Status().Events[fabric.EventSQDrained.Key()]
	l.network.Raise(d.Name(), fabric.Event{Type: fabric.EventSQDrained})
	testenv.Eventually(t, func() bool {
		return d.Status().Events[fabric.EventSQDrained.Key()] > seen
	}, "that %v was handled", ev)
}

// TestEventEndsLink has a requester wait for the answer to a request, or for its request to be sent,
// when an event of its device comes. The link and the request have to end for the event.
func TestEventEndsLink(t *testing.T) {
	for _, sent := range []bool{true, false} {
		for _, typ := range []fabric.EventType{
			fabric.EventDeviceFatal, fabric.EventPortErr, fabric.EventQPFatal, fabric.EventQPReqErr,
		} {
			name := typ.Key() + " before the message is sent"
			if sent {
				name = typ.Key() + " before the answer"
			}
			t.Run(name, func(t *testing.T) {
				on := &listening{}
				waits, over := make(chan struct{}), make(chan struct{})
				r := newFixture(t, on.on, func(_ int, c *Config) { c.Timeout = time.Hour })
				t.Cleanup(func() { close(over) })
				r.allow = func(protocol.Platform, *protocol.DirectedRequest) bool {
					close(waits)
					<-over
					return true
				}
				if !sent {
					on.network.Stall("requester")
					t.Cleanup(func() { on.network.Resume("requester") })
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := r.askFor(ctx)
				if sent {
					<-waits
				} else {
					testenv.Eventually(t, func() bool { return asked(r.toOwner) == 1 }, "a request")
				}
				ev := fabric.Event{Type: typ}
				switch typ {
				case fabric.EventPortErr:
					ev.Port = 1
				case fabric.EventDeviceFatal:
				default:
					ev.QPN = r.toOwner.qp.Num()
				}
				on.raise(t, requesterSide, ev)
				if typ == fabric.EventDeviceFatal { // who looks for it first gives the reason
					if err := <-done; !errors.Is(err, device.ErrGone) || !errors.Is(r.toOwner.Err(), device.ErrGone) {
						t.Errorf("the request ended with %v", err)
					}
					return
				}
				var reason *device.EventError
				if err := r.toOwner.Err(); !errors.As(err, &reason) || reason.Event != ev {
					t.Errorf("the link ended with %v", err)
					cancel()
				}
				if err := <-done; !errors.As(err, &reason) || reason.Event != ev {
					t.Errorf("the request ended with %v", err)
				}
			})
		}
	}
}

// TestGoneWithoutEvent expects that a request says that the device is gone if no event has said so.
func TestGoneWithoutEvent(t *testing.T) {
	on := &listening{}
	r := newFixture(t, on.on)
	on.network.RemoveSilently("requester")
	list := []protocol.ListElement{{Data: []byte{1}, EndOfBuffer: true}}
	err := r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 0, list))
	if !errors.Is(err, device.ErrGone) || !on.heard[requesterSide].Status().Gone {
		t.Errorf("the request ended with %v", err)
	}
}

// TestPortDownIdle expects that a link on which nobody waits outlasts a port that goes down and comes
// back.
func TestPortDownIdle(t *testing.T) {
	on := &listening{}
	r := newFixture(t, on.on)
	for range 2 {
		on.raise(t, requesterSide, fabric.Event{Type: fabric.EventPortErr, Port: 1})
		on.raise(t, requesterSide, fabric.Event{Type: fabric.EventPortActive, Port: 1})
		r.check(<-r.ask())
	}
}

// TestEventEndsTransfer has an I/O unit wait for a transfer when an event says that its queue pair has
// failed. The requester gets an answer, and the next request uses another connection.
func TestEventEndsTransfer(t *testing.T) {
	on := &listening{}
	r := newFixture(t, on.on)
	r.check(<-r.ask())
	on.mute.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := r.askFor(ctx)
	testenv.Eventually(t, on.took.Load, "a transfer")
	u := &r.nodes[unitSide].unit
	u.mu.Lock()
	c := u.conns[peers{platforms[ownerSide], platforms[requesterSide]}]
	u.mu.Unlock()
	on.raise(t, unitSide, fabric.Event{Type: fabric.EventQPFatal, QPN: c.qp.Num()})
	if c.life.Err() == nil {
		t.Error("the connection goes on")
		cancel()
	}
	r.status(<-done, protocol.DirectedUnreachable)
	on.mute.Store(false)
	r.check(<-r.ask())
	if now, made := r.nodes[unitSide].Connections(); now != 1 || made != 2 {
		t.Errorf("%d connections, %d made", now, made)
	}
}

// TestPortDownReconnects expects that a connection that was idle while the port was down is made again.
func TestPortDownReconnects(t *testing.T) {
	on := &listening{}
	r := newFixture(t, on.on)
	r.check(<-r.ask())
	on.raise(t, unitSide, fabric.Event{Type: fabric.EventPortErr, Port: 1})
	on.raise(t, unitSide, fabric.Event{Type: fabric.EventPortActive, Port: 1})
	r.check(<-r.ask())
	if now, made := r.nodes[unitSide].Connections(); now != 1 || made != 2 {
		t.Errorf("%d connections, %d made", now, made)
	}
}
