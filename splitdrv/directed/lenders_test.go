package directed

import (
	"bytes"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
)

// lender is the platform of a unit that offers memory to others.
const lender protocol.Platform = 0x1e4de4

// lend adds a unit to the fixture that offers memory, and returns its link to the owner. The owner
// admits it. It has the requester's device.
func (r *fixture) lend() *Link {
	r.Helper()
	n := New(Config{Device: r.devices[requesterSide], Platform: lender, Timing: r.timing})
	of, err := n.NewLink()
	r.check(err)
	to, err := r.nodes[ownerSide].NewLink()
	r.check(err)
	r.check(of.Start(to.Address(), platforms[ownerSide]))
	r.check(to.Start(of.Address(), lender))
	r.nodes[ownerSide].Admit(to)
	r.Cleanup(func() {
		r.check(of.Close())
		r.check(to.Close())
		r.check(n.Close())
	})
	return of
}

// offered returns memory that the lender offers to a requester.
func (r *fixture) offered(l *Link, size int, d Direction, to protocol.Platform) ([]byte, *Memory) {
	r.Helper()
	mem := r.mapped(size)
	m, err := l.Offer(mem, d, to)
	if err != nil {
		r.Fatal(err)
	}
	return mem, m
}

// allowLender is an owner's policy: the requester may name the lender's memory to read the device,
// and to write to it.
func allowLender(side int, c *Config) {
	if side == ownerSide {
		c.AllowMemory = func(requester, of protocol.Platform, q *protocol.DirectedRequest) bool {
			return requester == platforms[requesterSide] && of == lender && q.Device == tapeDevice
		}
	}
}

func TestDirectedSeveralUnits(t *testing.T)     { testSeveralUnits(t, inMemory) }
func TestRDMADirectedSeveralUnits(t *testing.T) { testSeveralUnits(t, onSoftRoCE) }

// One request has data in the memory of two units, and in the list: the I/O unit finds the connection
// for each element by its platform identifier. The connection with the requester is kept, the other
// one is not.
func testSeveralUnits(t *testing.T, on fabricOf) {
	r := newFixture(t, on, allowLender)
	lends := r.lend()
	const size, pieces = 64 << 10, 5
	for _, op := range []protocol.DirectedOperation{protocol.DirectedWrite, protocol.DirectedRead} {
		own, m := r.memory(r.toOwner, size, direction(op))
		others, o := r.offered(lends, size, direction(op), platforms[requesterSide])
		pattern(own, 3)
		pattern(others, 8)
		lists, views := make([][]protocol.ListElement, 2), make([][][]byte, 2)
		lists[0], views[0] = fragments(own, m, pieces)
		lists[1], views[1] = fragments(others, o, pieces)
		var list []protocol.ListElement
		var view [][]byte
		for i := range pieces { // alternately, and the requester's twice at the end
			list = append(list, lists[1][i], lists[0][i])
			view = append(view, views[1][i], views[0][i])
		}
		list, view = append(list, lists[0][0]), append(view, views[0][0])
		list[len(list)-1].EndOfBuffer = true
		if op == protocol.DirectedWrite {
			data := []byte("in between")
			list = slices.Insert(list, 3, protocol.ListElement{Data: data})
			view = slices.Insert(view, 3, data)
		} else {
			list, view = list[:len(list)-1], view[:len(view)-1]
		}
		r.status(r.toOwner.Do(t.Context(), one(op, tapeDevice, 99, list)), protocol.DirectedOK)
		if !r.drive.holds(99, slices.Concat(view...)) {
			t.Errorf("%v: the I/O device is not what the memory of both units has", op)
		}
		// No memory of the requester. The fragments share one identifier.
		request := one(op, tapeDevice, 7, lists[1])
		r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
		if !r.drive.holds(7, slices.Concat(views[1]...)) {
			t.Errorf("%v: the I/O device is not what the memory of the other unit has", op)
		}
		r.check(o.Close())
	}
	if now, made := r.nodes[unitSide].Connections(); now != 1 || made != 1 {
		t.Errorf("%d connections are kept, %d made", now, made)
	}
}

