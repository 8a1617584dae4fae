package messaging

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/splitnic/splitnic/bufpool"
)

// ErrMemory is wrapped by errors about registered memory that a bound does not
// allow: Config.MaxMemory or a Budget.
var ErrMemory = errors.New("more registered memory than allowed")

// ErrBudget is an ErrMemory that may be over when other sessions have ended.
var ErrBudget = fmt.Errorf("%w for all sessions", ErrMemory)

// Budget bounds the registered memory of several sessions together. When a new
// one does not find enough, the others take back pools that they lent on
// request.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	refused time.Time // when a session could not begin; zero if one has begun since
}

// pressure is for how long a session that could not begin makes others take
// back pools. It comes again, if it still wants to.
const pressure = 2 * time.Second

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Limit is how many bytes there are.
func (b *Budget) Limit() int64 { return b.limit }

// Used is how many bytes are in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// take uses n more bytes, if there are so many. urgent memory, which a session
// cannot begin without, makes the budget tight when there are not.
func (b *Budget) take(n int64, urgent bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit {
		if urgent {
			b.refused = time.Now()
		}
		return fmt.Errorf("%w: %d bytes of %d are in use, %d more are needed", ErrBudget, b.used, b.limit, n)
	}
	if urgent {
		b.refused = time.Time{}
	}
	b.used += n
	return nil
}

func (b *Budget) put(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

// tight reports whether a session could not begin, a moment ago, for lack of
// memory.
func (b *Budget) tight() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.refused) < pressure
}

// memory owns the arenas of a session.
type memory struct {
	limit  int64   // 0: none
	budget *Budget // may be nil
	node   int     // of the device: see numa.Prefer

	mu     sync.Mutex
	arenas map[*bufpool.Arena]struct{}
	bytes  int64
}

// get makes an arena of size bytes, if the bounds allow it.
func (m *memory) get(size int, urgent bool) (*bufpool.Arena, error) {
	a, err := bufpool.NewArena(size, m.node)
	if err != nil {
		return nil, err
	}
	n := int64(len(a.Bytes()))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit > 0 && m.bytes+n > m.limit {
		err = fmt.Errorf("%w: %d bytes are in use by the session, %d more are needed, %d are the most", ErrMemory, m.bytes, n,
			m.limit)
	} else if m.budget != nil {
		err = m.budget.take(n, urgent)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	m.bytes += n
	if m.arenas == nil {
		m.arenas = make(map[*bufpool.Arena]struct{})
	}
	m.arenas[a] = struct{}{}
	return a, nil
}

// put releases an arena, whose regions are closed.
func (m *memory) put(a *bufpool.Arena) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.release(a)
}

// close releases all arenas.
func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for a := range m.arenas {
		errs = append(errs, m.release(a))
	}
	return errors.Join(errs...)
}

func (m *memory) release(a *bufpool.Arena) error {
	n := int64(len(a.Bytes()))
	delete(m.arenas, a)
	m.bytes -= n
	if m.budget != nil {
		m.budget.put(n)
	}
	return a.Close()
}

func (m *memory) pinned() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int(m.bytes)
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

func pageUp(n int) int { return roundUp(n, 4096) }
