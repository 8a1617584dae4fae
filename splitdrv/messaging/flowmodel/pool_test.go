package flowmodel

import "github.com/splitnic/splitnic/bufpool"

// place is where an element really is. Neither side knows it.
type place uint8

const (
	offered   place = iota // the offer of its pool has not arrived at the initiator
	available              // the initiator can write to it
	inFlight               // written, or being written, and not seen by the target
	consumed               // being handed to the port
	returning              // free, and not returned
	inUpdate               // named in an update that is on its way
	places
)

// pool is a pool with the state of both sides.
type pool struct {
	m     *model
	ref   uint32
	ch    int
	size  int
	where []place
	at    [places]int // number of elements at each place

	// Fields of the target.
	local    *bufpool.Local
	elements *bufpool.Elements // elements of local
	gone     bool              // deregistered
	written  []uint64          // by element: number of the frame that is there and not consumed; 0: none
	due      int               // number of unprocessed messages: updates due for this pool, and its offer
	guard    guard
	windows  []window
	retiring bool // the pool is forgotten when no element is consumed any more

	// Fields of the initiator.
	remote   *bufpool.Remote
	stopping bool  // its sender has been told to stop using it
	keyed    bool  // its keys have arrived
	keys     []int // by window
}

// move moves an element from one place to another.
func (p *pool) move(elem int, from, to place) {
	if p.where[elem] != from {
		p.m.fail("pool %d, element %d is at %d, and moves from %d to %d", p.ref, elem, p.where[elem], from, to)
	}
	p.at[p.where[elem]]--
	p.where[elem] = to
	p.at[to]++
}
