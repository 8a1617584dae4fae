package verbs

import (
	"slices"
	"sync"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
)

// How much inline data a queue pair may have is in no attribute of a device. It depends on the
// numbers of work requests and of their pieces, and drivers answer a wish that is too large in
// different ways: some refuse the queue pair, others create it and grant less. So it is found by
// creating the queue pair, with smaller sizes until the device takes one.

// inlineSteps are the sizes to try, in bytes, if the device refuses the one that was asked for.
var inlineSteps = []int{512, 256, 128, 96, 64, 32, 0}

// noInline has the drivers that accept IBV_SEND_INLINE and read the memory when they send: data
// that changes after the post would be sent changed.
var noInline = []string{
	"mana",       // ignores the flag: rdma-core, providers/mana/wr.c
	"vmw_pvrdma", // does not copy the data: rdma-core, providers/vmw_pvrdma/qp.c
}

// qpShape is what the limit of inline data depends on, with the limit that was asked for.
type qpShape struct {
	transport                fabric.Transport
	send, recv, sge, inlined int
}

// inlineLimits has the limits that a device has granted. The zero value is ready for use.
type inlineLimits struct {
	mu      sync.Mutex
	granted map[qpShape]int
}

// create creates a queue pair of shape s by calling try with a size of inline data. try returns
// the size that the device has granted, or the reason for which it has refused the queue pair.
// create returns the size that may be used. The answer of the device is kept for the next queue
// pair of the shape.
func (l *inlineLimits) create(driver string, s qpShape, try func(int) (int, syscall.Errno)) (int, syscall.Errno) {
	l.mu.Lock()
	first, known := l.granted[s]
	l.mu.Unlock()
	if !known {
		first = s.inlined
		if slices.Contains(noInline, driver) {
			first = 0
		}
	}
	sure := true
	for size := first; ; {
		granted, no := try(size)
		if no == 0 {
			granted = min(granted, size)
			if sure {
				l.keep(s, granted)
			}
			return granted, 0
		}
		smaller := slices.IndexFunc(inlineSteps, func(n int) bool { return n < size })
		if smaller < 0 || !mayBeInline(no) {
			return 0, no
		}
		sure = sure && no != syscall.ENOMEM // it may be there the next time
		size = inlineSteps[smaller]
	}
}

func (l *inlineLimits) keep(s qpShape, granted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.granted == nil {
		l.granted = make(map[qpShape]int)
	}
	l.granted[s] = granted
}

// mayBeInline reports whether a queue pair that was refused for this reason may be created with
// less inline data.
func mayBeInline(no syscall.Errno) bool {
	switch no {
	case syscall.EAGAIN, syscall.EOPNOTSUPP, syscall.EPERM, syscall.EACCES, syscall.ENODEV:
		return false
	}
	return true
}
