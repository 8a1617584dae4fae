package conform

import (
	"fmt"

	"github.com/splitnic/splitnic/fabric"
)

// Traits are the documented deviations of an implementation. The zero value
// is a device that keeps to the specification.
type Traits struct {
	// NoWindows says that there are no type-2 memory windows.
	NoWindows bool
	// BadLKey is the status of a request whose local key is none of its
	// domain's; 0 means StatusLocProtErr.
	BadLKey fabric.Status
	// BadLocal is the status of a request that exceeds its local region; 0 means
	// StatusLocProtErr.
	BadLocal fabric.Status
	// BadBind is the status of a bind that the device refuses; 0 means
	// StatusMWBindErr.
	BadBind fabric.Status
	// RefusedWriteImm is the status of the receive that is first in the queue
	// when a write with immediate data is refused; 0 means StatusWRFlushErr,
	// like those behind it.
	RefusedWriteImm fabric.Status
	// LostRefusals says that the sender of what is refused may hear nothing, and
	// retries in vain, if the other end closes its queue pair as soon as it has
	// seen the failed receive.
	LostRefusals bool
	// SendTooLong are the statuses at the sender and the receiver of a SEND
	// longer than the receive; 0 means StatusRemInvReqErr and StatusLocLenErr.
	SendTooLong [2]fabric.Status
	// LateReceives says that receives posted in the error state are never
	// flushed.
	LateReceives bool
	// QuietFailures says that a failed send completion raises no event on a CQ
	// armed for solicited ones only.
	QuietFailures bool
	// QuietFlushes says the same of receives that are flushed when the queue pair
	// fails.
	QuietFlushes bool
}

// Kernel is a version of Linux.
type Kernel struct{ Major, Minor int }

// KernelOf is the version that a release, as uname(2) tells it, begins with.
func KernelOf(release string) (k Kernel, err error) {
	if _, err = fmt.Sscanf(release, "%d.%d", &k.Major, &k.Minor); err != nil {
		return Kernel{}, fmt.Errorf("kernel release %q: %w", release, err)
	}
	return k, nil
}

func (k Kernel) before(o Kernel) bool {
	return k.Major < o.Major || k.Major == o.Major && k.Minor < o.Minor
}

// softRoCE is what is known of rdma_rxe: each row holds from a kernel on, beside
// the rows above it. Tests have run on 6.1, 6.12 and 7.2.
var softRoCE = []struct {
	from   Kernel
	traits func(*Traits)
}{
	{Kernel{}, func(t *Traits) {
		t.NoWindows = true
		t.BadLKey = fabric.StatusLocQPOpErr
		t.RefusedWriteImm = fabric.StatusRemAccessErr
		// The completion comes before the NAK is sent.
		t.LostRefusals = true
		t.SendTooLong = [2]fabric.Status{fabric.StatusRemOpErr, fabric.StatusLocQPOpErr}
		t.LateReceives = true
		t.QuietFailures = true
	}},
	// Memory windows came to it.
	{Kernel{5, 14}, func(t *Traits) { t.NoWindows = false }},
	// Its tasks and its error states were written anew then: what fails in the
	// requester is flushed with what is behind it, and a flush raises no event on
	// a CQ armed for solicited ones. Seen on 6.12.
	{Kernel{6, 4}, func(t *Traits) {
		t.BadLKey, t.BadLocal, t.BadBind = fabric.StatusWRFlushErr, fabric.StatusWRFlushErr, fabric.StatusWRFlushErr
		t.QuietFlushes = true
	}},
}

// SoftRoCE are the traits of rdma_rxe in kernel k.
func SoftRoCE(k Kernel) (t Traits) {
	for _, row := range softRoCE {
		if !k.before(row.from) {
			row.traits(&t)
		}
	}
	return t
}

// TraitsOf are the traits of a device by its driver's name, in a kernel of that
// release, with these limits.
func TraitsOf(driver, release string, l fabric.Limits) (Traits, error) {
	if driver != "rdma_rxe" {
		return Traits{NoWindows: !l.Windows}, nil
	}
	k, err := KernelOf(release)
	return SoftRoCE(k), err
}

// Lost reports whether the sender of a refused request may end with s because
// nobody has told it.
func (t Traits) Lost(s fabric.Status) bool { return t.LostRefusals && s == fabric.StatusRetryExcErr }

func (t Traits) withDefaults() Traits {
	if t.BadLKey == 0 {
		t.BadLKey = fabric.StatusLocProtErr
	}
	if t.BadLocal == 0 {
		t.BadLocal = fabric.StatusLocProtErr
	}
	if t.BadBind == 0 {
		t.BadBind = fabric.StatusMWBindErr
	}
	if t.RefusedWriteImm == 0 {
		t.RefusedWriteImm = fabric.StatusWRFlushErr
	}
	if t.SendTooLong == [2]fabric.Status{} {
		t.SendTooLong = [2]fabric.Status{fabric.StatusRemInvReqErr, fabric.StatusLocLenErr}
	}
	return t
}
