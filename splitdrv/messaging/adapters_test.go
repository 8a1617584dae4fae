package messaging_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/adapters"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// adapter is a kind of adapter that sessions meet.
type adapter struct {
	name string
	fabrictest.Adapter
	fabric.Limits
	options []fabrictest.Option
	inline  int // largest transfer that a session posts inline
}

// kinds returns the families of adapters that can have sessions, and adapters with one fault that no
// family is known to have.
func kinds() []adapter {
	all := []adapter{{name: "everything"}}
	for _, c := range []struct {
		name string
		fabrictest.Adapter
	}{
		{"late writes", fabrictest.Adapter{LateWrites: true}},
		{"windows not bound", fabrictest.Adapter{Windows: fabrictest.NoWindowBind}},
		{"windows fail", fabrictest.Adapter{Windows: fabrictest.FailedWindowBind}},
		{"windows without bounds", fabrictest.Adapter{Windows: fabrictest.UnboundedWindows}},
		{"windows guard nothing", fabrictest.Adapter{Windows: fabrictest.UncheckedWindows}},
		{"windows bound late", fabrictest.Adapter{Windows: fabrictest.LateWindowBind}},
		{"windows unbound late", fabrictest.Adapter{Windows: fabrictest.LateWindowUnbind}},
		{"events of failures", fabrictest.Adapter{FailureEvents: true}},
	} {
		all = append(all, adapter{name: c.name, Adapter: c.Adapter,
			options: []fabrictest.Option{fabrictest.WithAdapter(c.Adapter)}})
	}
	for i := range all {
		all[i].inline, all[i].Limits = messaging.DefaultInline, fabrictest.DefaultLimits()
	}
	return append(all, families()...)
}

// families returns the families of adapters that can have sessions.
func families() (all []adapter) {
	for _, f := range adapters.All() {
		if f.Suitable() {
			all = append(all, adapter{name: f.Name, Adapter: fabrictest.Family(f), Limits: fabrictest.FamilyLimits(f),
				options: []fabrictest.Option{fabrictest.WithFamily(f)}, inline: inlineOf(f)})
		}
	}
	return all
}

// inlineOf returns what a queue pair of a session is granted on an adapter of a family.
func inlineOf(f *adapters.Family) int {
	switch {
	case f.LateInline:
		return 0 // it is not used
	case f.InlineMax >= messaging.DefaultInline || f.Inline == "cuts":
		return min(f.InlineMax, messaging.DefaultInline)
	}
	most := 0
	for _, tried := range []int{32, 64, 96, 128} { // package inline
		if tried <= f.InlineMax {
			most = tried
		}
	}
	return most
}

// protects returns the protection in force on an adapter if one is asked for; "" if there is none.
func (a *adapter) protects(mode protocol.Mode, asked messaging.Protection) messaging.Protection {
	switch {
	case mode.Sends() || asked == messaging.ProtectRegion:
		return messaging.ProtectRegion
	case a.Limits.Windows && a.Adapter.Windows == fabrictest.WindowsWork && !a.LateWrites: // with them no trial succeeds
		return cmp.Or(asked, messaging.ProtectWindow)
	case a.Adapter.Windows == fabrictest.UnboundedWindows || asked == "":
		return cmp.Or(asked, messaging.ProtectRegion)
	default:
		return ""
	}
}

// carries reports whether an adapter carries a mode.
func (a *adapter) carries(mode protocol.Mode) bool {
	switch mode {
	case protocol.ModeSendUC:
		return a.NoUC == nil
	case protocol.ModeIndicate:
		return !a.LateWrites // see device.Carries
	default:
		return true
	}
}

