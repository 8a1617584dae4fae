package steer

import (
	"cmp"
	"errors"

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
		return nil, frameasm.Explain(ErrUnavailable, "making the table of flows", err)
	}
	// The program keeps the table.
	defer m.Close()
	return frameasm.Load("splitnic_steer", h == Ingress, r.assemble(h, m.FD()), ErrUnavailable)
}
