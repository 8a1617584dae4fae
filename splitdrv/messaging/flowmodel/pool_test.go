package flowmodel

import "github.com/splitnic/splitnic/bufpool"

// place is where an element is: the truth, which neither side knows.
type place uint8

const (
	offered   place = iota // its pool has not arrived at the initiator
	available              // the initiator's to write
	inFlight               // written, or being written, and not seen by the target
	consumed               // being handed to the port
	returning              // free, and not returned
	inUpdate               // named in an update on its way
	places
)

// pool is a pool with both ends of it.
type pool struct {
	m     *model
	ref   uint32
	ch    int
	size  int
	where []place
	at    [places]int // how many are where

	// The target's.
	local    *bufpool.Local
	elements *bufpool.Elements // its
	gone     bool              // deregistered
	written  []uint64          // by element: the frame that is there and not consumed; 0 none
	due      int               // updates that were due for this pool, and its offer, unprocessed
	guard    guard
	windows  []window
	retiring bool // it is forgotten when nothing of it is consumed any more

	// The initiator's.
	remote   *bufpool.Remote
	stopping bool  // its sender has been told to stop using it
	keyed    bool  // its keys have come
	keys     []int // by window
}

// move takes an element from one place to another.
func (p *pool) move(elem int, from, to place) {
	if p.where[elem] != from {
		p.m.fail("pool %d, element %d is at %d, and moves from %d to %d", p.ref, elem, p.where[elem], from, to)
	}
	p.at[p.where[elem]]--
	p.where[elem] = to
	p.at[to]++
}
