package discard

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/frameasm"
)

// ErrUnavailable is wrapped by errors about a kernel, or rights, with which
// frames cannot be judged. A netdevice works without.
var ErrUnavailable = errors.New("whole datagrams cannot be discarded early")

// Status says whether whole datagrams are discarded before a queue is full.
type Status struct {
	On bool `json:"on"`
	// Reason is why not, if it is not on.
	Reason string `json:"reason,omitempty"`
}

// StatusOf is what has become of an attempt that ended with err.
func StatusOf(err error) Status {
	if err != nil {
		return Status{Reason: err.Error()}
	}
	return Status{On: true}
}

// String is "on", or why not.
func (s Status) String() string {
	if s.On {
		return "on"
	}
	return "off: " + s.Reason
}

// ErrUnwanted is why a netdevice has no filter whose configuration says so.
var ErrUnwanted = errors.New("it is not wanted")

// Patience is the default of Config.Patience: longer than a reader that is at
// work waits for a processor, on a machine that has too much to do, or for
// credits. Nothing is lost by it: the queue of a reader that has gone is full.
const Patience = 10 * time.Second

// shortest is the shortest queue, in frames, in which the reserve holds the
// rest of a datagram of 64 KiB with an MTU of 1500.
const shortest = 4 * 48

// Hook is where in the kernel a program runs.
type Hook uint8

// The hooks.
const (
	TAP     Hook = iota // before a frame is put into a queue of a TAP device (TUNSETFILTEREBPF)
	Ingress             // before a macvtap takes a frame (tc-bpf(8))
)

// Config describes what a filter is for.
type Config struct {
	Hook   Hook
	Queues int // of the netdevice: 1 to 256
	Length int // of each queue, in frames
	// Patience is after how long without a read everything passes; 0 is the
	// package's.
	Patience time.Duration
}

// table is how many datagrams are remembered, by hash: those whose first
// fragments came most recently. A power of 2.
const table = 4096

// meterSize is the room of one queue's counters. What the kernel writes and
// what the reader writes are in different cache lines.
const meterSize = 128

// Offsets in it.
const (
	passedAt = 0  // frames that were let pass
	seenAt   = 8  // what read was when a frame was to be dropped
	sinceAt  = 16 // and since when it has been that, ns
	readAt   = 64 // frames that were read
)

// mapping is memory that the kernel shares.
type mapping struct{ mem []byte }

// counter is the one of a queue at that offset.
func (m *mapping) counter(queue, offset int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.mem[queue*meterSize+offset]))
}

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

// Meter tells the filter of one queue what has been read. One goroutine uses
// it, the queue's reader. A nil Meter does nothing.
type Meter struct {
	passed, read *atomic.Uint64
	shared       *mapping // keeps it mapped
}

// Took says that n frames were read, whatever has become of them.
func (m *Meter) Took(n int) {
	if m != nil && n > 0 {
		m.read.Store(m.read.Load() + uint64(n))
	}
}

// Passed is how many frames have been let pass.
func (m *Meter) Passed() uint64 {
	if m == nil {
		return 0
	}
	return m.passed.Load()
}

// InStep reports whether as many frames were read as have been let pass.
func (m *Meter) InStep() bool { return m == nil || m.passed.Load() == m.read.Load() }

// Emptied says that the queue was found empty at a time at which passed frames, as
// Passed had returned, had been let pass at least. Those have left the queue. Others
// may have come by now, even many, if the reader had to wait for a processor.
func (m *Meter) Emptied(passed uint64) {
	if m == nil {
		return
	}
	if n := min(max(m.read.Load(), passed), m.passed.Load()); n != m.read.Load() {
		m.read.Store(n)
	}
}

// Waiting is how many frames wait in the queue, as far as is known: it may be
// wrong until the queue is found empty, and less than 0.
func (m *Meter) Waiting() int { return int(int64(m.passed.Load() - m.read.Load())) }
