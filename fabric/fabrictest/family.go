package fabrictest

import (
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/adapters"
)

// WithFamily makes the devices behave like the adapters of a family, as far as its facts say:
// nothing of a family is written down here. Only what the facts say of writes with immediate data has
// no effect: the families that have none are not opened.
func WithFamily(f *adapters.Family) Option {
	return func(n *Network) { n.adapter, n.limits = Family(f), FamilyLimits(f) }
}

// Family returns what the facts of a family say about its adapters.
func Family(f *adapters.Family) Adapter {
	a := Adapter{
		Driver: f.Driver, Inline: f.InlineMax, InlineRefused: f.Inline == "refuses", LateInline: f.LateInline,
		NoRC: refusal(f.RC), NoUC: refusal(f.UC),
		NoSolicited: !f.ArmSolicited.OK(), ArmsAny: f.ArmsAny, NoQuery: !f.QueryQP.OK(),
		StrictPosts: refusal(f.PostInError), NoSolicitedWrites: refusal(f.SolicitedWrite), SilentFlushes: !f.FlushWakes,
	}
	if f.Transport != "infiniband" {
		a.NoOpen = fmt.Errorf("transport %s: %w", f.Transport, fabric.ErrUnsupported)
	}
	switch {
	case f.Windows == "none":
	case !f.AllocMW.OK():
		a.Windows = NoWindowAlloc
	case !f.Bind.OK() || !f.Invalidate.OK():
		a.Windows = NoWindowBind
	}
	return a
}

// FamilyLimits returns the limits that the adapters of a family announce.
func FamilyLimits(f *adapters.Family) fabric.Limits {
	l := DefaultLimits()
	l.MaxSGE = min(l.MaxSGE, f.SGE)
	l.Windows = f.Windows != "none"
	l.WindowBounds = l.Windows
	l.Moderation = f.Moderation.OK()
	return l
}

// refusal returns the error of a call with this answer, as package verbs does; nil if it succeeds.
func refusal(a adapters.Answer) error {
	switch {
	case a.OK():
		return nil
	case a.Unsupported():
		return fmt.Errorf("%w: %w", fabric.ErrUnsupported, a.Errno())
	default:
		return a.Errno()
	}
}
