package bufpool

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

var (
	// ErrNotLent is wrapped when the peer indicates an element that is not
	// its to write: never lent, or consumed already.
	ErrNotLent = errors.New("element is not lent")
	// ErrLength is wrapped when the peer indicates more bytes than the
	// element has, or none.
	ErrLength = errors.New("length does not fit the element")
	// ErrNotOut is wrapped when the peer returns an element that is not out.
	ErrNotOut = errors.New("element is not out")
)

type state uint8

const (
	lent state = iota
	consumed
	returning
)

// Loan is the target's side of a pool. It belongs to one goroutine, but for
// Used and Ledger.
type Loan struct {
	mem   []byte
	size  int
	due   int
	state []state
	back  []uint16 // elements in state returning, oldest first
	used  atomic.Bool

	nConsumed  atomic.Int32
	nReturning atomic.Int32
}

// NewLoan makes a pool of n elements of size bytes over mem, all of them lent.
// Without mem its elements have none of their own: they stand for receives.
func NewLoan(mem []byte, size, n int) *Loan {
	if mem != nil {
		mem = mem[: size*n : size*n]
	}
	return &Loan{
		mem:   mem,
		size:  size,
		due:   (n + protocol.UpdatesPerPool - 1) / protocol.UpdatesPerPool,
		state: make([]state, n),
		back:  make([]uint16, 0, n),
	}
}

// Len is the number of elements.
func (l *Loan) Len() int { return len(l.state) }

// ElementSize is the size of each element in bytes.
func (l *Loan) ElementSize() int { return l.size }

// Consume takes an element that the peer indicated as written with length
// bytes, and returns those bytes. They belong to the caller until Release; the
// peer is able to scribble on them all the same, so that whoever reads them
// must not read twice what it checks. A pool without memory returns none.
func (l *Loan) Consume(elem, length int) ([]byte, error) {
	if elem < 0 || elem >= len(l.state) {
		return nil, fmt.Errorf("%w: element %d of %d", ErrNotLent, elem, len(l.state))
	}
	if l.state[elem] != lent {
		return nil, fmt.Errorf("%w: element %d is in use here", ErrNotLent, elem)
	}
	if length <= 0 || length > l.size {
		return nil, fmt.Errorf("%w: %d bytes in element %d of %d bytes", ErrLength, length, elem, l.size)
	}
	l.state[elem] = consumed
	l.nConsumed.Store(l.nConsumed.Load() + 1)
	if !l.used.Load() {
		l.used.Store(true)
	}
	if l.mem == nil {
		return nil, nil
	}
	off := elem * l.size
	return l.mem[off : off+length : off+length], nil
}

// Release marks a consumed element as free to return.
func (l *Loan) Release(elem int) {
	if l.state[elem] != consumed {
		panic("bufpool: release of an element that is not consumed")
	}
	l.state[elem] = returning
	l.back = append(l.back, uint16(elem))
	l.nReturning.Store(l.nReturning.Load() + 1)
	l.nConsumed.Store(l.nConsumed.Load() - 1)
}

// Due reports whether so many elements are returning that the peer is to be
// told.
func (l *Loan) Due() bool { return len(l.back) >= l.due }

// Returning lists the elements that an update would return now, oldest first.
// The slice is the loan's own and good until the next call.
func (l *Loan) Returning() []uint16 { return l.back }

// Returned records that an update with the first n elements of Returning is on
// its way: they are lent again.
func (l *Loan) Returned(n int) {
	for _, e := range l.back[:n] {
		l.state[e] = lent
	}
	rest := copy(l.back, l.back[n:])
	l.back = l.back[:rest]
	l.nReturning.Store(int32(rest))
}

// Used reports whether an element was consumed since the last call. It may be
// called from any one goroutine.
func (l *Loan) Used() bool { return l.used.Swap(false) }

// Ledger counts the elements by state. It may be called from any goroutine; an
// element that changes state meanwhile is counted once, in either state.
func (l *Loan) Ledger() Ledger {
	c, r := int(l.nConsumed.Load()), int(l.nReturning.Load())
	return Ledger{Elements: len(l.state), Lent: len(l.state) - c - r, Consumed: c, Returning: r}
}
