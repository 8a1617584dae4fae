package conform

import (
	"cmp"
	"fmt"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/adapters"
)

// Traits has the documented deviations of an implementation. The zero value is a device that
// conforms to the specification.
type Traits struct {
	// NoWindows is set if there are no type-2 memory windows, and NoWindowAlloc if the device says
	// that there are some and allocates none.
	NoWindows, NoWindowAlloc bool
	// UnboundedWindows is set if a window grants access to all of its region although the limits
	// say otherwise.
	UnboundedWindows bool
	// BadLKey is the status of a request whose local key is not a key of its domain; 0 means
	// StatusLocProtErr.
	BadLKey fabric.Status
	// BadLocal is the status of a request that exceeds its local region; 0 means
	// StatusLocProtErr.
	BadLocal fabric.Status
	// BadBind is the status of a bind that the device rejects; 0 means StatusMWBindErr.
	BadBind fabric.Status
	// RefusedWriteImm is the status of the first receive in the queue when a write with
	// immediate data is rejected; 0 means StatusWRFlushErr, the status of the later receives.
	RefusedWriteImm fabric.Status
	// LostRefusals is set if the sender of a rejected request may get no answer, and retries
	// in vain, if the other end closes its queue pair as soon as it has seen the failed
	// receive.
	LostRefusals bool
	// SendTooLong has the statuses at the sender and at the receiver of a SEND that is longer
	// than the receive; 0 means StatusRemInvReqErr and StatusLocLenErr.
	SendTooLong [2]fabric.Status
	// LateReceives is set if receives posted in the error state are never flushed.
	LateReceives bool
	// NoUC is set if there are no unreliable connections.
	NoUC bool
	// StrictPosts is set if a queue pair in the error state refuses posts, instead of completing
	// them as flushed.
	StrictPosts bool
	// QuietFailures is set if a failed send completion raises no event on a CQ armed for
	// solicited completions only.
	QuietFailures bool
	// QuietFlushes is set if receives that are flushed when the queue pair fails raise no
	// event on such a CQ.
	QuietFlushes bool
	// SilentFlushes is set if flushed requests raise no event on any CQ: they appear when somebody
	// polls.
	SilentFlushes bool
	// NoSolicited is set if a CQ cannot be armed for solicited completions only, and ArmsAny if one
	// that is armed so raises an event for any.
	NoSolicited, ArmsAny bool
	// NoQuery is set if a queue pair cannot be asked whether it has failed.
	NoQuery bool
}

const softRoCEDriver = "rdma_rxe"

// Kernel is a version of Linux.
type Kernel struct{ Major, Minor int }

// KernelOf returns the version at the start of a kernel release from uname(2).
func KernelOf(release string) (k Kernel, err error) {
	if _, err = fmt.Sscanf(release, "%d.%d", &k.Major, &k.Minor); err != nil {
		return Kernel{}, fmt.Errorf("kernel release %q: %w", release, err)
	}
	return k, nil
}

func (k Kernel) before(o Kernel) bool {
	return k.Major < o.Major || k.Major == o.Major && k.Minor < o.Minor
}

// softRoCE has the known traits of rdma_rxe. Each row applies from a kernel version on, in
// addition to the rows above it. Tests have run on 6.1, 6.12 and 7.2.
var softRoCE = []struct {
	from   Kernel
	traits func(*Traits)
}{
	{Kernel{}, func(t *Traits) {
		t.NoWindows = true
		t.BadLKey = fabric.StatusLocQPOpErr
		t.RefusedWriteImm = fabric.StatusRemAccessErr
		// The receive completes before the NAK is sent.
		t.LostRefusals = true
		t.SendTooLong = [2]fabric.Status{fabric.StatusRemOpErr, fabric.StatusLocQPOpErr}
		t.LateReceives = true
		t.QuietFailures = true
	}},
	// This version added memory windows.
	{Kernel{5, 14}, func(t *Traits) { t.NoWindows = false }},
	// This version rewrote the driver's tasks and error states. A request that fails in the
	// requester is flushed together with the later ones, and a flush raises no event on a CQ
	// armed for solicited completions. Seen on 6.12.
	{Kernel{6, 4}, func(t *Traits) {
		t.BadLKey, t.BadLocal, t.BadBind = fabric.StatusWRFlushErr, fabric.StatusWRFlushErr, fabric.StatusWRFlushErr
		t.QuietFlushes = true
	}},
}

// SoftRoCE returns the traits of rdma_rxe in kernel k.
func SoftRoCE(k Kernel) (t Traits) {
	for _, row := range softRoCE {
		if !k.before(row.from) {
			row.traits(&t)
		}
	}
	return t
}

// TraitsOf returns the traits of a device with limits l, by the name of its driver and the
// release of the kernel.
func TraitsOf(driver, release string, l fabric.Limits) (Traits, error) {
	if driver != softRoCEDriver {
		t := FamilyTraits(adapters.OfDriver(driver))
		t.NoWindows = !l.Windows
		return t, nil
	}
	k, err := KernelOf(release)
	return SoftRoCE(k), err
}

// FamilyTraits returns what the facts of a family of adapters say about their traits. A nil family
// has none.
func FamilyTraits(f *adapters.Family) Traits {
	if f == nil {
		return Traits{}
	}
	return Traits{
		NoWindows: f.Windows == "none", NoWindowAlloc: f.Windows != "none" && !f.AllocMW.OK(), NoUC: !f.UC.OK(),
		StrictPosts: !f.PostInError.OK(), SilentFlushes: !f.FlushWakes,
		NoSolicited: !f.ArmSolicited.OK(), ArmsAny: f.ArmsAny, NoQuery: !f.QueryQP.OK(),
	}
}

// Lost reports whether the sender of a rejected request may end with status s because it got
// no answer.
func (t Traits) Lost(s fabric.Status) bool { return t.LostRefusals && s == fabric.StatusRetryExcErr }

func (t Traits) withDefaults() Traits {
	t.BadLKey = cmp.Or(t.BadLKey, fabric.StatusLocProtErr)
	t.BadLocal = cmp.Or(t.BadLocal, fabric.StatusLocProtErr)
	t.BadBind = cmp.Or(t.BadBind, fabric.StatusMWBindErr)
	t.RefusedWriteImm = cmp.Or(t.RefusedWriteImm, fabric.StatusWRFlushErr)
	t.SendTooLong = cmp.Or(t.SendTooLong, [2]fabric.Status{fabric.StatusRemInvReqErr, fabric.StatusLocLenErr})
	return t
}
