package memory

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/internal/units"
)

// ErrMemory is wrapped by errors about registered memory beyond a limit: that of
// Config.MaxMemory or of a Budget.
var ErrMemory = errors.New("more registered memory than allowed")

// ErrBudget is an ErrMemory that can go away when other sessions end.
var ErrBudget = fmt.Errorf("%w for all sessions", ErrMemory)

// Budget limits the total registered memory of several sessions. If too little is left for
// a new session, the other sessions take back the pools that they have lent on request.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	refused time.Time // when a session last failed to start; zero if one has started since
}

// pressure is for how long a session that failed to start makes the others take back
// pools. Its host tries again within that time.
const pressure = 2 * time.Second

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Limit returns the limit in bytes.
func (b *Budget) Limit() int64 { return b.limit }

// Used returns how many bytes are in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Take takes n bytes from the budget. urgent says that a session cannot start without
// them; if they are not available, the budget is tight for a while.
func (b *Budget) Take(n int64, urgent bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit {
		if urgent {
			b.refused = time.Now()
		}
		return fmt.Errorf("%w: %s of %s are in use, %s more are needed", ErrBudget, units.Size(b.used),
			units.Size(b.limit), units.Size(n))
	}
	if urgent {
		b.refused = time.Time{}
	}
	b.used += n
	return nil
}

// Put gives n bytes back.
func (b *Budget) Put(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// Tight reports whether a session has recently failed to start for lack of memory.
func (b *Budget) Tight() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.refused) < pressure
}

// Memory owns the arenas of a session.
type Memory struct {
	Limit  int64   // bytes; 0: no limit
	Budget *Budget // may be nil
	Node   int     // NUMA node of the device: see numa.Prefer

	mu     sync.Mutex
	arenas map[*bufpool.Arena]struct{}
	bytes  int64
}

// Get returns a new arena of at least size bytes, or an error if a limit does not allow it.
func (m *Memory) Get(size int, urgent bool) (*bufpool.Arena, error) {
	arena, err := bufpool.NewArena(size, m.Node)
	if err != nil {
		return nil, err
	}
	n := int64(len(arena.Bytes()))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Limit > 0 && m.bytes+n > m.Limit {
		err = fmt.Errorf("%w: %s are in use by the session, %s more are needed, %s are the most", ErrMemory,
			units.Size(m.bytes), units.Size(n), units.Size(m.Limit))
	} else if m.Budget != nil {
		err = m.Budget.Take(n, urgent)
	}
	if err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	m.bytes += n
	if m.arenas == nil {
		m.arenas = make(map[*bufpool.Arena]struct{})
	}
	m.arenas[arena] = struct{}{}
	return arena, nil
}

// Put releases an arena. Its regions must be deregistered.
func (m *Memory) Put(arena *bufpool.Arena) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.release(arena)
}

// Close releases all arenas.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for arena := range m.arenas {
		errs = append(errs, m.release(arena))
	}
	return errors.Join(errs...)
}

func (m *Memory) release(arena *bufpool.Arena) error {
	n := int64(len(arena.Bytes()))
	delete(m.arenas, arena)
	m.bytes -= n
	if m.Budget != nil {
		m.Budget.Put(n)
	}
	return arena.Close()
}

// Pinned returns how many bytes are in use.
func (m *Memory) Pinned() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int(m.bytes)
}

// RoundUp rounds n up to a multiple of unit.
func RoundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// PageUp rounds n up to whole pages.
func PageUp(n int) int { return RoundUp(n, 4096) }

// Address returns the virtual address of b's first byte, for a work request. b must be in
// an arena, which does not move.
func Address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
