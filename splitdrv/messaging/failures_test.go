package messaging_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vnet"
)

// refusers returns adapters that differ in what they say when a message is refused.
func refusers() []adapter {
	all := families()
	for name, a := range map[string]fabrictest.Adapter{
		"everything":    {},
		"general error": {Says: statuses(fabric.StatusGeneralErr, fabric.StatusGeneralErr)},
		"general error of what is flushed": {
			Says: statuses(fabric.StatusRemAccessErr, fabric.StatusGeneralErr)},
		"remote operation error": {Says: statuses(fabric.StatusRemOpErr, fabric.StatusWRFlushErr)},
		"fatal error":            {Says: statuses(fabric.StatusFatalErr, fabric.StatusFatalErr)},
		"events":                 {FailureEvents: true},
		"nothing but events":     {FailureEvents: true, SilentFlushes: true, NoQuery: true},
	} {
		all = append(all, adapter{name: name, Adapter: a, options: []fabrictest.Option{fabrictest.WithAdapter(a)}})
	}
	return all
}

// statuses returns what a device says of a refused message, and of what is flushed then.
func statuses(refused, flushed fabric.Status) map[fabric.Status]fabric.Status {
	return map[fabric.Status]fabric.Status{fabric.StatusRemAccessErr: refused, fabric.StatusWRFlushErr: flushed}
}

// TestRefusedMessage refuses a message of a stream on adapters that say that in different ways. Frames
// that have arrived until then have to be right, and both sides end with a reason of their own.
func TestRefusedMessage(t *testing.T) {
	for _, a := range refusers() {
		for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate, protocol.ModeSend} {
			t.Run(fmt.Sprintf("%s, %s", a.name, mode), func(t *testing.T) {
				t.Parallel() // some wait for a time-out
				n := fabrictest.New(a.options...)
				fabrictest.NoLeaks(t, n)
				cfg := patient(messaging.Config{Mode: mode, KeepAlive: 20 * time.Millisecond})
				// Where nothing shows that a queue pair has failed, the silence of the peer does.
				mute := a.SilentFlushes && a.NoQuery && !a.FailureEvents
				if mute {
					cfg.PeerTimeout = 5 * time.Second
				}
				sides := onDevices(t, n, cfg)
				first := randomSizes(1, 20)
				if err := stream(whileUp(t, sides), sides[0].wires[0], sides[1].wires[0], first, 1500); err != nil {
					t.Fatal(err)
				}
				n.RefuseNext("b")
				untilRefused(t, sides)
				sender := ended(t, sides[0])
				if err := sides[0].conn.Close(); err != nil {
					t.Error(err)
				}
				receiver := ended(t, sides[1])
				var wc *fabric.WCError
				var event *device.EventError
				switch {
				case errors.As(sender, &event) && a.FailureEvents && event.Event.Type == fabric.EventQPFatal:
				case !errors.As(sender, &wc) || wc.Status != reported(&a.Adapter, fabric.StatusRemAccessErr) &&
					wc.Status != reported(&a.Adapter, fabric.StatusWRFlushErr):
					t.Errorf("the sender: %v", sender)
				}
				switch {
				case receiver == nil || errors.Is(receiver, messaging.ErrPeerSilent) && !mute ||
					errors.As(receiver, new(*messaging.ProtocolError)):
					t.Errorf("the receiver: %v", receiver)
				case !a.FailureEvents || !a.SilentFlushes:
				case !errors.As(receiver, &event) || event.Event.Type != fabric.EventQPAccessErr:
					t.Errorf("the receiver: %v", receiver)
				}
			})
		}
	}
}

// reported returns the status that a device says for another one.
func reported(a *fabrictest.Adapter, s fabric.Status) fabric.Status {
	if other, ok := a.Says[s]; ok {
		return other
	}
	return s
}

// untilRefused sends frames from the first side until its session ends, and compares those that arrive
// at the second.
func untilRefused(t *testing.T, sides []*endpoint) {
	t.Helper()
	ctx := whileUp(t, sides)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := uint64(0); sides[0].wires[0].Send(ctx, frame(i, 1000, 1500)) == nil; i++ {
		}
	}()
	buf := make([]byte, vnet.MaxFrame+1)
	for i := uint64(0); ; i++ {
		got, err := sides[1].wires[0].Receive(ctx, buf)
		if err != nil {
			break
		}
		if !bytes.Equal(got, frame(i, 1000, 1500)) {
			t.Errorf("frame %d has arrived changed, with %d bytes", i, len(got))
			break
		}
	}
	<-sent
}

// TestLateWindows runs sessions on devices whose windows nobody has tried, and whose binds or
// invalidations take effect late. A write that comes before its bind ends the session with a reason on
// both sides, and nothing wrong arrives.
func TestLateWindows(t *testing.T) {
	for _, fault := range []fabrictest.WindowFault{fabrictest.LateWindowBind, fabrictest.LateWindowUnbind} {
		for _, mode := range []protocol.Mode{protocol.ModeImm, protocol.ModeIndicate} {
			for _, p := range []messaging.Protection{messaging.ProtectWindow, messaging.ProtectOneTouch} {
				t.Run(fmt.Sprintf("%d, %s, %s", fault, mode, p), func(t *testing.T) {
					n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{Windows: fault}))
					sides := started(t, n, n.Device("a"), n.Device("b"),
						patient(messaging.Config{Mode: mode, Protection: p, Invalidation: true, OneTouch: true}))
					if fault == fabrictest.LateWindowUnbind { // an honest peer does not use the old key
						err := stream(whileUp(t, sides), sides[0].wires[0], sides[1].wires[0], randomSizes(1, 500), 1500)
						if err != nil {
							t.Error(err)
						}
						return
					}
					untilRefused(t, sides)
					want := &fabric.WCError{Status: fabric.StatusRemAccessErr}
					if err := ended(t, sides[0]); !errors.Is(err, want) {
						t.Errorf("the sender: %v", err)
					}
					if err := ended(t, sides[1]); err == nil || errors.Is(err, messaging.ErrPeerSilent) {
						t.Errorf("the receiver: %v", err)
					}
				})
			}
		}
	}
}
