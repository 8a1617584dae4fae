package conform

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
)

// Windows is what is known of the type-2 memory windows of a device.
type Windows struct {
	Work   bool   // they are bound, written through and invalidated, and nothing else gets in
	Bounds bool   // writes past the ends of a window are refused
	Why    string // why less is so than the device claims; empty if it is as it claims
}

// guards has what windows must have shown before they are chosen as protection. None of it
// depends on a claim of the device.
var guards = []struct {
	name string
	try  func(*fixture)
}{
	{"bind, write and unbind", testWindow},
	{"bind and send", testWindowBindSend},
	{"the key of another queue pair", testWindowOfOtherQP},
	{"the key of an earlier bind", testWindowStaleKey},
	{"the key of a window that was unbound", testWindowUnbound},
	{"invalidation by the peer", testWindowInvalidatedByPeer},
}

// TryWindows finds out on queue pairs of its own what memory windows of an open device are worth.
// What a device claims proves nothing: there are drivers that claim windows and refuse to allocate
// or bind them, and windows that are bound and guard nothing would protect less than regions do.
// sure is false if messages of the device do not reach the device itself, so that nothing could be
// found out.
func TryWindows(dev fabric.Device) (w Windows, sure bool) {
	claims := dev.Limits()
	if !claims.Windows {
		return Windows{}, true
	}
	if isSoftRoCE(dev) {
		return Windows{Work: true, Bounds: claims.WindowBounds}, true // see softRoCE
	}
	t := &onOpen{Device: dev}
	if why := t.wrong(tryLoopback); why != "" {
		return Windows{Work: true, Why: "they could not be tried: " + why}, false
	}
	for _, g := range guards {
		if why := t.wrong(g.try); why != "" {
			return Windows{Why: g.name + ": " + why}, true
		}
	}
	w = Windows{Work: true, Bounds: claims.WindowBounds}
	if !claims.WindowBounds {
		return w, true
	}
	var taken []int
	why := t.wrong(func(r *fixture) { taken = r.pastWindow() })
	switch {
	case len(taken) == len(outsideWindow):
		w.Bounds, w.Why = false, "writes past the ends of a window were taken"
	case why != "" || len(taken) > 0:
		return Windows{Why: "some writes past the ends of a window were taken, or stopped it: " + why}, true
	}
	return w, true
}

// TryIndications finds out whether the data of a completed write is there when a message on another
// queue pair says so, as in mode indicate, and returns the reason if it is not. sure is as of
// TryWindows. Nothing promises that order. ibv_query_qp_data_in_order(3) leaves the order of separate
// work requests open. By rule o9-20 of the InfiniBand specification (volume 1, as public discussions
// quote it) the receiver may depend on the data of a write after its immediate data, or after a later
// send or atomic: all of one queue pair. There is no reason either if messages of the device do not
// reach the device itself.
func TryIndications(dev fabric.Device) (why string, sure bool) {
	if isSoftRoCE(dev) {
		return "", true // it copies the data before it answers: TestRDMAConformance/Indication
	}
	t := &onOpen{Device: dev}
	if t.wrong(tryLoopback) != "" {
		return "", false
	}
	return t.wrong(testIndication), true
}

// isSoftRoCE reports whether the device is Soft-RoCE, whose properties the tests of package verbs show.
func isSoftRoCE(dev fabric.Device) bool {
	d, ok := dev.(interface{ Driver() string })
	return ok && d.Driver() == softRoCEDriver
}

// onOpen is a device in use, on which the objects of a trial are closed after it.
type onOpen struct {
	fabric.Device
	domains []fabric.Domain
}

// NewDomain implements fabric.Device.
func (o *onOpen) NewDomain() (fabric.Domain, error) {
	d, err := o.Device.NewDomain()
	if err == nil {
		o.domains = append(o.domains, d)
	}
	return d, err
}

// wrong runs a trial with both ends on the device, and returns what went wrong.
func (o *onOpen) wrong(try func(*fixture)) string {
	var t trial
	var owned [][]byte
	defer func() {
		for _, mem := range owned {
			_ = unix.Munmap(mem) // does not fail for a mapping of Alloc
		}
	}()
	t.run(func() {
		t.Cleanup(func() {
			var errs []error
			for _, d := range o.domains {
				errs = append(errs, d.Close())
			}
			o.domains = nil
			if err := errors.Join(errs...); err != nil {
				t.Errorf("closing its objects: %v", err)
			}
		})
		Property{try: try}.Check(&t, Pair{A: o, B: o, Patience: ExaminePatience, owned: &owned, anyRefusal: true})
	})
	return strings.Join(t.wrong, "; ")
}
