package fabrictest

import "github.com/splitnic/splitnic/fabric"

// Adapter has the ways in which the devices of a network differ from one that can do everything,
// as the adapters and drivers of some vendors do. The zero value is no difference.
type Adapter struct {
	// Inline is the largest QP.MaxInline in bytes; 0: 512, negative: no inline data at all.
	Inline int
	// NoSolicited is set if a completion queue cannot be armed for solicited completions only.
	NoSolicited bool
	// NoQuery is set if a queue pair cannot be asked whether it has failed.
	NoQuery bool
	// StrictPosts is set if a queue pair in the error state refuses posts, instead of completing
	// them as flushed.
	StrictPosts bool
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
	// UncheckedWindows means that a bind grants access to all of the window's region, from any
	// queue pair of the domain, with any key that the window has ever had, and for as long as
	// the window exists.
	UncheckedWindows
)

// refusal returns the error with which queue pairs of a transport are refused.
func (a *Adapter) refusal(tr fabric.Transport) error {
	if tr == fabric.UC {
		return a.NoUC
	}
	return a.NoRC
}

// mostInline returns the largest QP.MaxInline, in bytes.
func (a *Adapter) mostInline() int {
	switch {
	case a.Inline == 0:
		return 512
	default:
		return max(a.Inline, 0)
	}
}
