// Package inline finds out how much inline data a queue pair may have. That is in no attribute of a
// device. It depends on the numbers of work requests and of their pieces, and drivers answer a wish
// that is too large in different ways: some refuse the queue pair, others create it and grant less.
// So it is found by creating the queue pair, with smaller sizes until the device takes one.
package inline

import (
	"slices"
	"sync"
	"syscall"

	"github.com/splitnic/splitnic/fabric"
)

// steps are the sizes to try, in bytes, if the device refuses the one that was asked for.
var steps = []int{512, 256, 128, 96, 64, 32, 0}

// late has the drivers that accept IBV_SEND_INLINE and read the memory when they send: data
// that changes after the post would be sent changed.
var late = []string{
	"mana",       // ignores the flag: rdma-core, providers/mana/wr.c
	"vmw_pvrdma", // does not copy the data: rdma-core, providers/vmw_pvrdma/qp.c
}

// Shape is what the limit of inline data depends on.
type Shape struct {
	Transport       fabric.Transport
	Send, Recv, SGE int
	Inline          int // the limit that was asked for, in bytes
}

// Limits has the limits that a device has granted. The zero value is ready for use.
type Limits struct {
	mu      sync.Mutex
	granted map[Shape]int
}

// Create creates a queue pair of shape s by calling try with a size of inline data. try returns
// the size that the device has granted, or the reason for which it has refused the queue pair.
// Create returns the size that may be used. The answer of the device is kept for the next queue
// pair of the shape.
func (l *Limits) Create(driver string, s Shape, try func(int) (int, syscall.Errno)) (int, syscall.Errno) {
	l.mu.Lock()
	first, known := l.granted[s]
	l.mu.Unlock()
	if !known {
		first = s.Inline
		if slices.Contains(late, driver) {
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
		smaller := slices.IndexFunc(steps, func(n int) bool { return n < size })
		if smaller < 0 || !mayBe(no) {
			return 0, no
		}
		sure = sure && no != syscall.ENOMEM // it may be there the next time
		size = steps[smaller]
	}
}

func (l *Limits) keep(s Shape, granted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.granted == nil {
		l.granted = make(map[Shape]int)
	}
	l.granted[s] = granted
}

// mayBe reports whether a queue pair that was refused for this reason may be created with
// less inline data.
func mayBe(no syscall.Errno) bool {
	switch no {
	case syscall.EAGAIN, syscall.EOPNOTSUPP, syscall.EPERM, syscall.EACCES, syscall.ENODEV:
		return false
	}
	return true
}
