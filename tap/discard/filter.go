package discard

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/frameasm"
)

// errUnavailable is wrapped by errors about a kernel that cannot run the filter, about missing
// permissions, and about a queue that is too short. A netdevice works without a filter.
var errUnavailable = errors.New("whole datagrams cannot be discarded early")

// table is how many datagrams the program remembers, by hash: those whose first fragments came
// most recently. It is a power of 2.
const table = 4096

// Filter is an eBPF program for the queues of one netdevice.
type Filter struct {
	program *ebpf.Program
	shared  *mapping
	queues  int
}

// New assembles the program for a netdevice and loads it into the kernel. The caller attaches
// and closes the filter. The program stays where it has been attached, and meters stay valid.
func New(cfg Config) (*Filter, error) {
	if cfg.Queues < 1 || cfg.Queues > 256 || cfg.Patience < 0 {
		return nil, fmt.Errorf("early discard for %d queues, with a patience of %v: must be 1 to 256, and not negative",
			cfg.Queues, cfg.Patience)
	}
	if cfg.Length < shortest {
		return nil, fmt.Errorf("%w: a queue of %d frames has no room for a reserve (at least %d)",
			errUnavailable, cfg.Length, shortest)
	}
	cfg.Patience = cmp.Or(cfg.Patience, Patience)
	page := os.Getpagesize()
	size := (cfg.Queues*meterSize + page - 1) / page * page
	meters, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "splitnic_meters", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, frameasm.Explain(errUnavailable, "making the map of counters", err)
	}
	// The program and the mapping keep the map.
	defer meters.Close()
	datagrams, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "splitnic_dgrams", Type: ebpf.Array, KeySize: 4, ValueSize: 4 * table, MaxEntries: 1,
	})
	if err != nil {
		return nil, frameasm.Explain(errUnavailable, "making the table of datagrams", err)
	}
	defer datagrams.Close()
	program, err := frameasm.Load("splitnic_epd", cfg.Ingress, cfg.assemble(meters.FD(), datagrams.FD()), errUnavailable)
	if err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(meters.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		err = frameasm.Explain(errUnavailable, "mapping the counters", os.NewSyscallError("mmap", err))
		return nil, errors.Join(err, program.Close())
	}
	shared := &mapping{mem}
	for i := range cfg.Queues {
		// The largest number, which the read counter never has. With 0, the read counter's first
		// value, the program would find that nothing was read since the machine started.
		shared.counter(i, seenAt).Store(1<<64 - 1)
	}
	// A reader may still be working when its device is closed, so only the garbage collector
	// knows when the counters are not in use any more.
	runtime.AddCleanup(shared, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return &Filter{program: program, shared: shared, queues: cfg.Queues}, nil
}

// FD returns the program's descriptor, by which it is attached.
func (f *Filter) FD() int { return f.program.FD() }

// Close closes the program's descriptor. The program stays where it is attached.
func (f *Filter) Close() error { return f.program.Close() }

// Dropped returns the number of frames that the program has dropped at an ingress, also after Close.
// At a TAP device it is 0: the kernel counts them as dropped by the netdevice. Any goroutine may call it. A nil
// Filter has dropped none.
func (f *Filter) Dropped() (n uint64) {
	if f == nil {
		return 0
	}
	for i := range f.queues {
		n += f.shared.counter(i, droppedAt).Load()
	}
	return n
}

// Meter returns the counters of a queue.
func (f *Filter) Meter(queue int) *Meter {
	return &Meter{passed: f.shared.counter(queue, passedAt), read: f.shared.counter(queue, readAt), shared: f.shared}
}
