package conform_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/adapters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inMemory returns a function that opens both ends on one device of a network in memory. The device
// has the limits has, and reports the limits claims.
func inMemory(t *testing.T, has, claims fabric.Limits) func() (conform.Pair, error) {
	n := fabrictest.New(fabrictest.WithLimits(has))
	fabrictest.NoLeaks(t, n)
	return func() (conform.Pair, error) {
		return conform.Pair{
			A: boastful{n.Device("a"), claims}, B: boastful{n.Device("a"), claims},
			Traits: conform.Traits{NoWindows: !claims.Windows}, Patience: conform.ExaminePatience,
		}, nil
	}
}

// boastful is a device that reports the limits claims instead of its own.
type boastful struct {
	fabric.Device
	claims fabric.Limits
}

func (b boastful) Limits() fabric.Limits { return b.claims }

func examine(t *testing.T, has, claims fabric.Limits) map[string]conform.Finding {
	t.Helper()
	found, err := conform.Examine(t.Context(), inMemory(t, has, claims))
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]conform.Finding{}
	for _, f := range found {
		if f.Means == "" || (f.Outcome == conform.Holds) != (f.Detail == "") {
			t.Errorf("%+v", f)
		}
		by[f.Property] = f
	}
	return by
}

// windowTrials has the names of the trials of memory windows.
var windowTrials = []string{"windows", "window bounds", "other queue pair", "stale key", "next key", "unbound window",
	"invalidation by peer", "bind and send"}

// TestExamine expects a finding for each property. Windows that a device does not have, although it
// says so, are not needed.
func TestExamine(t *testing.T) {
	full := fabrictest.DefaultLimits()
	loose, none := full, full
	loose.WindowBounds = false
	none.Windows, none.WindowBounds = false, false
	for _, c := range []struct {
		name        string
		has, claims fabric.Limits
		lacks       []string
	}{
		{name: "all there is", has: full, claims: full},
		{name: "without bounds", has: loose, claims: loose, lacks: []string{"window bounds"}},
		{name: "without bounds, though it says so", has: loose, claims: full, lacks: []string{"window bounds"}},
		{name: "with bounds, though it says not", has: full, claims: loose},
		{name: "without windows", has: none, claims: none, lacks: windowTrials},
		{name: "without windows, though it says so", has: none, claims: full, lacks: windowTrials},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := examine(t, c.has, c.claims)
			want := map[string]conform.Outcome{}
			for name := range found {
				want[name] = conform.Holds
			}
			for _, n := range append(c.lacks, "moderation") { // the default limits have none
				want[n] = conform.Lacks
			}
			if len(found) != len(want) || len(found) < 21 {
				t.Errorf("%d findings, want %d", len(found), len(want))
			}
			for name, outcome := range want {
				if found[name].Outcome != outcome {
					t.Errorf("%s: %+v, want %s", name, found[name], outcome)
				}
			}
		})
	}
}

