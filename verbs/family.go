package verbs

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
)

// The order in which a parent closes its children.
const (
	rankQP = iota
	rankMW
	rankMR
	rankCQ
	rankPD
)

// family has the children of a parent object. It closes them before the parent is closed,
// and prevents the creation of children afterwards.
type family struct {
	life   sync.RWMutex // read-locked while the parent is in use
	closed bool

	mu      sync.Mutex
	members map[io.Closer]int // child to rank
}

// enter keeps the parent open until leave is called. It returns false if Close has begun.
func (f *family) enter() bool {
	f.life.RLock()
	if f.closed {
		f.life.RUnlock()
		return false
	}
	return true
}

func (f *family) leave() { f.life.RUnlock() }

// add is called between enter and leave.
func (f *family) add(c io.Closer, rank int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members == nil {
		f.members = make(map[io.Closer]int)
	}
	f.members[c] = rank
}

func (f *family) remove(c io.Closer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, c)
}

// close closes the children in the order of their ranks. A child whose Close fails remains a
// member, so that a later close tries again.
func (f *family) close() error {
	f.life.Lock()
	f.closed = true
	f.life.Unlock()

	f.mu.Lock()
	order := slices.SortedFunc(maps.Keys(f.members), func(a, b io.Closer) int {
		return cmp.Compare(f.members[a], f.members[b])
	})
	f.mu.Unlock()
	var errs []error
	for _, c := range order {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
