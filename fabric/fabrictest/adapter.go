package fabrictest

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// Adapter has the ways in which the devices of a network differ from one that can do everything,
// as the adapters and drivers of some vendors do. The zero value is no difference. Family has what
// is known of real adapters; what no family has is for tests of what a session does with it.
type Adapter struct {
	// Driver is the name of the driver, by which the product knows some devices.
	Driver string
	// NoOpen has the error with which the device is not opened; nil: it is.
	NoOpen error
	// Inline is the largest size of inline data in bytes; 0: 512, negative: no inline data at all.
	// A queue pair with more is refused if InlineRefused is set, and otherwise gets less.
	Inline        int
	InlineRefused bool
	// NoSolicited is set if a completion queue cannot be armed for solicited completions only.
	NoSolicited bool
	// ArmsAny is set if a completion queue that is armed for solicited completions only raises an
	// event for any.
	ArmsAny bool
	// NoQuery is set if a queue pair cannot be asked whether it has failed.
	NoQuery bool
	// StrictPosts has the error with which a queue pair in the error state refuses posts; nil: it
	// completes them as flushed.
	StrictPosts error
	// NoSolicitedWrites has the error with which plain writes that are solicited are refused; nil:
	// they are not.
	NoSolicitedWrites error
	// SilentFlushes is set if flushed requests raise no event, however a queue is armed.
	SilentFlushes bool
	// Says has the status that the device reports instead of another one.
	Says map[fabric.Status]fabric.Status
	// FailureEvents is set if a queue pair that fails raises an asynchronous event: EventQPAccessErr or
	// EventQPReqErr where it has refused a message, and EventQPFatal where a request of its own fails.
	FailureEvents bool
	// LateWrites is set if the data of a write becomes visible only when a later message of its
	// queue pair completes at the receiver.
	LateWrites bool
	// LateInline is set if the memory of an inline request is read when the request is sent.
	LateInline bool
	// NoEmptyWrites is set if a write without data fails.
	NoEmptyWrites bool
	// NoRC and NoUC have the error with which queue pairs of a transport are refused; nil: there
	// are some.
	NoRC, NoUC error
	// Windows is what is wrong with the memory windows, although the limits have them.
	Windows WindowFault
}

// WindowFault is what is wrong with the memory windows of a device that claims them.
type WindowFault uint8

const (
	WindowsWork      WindowFault = iota
	NoWindowAlloc                // none can be allocated
	NoWindowBind                 // the post of a bind is refused
	FailedWindowBind             // a bind completes with an error
	UnboundedWindows             // a window grants access to all of its region
	OpenEndedWindows             // a window grants access to its region from its beginning on
	// UncheckedWindows means that a bind grants access to all of the window's region, from any
	// queue pair of the domain, with any key that the window has ever had, and for as long as
	// the window exists.
	UncheckedWindows
	SharedWindows    // a window grants access to all queue pairs of the domain
	LateWindowBind   // the first access with a new key still finds the rights before the bind
	LateWindowUnbind // the first access with a key that was invalidated still finds the bind
)

// says returns the status that the device reports for s.
func (a *Adapter) says(s fabric.Status) fabric.Status {
	if other, ok := a.Says[s]; ok {
		return other
	}
	return s
}

// refusal returns the error with which queue pairs of a transport are refused.
func (a *Adapter) refusal(tr fabric.Transport) error {
	if tr == fabric.UC {
		return a.NoUC
	}
	return a.NoRC
}

// grant returns how much inline data a queue pair gets that asks for size bytes, or why it is
// refused.
func (a *Adapter) grant(size int) (int, syscall.Errno) {
	most := max(a.Inline, 0)
	if a.Inline == 0 {
		most = 512
	}
	if size > most && a.InlineRefused {
		return 0, unix.EINVAL
	}
	return min(size, most), 0
}