// TestExamineUnreachable expects a single finding if the two ends cannot reach each other.
func TestExamineUnreachable(t *testing.T) {
	open := inMemory(t, fabrictest.DefaultLimits(), fabrictest.DefaultLimits())
	found, err := conform.Examine(t.Context(), func() (conform.Pair, error) {
		p, err := open()
		if err == nil {
			p.A = deaf{p.A}
		}
		return p, err
	})
	if err != nil || len(found) != 1 || found[0].Outcome != conform.Fails || !strings.Contains(found[0].Detail, "no way") {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestExamineBindSend examines devices whose BindSend does not post a bind and then the message
// with the key of the bind. It expects them to lack only the property "bind and send".
func TestExamineBindSend(t *testing.T) {
	limits := fabrictest.DefaultLimits()
	for name, post := range map[string]postBindSend{
		"key before the bind": func(q fabric.QP, b fabric.BindWR, send uint64, f fabric.Flags) (uint32, error) {
			before := b.Window.RKey()
			if _, err := q.PostSend([]fabric.SendWR{{ID: send, Op: fabric.OpSendImm, Imm: before, Flags: f}}); err != nil {
				return 0, err
			}
			return q.Bind(b)
		},
		"key of a bind that fails": func(q fabric.QP, b fabric.BindWR, send uint64, f fabric.Flags) (uint32, error) {
			if b.Window.Bound() {
				return 0, errNoWay
			}
			next := b.Window.RKey()&^0xff | (b.Window.RKey()+1)&0xff
			if _, err := q.PostSend([]fabric.SendWR{{ID: send, Op: fabric.OpSendImm, Imm: next, Flags: f}}); err != nil {
				return 0, err
			}
			return q.Bind(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			open := inMemory(t, limits, limits)
			found, err := conform.Examine(t.Context(), func() (conform.Pair, error) {
				p, err := open()
				p.B = posting{p.B, post}
				return p, err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				lacks := f.Property == "bind and send" || f.Property == "moderation"
				if lacks != (f.Outcome == conform.Lacks) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

type postBindSend func(q fabric.QP, b fabric.BindWR, send uint64, f fabric.Flags) (uint32, error)

// posting is a device whose queue pairs use post as BindSend.
type posting struct {
	fabric.Device
	post postBindSend
}

func (d posting) NewDomain() (fabric.Domain, error) {
	dom, err := d.Device.NewDomain()
	return postingDomain{dom, d.post}, err
}

type postingDomain struct {
	fabric.Domain
	post postBindSend
}

func (d postingDomain) NewQP(cfg fabric.QPConfig) (fabric.QP, error) {
	q, err := d.Domain.NewQP(cfg)
	return postingQP{q, d.post}, err
}

type postingQP struct {
	fabric.QP
	post postBindSend
}

func (q postingQP) BindSend(b fabric.BindWR, send uint64, f fabric.Flags) (uint32, error) {
	return q.post(q.QP, b, send, f)
}

var errNoWay = errors.New("no way")

// deaf is a device whose NewDomain fails.
type deaf struct{ fabric.Device }

func (deaf) NewDomain() (fabric.Domain, error) { return nil, errNoWay }

// TestExamineEnds expects no findings with an ended context, and with devices that cannot be opened.
func TestExamineEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	refuse := func() (conform.Pair, error) { return conform.Pair{}, errNoWay }
	if found, err := conform.Examine(ctx, refuse); !errors.Is(err, context.Canceled) || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err := conform.Examine(t.Context(), refuse); !errors.Is(err, errNoWay) || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// examineOn examines both ends on one device of a network.
func examineOn(t *testing.T, n *fabrictest.Network) map[string]conform.Finding {
	t.Helper()
	fabrictest.NoLeaks(t, n)
	found, err := conform.Examine(t.Context(), func() (conform.Pair, error) {
		return conform.Pair{A: n.Device("a"), B: n.Device("a"), Patience: conform.ExaminePatience}, nil
	})
	if err != nil {
		t.Error(err)
	}
	by := map[string]conform.Finding{}
	for _, f := range found {
		by[f.Property] = f
	}
	if len(by) < len(found) || len(found) < 21 {
		t.Errorf("%d findings, %d different", len(found), len(by))
	}
	return by
}

// TestExamineAdapters examines devices that break the contract in one way each, and expects that it
// is found.
func TestExamineAdapters(t *testing.T) {
	for _, c := range []struct {
		fabrictest.Adapter
		property string
		outcome  conform.Outcome
	}{
		{fabrictest.Adapter{LateInline: true}, "inline data", conform.Fails},
		{fabrictest.Adapter{Inline: -1}, "inline data", conform.Lacks},
		{fabrictest.Adapter{NoEmptyWrites: true}, "empty writes", conform.Fails},
		{fabrictest.Adapter{LateWrites: true}, "data before messages", conform.Lacks},
		{fabrictest.Adapter{Windows: fabrictest.NoWindowBind}, "windows", conform.Lacks},
	} {
		for _, f := range examineOn(t, fabrictest.New(fabrictest.WithAdapter(c.Adapter))) {
			if f.Property == c.property && f.Outcome != c.outcome || f.Property != c.property && f.Outcome == conform.Fails {
				t.Errorf("%+v: %+v", c.Adapter, f)
			}
		}
	}
}

// TestExamineFamilies examines an adapter of each family. It expects that the adapter lacks what the
// facts of its family say, and nothing else: nothing that sessions need.
func TestExamineFamilies(t *testing.T) {
	for _, a := range adapters.All() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel() // some wait in vain for an event
			n := fabrictest.New(fabrictest.WithFamily(a))
			if !a.Suitable() {
				if _, err := n.Open("a"); !errors.Is(err, fabric.ErrUnsupported) {
					t.Errorf("it was opened: %v", err)
				}
				return
			}
			lacks := map[string]bool{
				"moderation":       !a.Moderation.OK(),
				"pieces":           a.SGE < 4,
				"inline data":      a.LateInline, // it is not used there
				"solicited events": !a.ArmSolicited.OK() || a.ArmsAny,
				"flush":            !a.PostInError.OK() || !a.FlushWakes,
			}
			windows := a.Windows != "none" && a.AllocMW.OK()
			for _, w := range windowTrials {
				lacks[w] = !windows
			}
			for _, f := range examineOn(t, n) {
				want := conform.Holds
				if lacks[f.Property] {
					want = conform.Lacks
				}
				if f.Outcome != want {
					t.Errorf("%+v, want %s", f, want)
				}
			}
			dev := n.Device("a")
			w, sure := conform.TryWindows(dev)
			if w.Work != windows || w.Bounds != windows || !sure || (w.Why == "") != (windows || a.Windows == "none") {
				t.Errorf("its windows: %+v, sure %v", w, sure)
			}
			if why, sure := conform.TryIndications(dev); why != "" || !sure {
				t.Errorf("messages about data: %q, sure %v", why, sure)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
