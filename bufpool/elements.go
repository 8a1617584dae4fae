package bufpool

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/splitnic/splitnic/protocol"
)

var (
	// ErrNotLent is wrapped when the peer indicates an element that it may not write: one
	// that was never lent, or that is already consumed.
	ErrNotLent = errors.New("element is not lent")
	// ErrLength is wrapped when the peer indicates zero bytes, or more than the element has.
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

// Elements is the target's side of a pool. Only one goroutine, the receiver, may use it,
// except for Used and Ledger.
type Elements struct {
	mem   []byte
	size  int
	due   int
	state []state
	back  []uint16 // elements in state returning, oldest first
	used  atomic.Bool

	nConsumed  atomic.Int32
	nReturning atomic.Int32
}

// NewElements returns n elements of size bytes in mem, all of them lent. If mem is nil, the
// elements have no memory here: they only count receives.
func NewElements(mem []byte, size, n int) *Elements {
	if mem != nil {
		mem = mem[: size*n : size*n]
	}
	return &Elements{
		mem:   mem,
		size:  size,
		due:   (n + protocol.UpdatesPerPool - 1) / protocol.UpdatesPerPool,
		state: make([]state, n),
		back:  make([]uint16, 0, n),
	}
}

// Len returns the number of elements.
func (e *Elements) Len() int { return len(e.state) }

// ElementSize returns the size of each element in bytes.
func (e *Elements) ElementSize() int { return e.size }

// Consume takes an element that the peer has indicated, with length bytes, and returns these
// bytes. They belong to the caller until Release. The peer can still change them, so a
// caller must not read twice what it checks. Without memory it returns nil.
func (e *Elements) Consume(elem, length int) ([]byte, error) {
	if elem < 0 || elem >= len(e.state) {
		return nil, fmt.Errorf("%w: element %d of %d", ErrNotLent, elem, len(e.state))
	}
	if e.state[elem] != lent {
		return nil, fmt.Errorf("%w: element %d is in use here", ErrNotLent, elem)
	}
	if length <= 0 || length > e.size {
		return nil, fmt.Errorf("%w: %d bytes in element %d of %d bytes", ErrLength, length, elem, e.size)
	}
	e.state[elem] = consumed
	e.nConsumed.Store(e.nConsumed.Load() + 1)
	if !e.used.Load() {
		e.used.Store(true)
	}
	if e.mem == nil {
		return nil, nil
	}
	off := elem * e.size
	return e.mem[off : off+length : off+length], nil
}

// Release marks a consumed element as free to return.
func (e *Elements) Release(elem int) {
	if e.state[elem] != consumed {
		panic("bufpool: release of an element that is not consumed")
	}
	e.state[elem] = returning
	e.back = append(e.back, uint16(elem))
	e.nReturning.Store(e.nReturning.Load() + 1)
	e.nConsumed.Store(e.nConsumed.Load() - 1)
}

// Due reports whether an update is due.
func (e *Elements) Due() bool { return len(e.back) >= e.due }

// Returning returns the elements that an update would return now, oldest first. The slice
// belongs to the pool and is valid until the next call of any method.
func (e *Elements) Returning() []uint16 { return e.back }

// Returned records that an update with the first n elements of Returning was sent: they are
// lent again.
func (e *Elements) Returned(n int) {
	for _, elem := range e.back[:n] {
		e.state[elem] = lent
	}
	rest := copy(e.back, e.back[n:])
	e.back = e.back[:rest]
	e.nReturning.Store(int32(rest))
}

// Used reports whether an element was consumed since the last call. It may be
// called from any one goroutine.
func (e *Elements) Used() bool { return e.used.Swap(false) }

// Ledger counts the elements by state. Any goroutine may call it. An element that changes
// its state in the meantime is counted once, in either state.
func (e *Elements) Ledger() Ledger {
	c, r := int(e.nConsumed.Load()), int(e.nReturning.Load())
	return Ledger{Elements: len(e.state), Lent: len(e.state) - c - r, Consumed: c, Returning: r}
}

// Ledger counts the elements of one pool by state. The initiator's side uses
// Available and Out, the target's side the other three.
type Ledger struct {
	Elements  int `json:"elements"`
	Available int `json:"available"` // initiator: may be written
	Out       int `json:"out"`       // initiator: taken for a transfer, and not yet returned
	Lent      int `json:"lent"`      // target: the peer may write it, or has and it was not indicated yet
	Consumed  int `json:"consumed"`  // target: indicated, and not yet taken by the port
	Returning int `json:"returning"` // target: free, and not yet returned to the peer
}

// Check returns an error if the states do not add up to the number of elements.
func (l Ledger) Check() error {
	if sum := l.Available + l.Out + l.Lent + l.Consumed + l.Returning; sum != l.Elements {
		return fmt.Errorf("bufpool: %d elements are accounted for as %d: %+v", l.Elements, sum, l)
	}
	return nil
}
