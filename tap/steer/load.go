package steer

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/splitnic/splitnic/tap/frameasm"
)

// flows is how many flows with frames too long for the latency queue the program remembers:
// those that have sent one most recently. They take less than 512 KiB of the kernel's memory.
const flows = 4096

// ErrUnavailable is wrapped by errors about a kernel that cannot steer frames, or about
// missing permissions. A netdevice works without steering.
var ErrUnavailable = errors.New("latency-sensitive frames cannot be steered into a queue of their own")

// Load assembles the rule for a hook and loads it into the kernel. The caller closes the
// program; where it has been attached it stays. Errors caused by the kernel wrap
// ErrUnavailable.
func (r Rule) Load(h Hook) (*ebpf.Program, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	r.Pause = cmp.Or(r.Pause, Pause)
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

// unavailable returns the error for a failed bpf(2).
func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, frameasm.Explain(what, err))
}