// watchedDevice opens a device of n as the daemons do.
func watchedDevice(t *testing.T, n *fabrictest.Network, name string) *device.Device {
	t.Helper()
	d, err := device.Open(device.Config{
		Open: func() (fabric.Device, error) { return n.Open(name) }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// whileUp returns a context like that of deadline, which ends as soon as one of the sessions does.
func whileUp(t *testing.T, sides []*endpoint) context.Context {
	ctx, cancel := context.WithCancelCause(deadline(t))
	t.Cleanup(func() { cancel(nil) })
	for _, h := range sides {
		go func() {
			select {
			case <-h.conn.Done():
				cancel(fmt.Errorf("the session of %s has ended: %w", h.name, h.conn.Err()))
			case <-ctx.Done():
			}
		}()
	}
	return ctx
}

// onDevices returns two endpoints on devices of n, opened as the daemons do, connected and started.
func onDevices(t *testing.T, n *fabrictest.Network, cfg messaging.Config) (sides []*endpoint) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		sides = append(sides, newEndpointOn(t, watchedDevice(t, n, name), name, cfg))
		cfg = peerOf(t, cfg)
	}
	connect(t, sides[0], sides[1])
	for _, h := range sides {
		if err := h.conn.Start(h.ports); err != nil {
			t.Fatal(err)
		}
	}
	return sides
}

// TestAdapters runs sessions with traffic in both directions on each kind of adapter, in each mode
// and with each protection that it can have.
func TestAdapters(t *testing.T) {
	for _, a := range kinds() {
		for _, mode := range protocol.Modes() {
			for _, protection := range append(messaging.Protections(), "") {
				if mode.Sends() && protection != "" {
					continue // no memory is lent
				}
				if a.LateWrites && !a.carries(mode) {
					continue // not offered
				}
				t.Run(fmt.Sprintf("%s, %s, %s", a.name, mode, protection), func(t *testing.T) {
					goleak.VerifyNone(t)
					cfg := patient(messaging.Config{Mode: mode, Protection: protection, Queues: 2,
						Invalidation: true, OneTouch: true})
					n := fabrictest.New(a.options...)
					fabrictest.NoLeaks(t, n)
					want := a.protects(mode, protection)
					if want == "" || !a.carries(mode) {
						cfg.Device = watchedDevice(t, n, "a")
						if _, err := messaging.New(cfg); err == nil || want == "" && !errors.Is(err, fabric.ErrUnsupported) {
							t.Errorf("a session began: %v", err)
						}
						if err := cfg.Device.Close(); err != nil {
							t.Error(err)
						}
						return
					}
					sides := onDevices(t, n, cfg)
					ctx := whileUp(t, sides)
					var wg sync.WaitGroup
					for i, from := range sides {
						for j := range from.wires {
							wg.Go(func() {
								sizes := append(randomSizes(uint64(2*i+j), 60), 60, 200, 60)
								if err := stream(ctx, from.wires[j], sides[1-i].wires[j], sizes, 1500); err != nil {
									t.Errorf("queue %d from %s: %v", j, from.name, err)
								}
							})
						}
					}
					wg.Wait()
					if t.Failed() {
						return
					}
					settled(t, sides[0], sides[1])
					loose := a.Adapter.Windows == fabrictest.UnboundedWindows
					if l := n.Live(); want == messaging.ProtectOneTouch && loose != (l.Regions >= l.Windows) {
						t.Errorf("%d regions for %d elements", l.Regions, l.Windows)
					}
					for _, h := range sides {
						if err := h.conn.QueryQueuePairs(); err != nil {
							t.Errorf("%s: %v", h.name, err)
						}
						if p := h.conn.Stats().Protection; p.Name != want {
							t.Errorf("%s: protected by %+v, want %s", h.name, p, want)
						}
						for i, s := range h.conn.Stats().Channels {
							if s.Inline != a.inline || s.TxInline > 0 && a.inline == 0 {
								t.Errorf("%s: queue %d: %d transfers of up to %d bytes were inline; want %d bytes", h.name, i,
									s.TxInline, s.Inline, a.inline)
							}
						}
					}
				})
			}
		}
	}
}

// TestArmForAll arms a completion queue for solicited completions on a device that cannot do that.
// Another completion has to raise an event.
func TestArmForAll(t *testing.T) {
	for _, none := range []bool{false, true} {
		n := fabrictest.New(fabrictest.WithAdapter(fabrictest.Adapter{NoSolicited: none}))
		fabrictest.NoLeaks(t, n)
		dev := n.Device("a")
		t.Cleanup(func() { _ = dev.Close() })
		dom, err := dev.NewDomain()
		if err != nil {
			t.Fatal(err)
		}
		cq, err := dom.NewCQ(8, 0)
		if err != nil {
			t.Fatal(err)
		}
		qp, err := dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: cq, RecvCQ: cq, MaxSend: 4, MaxRecv: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := qp.Connect(qp.Address(), fabric.Timing{}); err != nil {
			t.Fatal(err)
		}
		if err := messaging.ArmSolicited(cq); err != nil {
			t.Fatal(err)
		}
		if _, err := qp.PostSend([]fabric.SendWR{{Op: fabric.OpWrite, Flags: fabric.Signaled}}); err != nil {
			t.Fatal(err)
		}
		if raised, err := cq.ReadEvent(); raised != none || err != nil {
			t.Errorf("without solicited events %t: an event %t, %v", none, raised, err)
		}
	}
}
