package discard

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/frameasm"
)

// ErrUnavailable is wrapped by errors about a kernel, or rights, with which
// frames cannot be judged. A netdevice works without.
var ErrUnavailable = errors.New("whole datagrams cannot be discarded early")

// table is how many datagrams are remembered, by hash: those whose first
// fragments came most recently. A power of 2.
const table = 4096

// Filter is an eBPF program for the queues of one netdevice.
type Filter struct {
	program *ebpf.Program
	shared  *mapping
}

// New assembles the program for a netdevice and hands it to the kernel. The
// caller attaches it and closes it; where it has been attached it stays, and
// meters remain valid.
func New(cfg Config) (*Filter, error) {
	if cfg.Queues < 1 || cfg.Queues > 256 || cfg.Patience < 0 {
		return nil, fmt.Errorf("early discard for %d queues, with a patience of %v: must be 1 to 256, and not negative",
			cfg.Queues, cfg.Patience)
	}
	if cfg.Length < shortest {
		return nil, fmt.Errorf("%w: a queue of %d frames has no room for a reserve (at least %d)",
			ErrUnavailable, cfg.Length, shortest)
	}
	if cfg.Patience == 0 {
		cfg.Patience = Patience
	}
	page := os.Getpagesize()
	size := (cfg.Queues*meterSize + page - 1) / page * page
	meters, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "splitnic_meters", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, unavailable("making the map of counters", err)
	}
	// The program and the mapping keep it.
	defer meters.Close()
	datagrams, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "splitnic_dgrams", Type: ebpf.Array, KeySize: 4, ValueSize: 4 * table, MaxEntries: 1,
	})
	if err != nil {
		return nil, unavailable("making the table of datagrams", err)
	}
	defer datagrams.Close()
	kind := ebpf.SocketFilter
	if cfg.Hook == Ingress {
		kind = ebpf.SchedCLS
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "splitnic_epd", Type: kind, License: "Apache-2.0", Instructions: cfg.assemble(meters.FD(), datagrams.FD()),
	})
	if err != nil {
		return nil, unavailable("loading the eBPF program", err)
	}
	mem, err := unix.Mmap(meters.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(unavailable("mapping the counters", os.NewSyscallError("mmap", err)), program.Close())
	}
	shared := &mapping{mem}
	for i := range cfg.Queues {
		// Nothing has been read yet: the program would take that for since the machine started.
		shared.counter(i, seenAt).Store(1<<64 - 1)
	}
	// A reader may be at work when its device is closed, so only the garbage
	// collector knows when nobody has the counters any more.
	runtime.AddCleanup(shared, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return &Filter{program: program, shared: shared}, nil
}

// unavailable is an error of bpf(2).
func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %w", ErrUnavailable, frameasm.Explain(what, err))
}

// FD is the program's descriptor, to attach it by.
func (f *Filter) FD() int { return f.program.FD() }

// Close gives the program back, but where it is attached.
func (f *Filter) Close() error { return f.program.Close() }

// Meter returns the counters of a queue.
func (f *Filter) Meter(queue int) *Meter {
	return &Meter{passed: f.shared.counter(queue, passedAt), read: f.shared.counter(queue, readAt), shared: f.shared}
}