// TestDirectedLenderRefused names memory of another unit in ways that each lack one permission: by the
// owner, by the other unit, or for this direction. The list is in the request, or the other unit's
// memory is where the owner does not see it. Neither memory nor device may change.
func TestDirectedLenderRefused(t *testing.T) {
	const size = 4096
	for _, c := range []struct {
		name   string
		policy func(side int, c *Config)
		offer  func(r *fixture, l *Link) *Memory // memory of the lender
		want   protocol.DirectedStatus
	}{
		{"the owner has no policy", func(int, *Config) {}, nil, protocol.DirectedPlatform},
		{"the owner allows another unit", func(_ int, c *Config) {
			c.AllowMemory = func(_, of protocol.Platform, _ *protocol.DirectedRequest) bool { return of != lender }
		}, nil, protocol.DirectedPlatform},
		{"the owner allows another requester", func(_ int, c *Config) {
			c.AllowMemory = func(requester, _ protocol.Platform, _ *protocol.DirectedRequest) bool { return requester == 9 }
		}, nil, protocol.DirectedPlatform},
		{"offered to nobody", allowLender, func(r *fixture, l *Link) *Memory {
			_, m := r.memory(l, size, Result)
			return m
		}, protocol.DirectedUnreachable},
		{"offered to another", allowLender, func(r *fixture, l *Link) *Memory {
			_, m := r.offered(l, size, Result, 9)
			return m
		}, protocol.DirectedUnreachable},
		{"no more offered", allowLender, func(r *fixture, l *Link) *Memory {
			_, kept := r.offered(l, size, Result, platforms[requesterSide])
			m := *kept
			r.check(kept.Close())
			return &Memory{link: l, space: m.space, region: m.region, platform: lender}
		}, protocol.DirectedUnreachable},
		{"offered beside memory for its own requests", allowLender, func(r *fixture, l *Link) *Memory {
			r.offered(l, size, Result, platforms[requesterSide])
			_, m := r.memory(l, size, Result)
			return m
		}, protocol.DirectedAccess},
		{"offered for the other direction", allowLender, func(r *fixture, l *Link) *Memory {
			_, m := r.offered(l, size, Source, platforms[requesterSide])
			return m
		}, protocol.DirectedAccess},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t, inMemory, c.policy)
			lends := r.lend()
			if c.offer == nil {
				c.offer = func(r *fixture, l *Link) *Memory {
					_, m := r.offered(l, size, Result, platforms[requesterSide])
					return m
				}
			}
			m := c.offer(r, lends)
			read := func(list []protocol.ListElement) error {
				return r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list))
			}
			r.status(read([]protocol.ListElement{{Fragment: m.Fragment(0, size), EndOfBuffer: true}}), c.want)
			if r.drive.reads != 0 && c.want != protocol.DirectedAccess {
				t.Errorf("the I/O device was read %d times", r.drive.reads)
			}
			// Once more, beyond the part of the list that is in the request.
			mem, own := r.memory(r.toOwner, 500*64, Result)
			list, _ := fragments(mem, own, 500)
			list[480].Fragment = m.Fragment(0, size)
			r.status(read(list), c.want)
			if c.want != protocol.DirectedAccess && !bytes.Equal(mem, make([]byte, len(mem))) {
				t.Error("data was moved before the permissions were known")
			}
		})
	}
}

// TestDirectedLenderHasNoList expects a list that continues in memory of another unit to be refused,
// even if its data may be there. It also expects connections with that unit to end with the request.
func TestDirectedLenderHasNoList(t *testing.T) {
	r := newFixture(t, inMemory, allowLender)
	mem, o := r.offered(r.lend(), 4096, Source, platforms[requesterSide])
	list := []protocol.ListElement{{Data: []byte("data"), EndOfBuffer: true}}
	chain := o.Fragment(0, copy(mem, protocol.AppendListSequence(nil, nil, nil, list)))
	a := protocol.AttributesOf(slices.Repeat(list, 2))
	s := r.raw(r.toOwner, chained(protocol.DirectedWrite, a, []protocol.Fragment{chain}, list))
	if s != protocol.DirectedPlatform || r.drive.writes != 0 {
		t.Errorf("%v, %d writes to the I/O device", s, r.drive.writes)
	}
	r.nodes[ownerSide].mu.Lock()
	to := r.nodes[ownerSide].lenders[lender]
	r.nodes[ownerSide].mu.Unlock()
	var before fabrictest.Live
	for i := range 3 {
		list := []protocol.ListElement{{Fragment: o.Fragment(0, 64), EndOfBuffer: true}}
		r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 0, list)), protocol.DirectedOK)
		if n := asked(to); n != uint64(i+1) {
			t.Errorf("the other unit was asked %d times for %d requests", n, i+1)
		}
		live := r.network.Live()
		if i > 0 && live != before {
			t.Errorf("the objects on the fabric were %+v and are %+v", before, live)
		}
		before = live
	}
}

// TestDirectedManyUnits expects a bound on the number of units whose memory one list names.
func TestDirectedManyUnits(t *testing.T) {
	r := newFixture(t, inMemory, allowLender, func(_ int, c *Config) { c.MaxConnections = 1 })
	_, m := r.memory(r.toOwner, 64, Result)
	_, o := r.offered(r.lend(), 64, Result, platforms[requesterSide])
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 64)}, {Fragment: o.Fragment(0, 64), EndOfBuffer: true}}
	request := one(protocol.DirectedRead, tapeDevice, 0, list)
	r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedUnreachable)
	request = one(protocol.DirectedRead, tapeDevice, 0, list[1:])
	r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
}

// TestDirectedOwnerIsUnitForOthers has an owner that has the I/O device itself, and expects a read to
// the memory of another unit than the requester.
func TestDirectedOwnerIsUnitForOthers(t *testing.T) {
	drive := newDrive(driveSize)
	r := newFixture(t, inMemory, func(side int, c *Config) {
		if side == ownerSide {
			c.Storage = map[uint32]Storage{1: drive}
			c.AllowMemory = func(_, of protocol.Platform, _ *protocol.DirectedRequest) bool { return of == lender }
		}
	})
	mem, m := r.offered(r.lend(), 64, Result, platforms[requesterSide])
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, 1, 5, list)), protocol.DirectedOK)
	if !drive.holds(5, mem) {
		t.Error("the memory is not what the I/O device has")
	}
}
