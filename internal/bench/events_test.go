package bench

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// listened opens a device whose events are heard, as the command does.
func listened(t *testing.T, n *fabrictest.Network, name string) *device.Device {
	t.Helper()
	d, err := device.Open(device.Config{
		Open: func() (fabric.Device, error) { return n.Open(name) }, Log: slog.New(slog.DiscardHandler),
		Retry: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestEventEndsMeasurement expects that an event of the device, at either end, ends a measurement of an
// hour with the event as the reason.
func TestEventEndsMeasurement(t *testing.T) {
	for _, at := range []string{"a", "b"} {
		for _, typ := range []fabric.EventType{
			fabric.EventDeviceFatal, fabric.EventPortErr, fabric.EventQPFatal, fabric.EventQPAccessErr,
		} {
			t.Run(typ.Key()+" of "+at, func(t *testing.T) {
				n := fabrictest.New()
				devices := map[string]*device.Device{"a": listened(t, n, "a"), "b": listened(t, n, "b")}
				l := &Local{From: devices["a"], To: devices["b"], Messaging: patient}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error, 1)
				go func() {
					_, err := l.Measure(ctx, Spec{
						Kind: BW, Mode: protocol.ModeImm, Size: 1500, Queues: 1, Duration: time.Hour,
					})
					done <- err
				}()
				testenv.Eventually(t, func() bool { return n.Counters("a").WriteImms > 10 }, "a measurement")
				ev := fabric.Event{Type: typ}
				switch typ {
				case fabric.EventPortErr:
					ev.Port = 1
				case fabric.EventQPFatal, fabric.EventQPAccessErr:
					ev.QPN = n.QueuePairs(at)[0].Num
				default:
				}
				n.Raise(at, ev)
				testenv.Eventually(t, func() bool { return devices[at].Status().Events[typ.Key()] == 1 }, "the event")
				var reason *device.EventError
				if err := outcome(n, done, cancel); !errors.As(err, &reason) || reason.Event != ev {
					t.Errorf("it ended with %v", err)
				}
			})
		}
	}
}

// outcome returns how the measurement ends. It ends it if many more messages are sent.
func outcome(n *fabrictest.Network, done <-chan error, cancel context.CancelCauseFunc) error {
	before := n.Counters("a").WriteImms
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
		if n.Counters("a").WriteImms > before+20_000 {
			cancel(errors.New("the measurement goes on"))
		}
	}
}
