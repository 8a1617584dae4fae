package steer

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/splitnic/splitnic/tap/frameasm"
)

// Pause is after how long without a frame a flow that went with the bulk is
// looked at again. A queue of super-frames is 32 MiB, which at 10 Gbit/s take
// 27 ms.
const Pause = 100 * time.Millisecond

// flows is how many flows are remembered that send too long frames, those that
// sent one most recently. In the kernel's memory it is less than 512 KiB.
const flows = 4096

// ErrUnavailable is wrapped by errors about a kernel, or rights, with which
// frames cannot be steered. A netdevice works without.
var ErrUnavailable = errors.New("latency-sensitive frames cannot be steered into a queue of their own")

// Rule says how the frames of one netdevice are spread over its queues.
type Rule struct {
	Classes
	Queues int // all of them, 2 at least; the last one is for latency-sensitive frames
	// Limit is how many bytes a frame may have to go there, the Ethernet header
	// included, a VLAN tag that the kernel keeps beside the frame not.
	Limit int
	// Pause is that of the package, if it is zero.
	Pause time.Duration
}

// Check reports what is wrong with r.
func (r Rule) Check() error {
	switch {
	case r.Queues < 2 || r.Queues > 256:
		return fmt.Errorf("steering into %d queues: must be 2 to 256", r.Queues)
	case r.Limit < 1 || r.Limit > 1<<16:
		return fmt.Errorf("latency-sensitive frames of up to %d bytes: must be 1 to %d", r.Limit, 1<<16)
	case r.Pause < 0:
		return fmt.Errorf("a pause of %v: must not be negative", r.Pause)
	}
	return r.Classes.Check()
}

// Hook is where in the kernel a program runs.
type Hook uint8

// The hooks.
const (
	TAP     Hook = iota // where a TAP device chooses the queue for a frame
	Fanout              // where a group of packet sockets chooses one for a frame that came in
	Ingress             // before a macvtap chooses a queue for a frame
)

// Load assembles the rule for a hook and hands it to the kernel. The caller
// closes the program; where it has been attached it stays. Errors that the
// kernel is the cause of wrap ErrUnavailable.
func (r Rule) Load(h Hook) (*ebpf.Program, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if r.Pause == 0 {
		r.Pause = Pause
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "splitnic_flows", Type: ebpf.LRUHash, KeySize: 4, ValueSize: 8, MaxEntries: flows,
	})
	if err != nil {
		return nil, unavailable("making the table of flows", err)
	}
	// The program keeps the table.
	defer m.Close()
	kind := ebpf.SocketFilter
	if h == Ingress {
		kind = ebpf.SchedCLS
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "splitnic_steer", Type: kind, License: "Apache-2.0", Instructions: r.assemble(h, m.FD()),
	})
	if err != nil {
		return nil, unavailable("loading the eBPF program", err)
	}
	return p, nil
}

// unavailable is an error of bpf(2).
func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, frameasm.Explain(what, err))
}
