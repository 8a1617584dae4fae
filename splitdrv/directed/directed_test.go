package directed

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

func asStatus(err error, e **StatusError) bool { return errors.As(err, e) }

// fragments divides memory into fragments of different sizes, which are not in the order of their
// addresses. It returns the list, and views of the fragments in the order of the list.
func fragments(mem []byte, m *Memory, pieces int) (list []protocol.ListElement, view [][]byte) {
	size := len(mem) / pieces
	for i := range pieces {
		at := (i*7%pieces)*size + i%3
		n := size - 2 - i%7
		list = append(list, protocol.ListElement{Fragment: m.Fragment(at, n), EndOfBuffer: i == pieces-1 || i%4 == 3})
		view = append(view, mem[at:at+n])
	}
	return list, view
}

func TestDirectedRead(t *testing.T)     { testRead(t, inMemory) }
func TestRDMADirectedRead(t *testing.T) { testRead(t, onSoftRoCE) }

// A read from the I/O device writes to several fragments of the requester's memory. The bytes
// between the fragments stay unchanged, and the data does not pass the owner.
func testRead(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	const size, offset = 2 << 20, 12345
	mem, m := r.memory(r.toOwner, size, Result)
	list, view := fragments(mem, m, 6)
	var before [sides]uint64
	for i := range before {
		before[i] = r.wire(i)
	}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, offset, list)), protocol.DirectedOK)
	if got := slices.Concat(view...); !r.drive.holds(offset, got) {
		t.Error("the memory is not what the I/O device has")
	}
	inside := make([]bool, size)
	for _, v := range list {
		at := int(v.Addr - m.Fragment(0, 1).Addr)
		for i := range v.Len {
			inside[at+int(i)] = true
		}
	}
	for i, b := range mem {
		if !inside[i] && b != 0 {
			t.Fatalf("byte %d, which is in no fragment, was written", i)
		}
	}
	r.noPayload(before, size)
}

func TestDirectedListElements(t *testing.T)     { testListElements(t, inMemory) }
func TestRDMADirectedListElements(t *testing.T) { testListElements(t, onSoftRoCE) }

// A list has several buffers, each of which has several elements. Each element has the platform
// identifier, the handle, the address and the length of a fragment. The elements of a buffer are in
// separately registered memory.
func testListElements(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	const buffers, size = 3, 4096
	var mems [2][]byte
	var regions [2]*Memory
	for i := range mems {
		mems[i], regions[i] = r.memory(r.toOwner, buffers*size, Result)
	}
	var list []protocol.ListElement
	var want [][]byte
	for b := range buffers {
		for i, m := range regions {
			f := m.Fragment(b*size, size-1-b)
			if f.Platform != platforms[requesterSide] || f.Handle == regions[1-i].Fragment(0, 1).Handle {
				t.Fatalf("a fragment is %+v", f)
			}
			list = append(list, protocol.ListElement{Fragment: f, EndOfBuffer: i == len(regions)-1})
			want = append(want, mems[i][b*size:][:f.Len])
		}
	}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 77, list)), protocol.DirectedOK)
	if !r.drive.holds(77, slices.Concat(want...)) {
		t.Error("the memory is not what the I/O device has")
	}
	for i, mem := range mems {
		for b := range buffers {
			for _, rest := range mem[b*size:][size-1-b : size] {
				if rest != 0 {
					t.Errorf("memory %d was written behind its fragment of buffer %d", i, b)
				}
			}
		}
	}
}

// noPayload checks that the data of a transfer passed the I/O unit's device and not the owner's.
// before has the values of wire before the transfer.
func (r *fixture) noPayload(before [sides]uint64, size uint64) {
	r.Helper()
	const messages = 64 << 10 // limit for a few messages and their acknowledgements
	if n := r.wire(ownerSide) - before[ownerSide]; n > messages {
		r.Errorf("the owner had %d bytes on its wire, of a transfer of %d", n, size)
	}
	if n := r.wire(unitSide) - before[unitSide]; n < size*9/10 {
		r.Errorf("the I/O unit had %d bytes on its wire, of a transfer of %d", n, size)
	}
	r.Logf("%d bytes transferred; on the wire of requester %d, owner %d, I/O unit %d", size,
		r.wire(requesterSide)-before[requesterSide], r.wire(ownerSide)-before[ownerSide],
		r.wire(unitSide)-before[unitSide])
}

func TestDirectedWrite(t *testing.T)     { testWrite(t, inMemory) }
func TestRDMADirectedWrite(t *testing.T) { testWrite(t, onSoftRoCE) }

// A write to the I/O device reads the data from several fragments of the requester's memory. The
// data does not pass the owner.
func testWrite(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	const size, offset = 2 << 20, 4321
	mem, m := r.memory(r.toOwner, size, Source)
	pattern(mem, 9)
	list, view := fragments(mem, m, 6)
	var before [sides]uint64
	for i := range before {
		before[i] = r.wire(i)
	}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, offset, list)), protocol.DirectedOK)
	if !r.drive.holds(offset, slices.Concat(view...)) {
		t.Error("the I/O device is not what the memory has")
	}
	if !r.drive.holds(0, newDrive(offset).mem) {
		t.Error("the I/O device was written before the offset")
	}
	r.noPayload(before, size)
}

func TestDirectedLongList(t *testing.T)     { testLongList(t, inMemory) }
func TestRDMADirectedLongList(t *testing.T) { testLongList(t, onSoftRoCE) }

// A list that does not fit into the message continues in the requester's memory, where the I/O unit
// reads it. Small data can be in the list itself.
func testLongList(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	mem, m := r.memory(r.toOwner, 500*64, Source)
	pattern(mem, 3)
	list, view := fragments(mem, m, 500)
	list = slices.Insert(list, 250, protocol.ListElement{Data: []byte("in between"), EndOfBuffer: true})
	view = slices.Insert(view, 250, []byte("in between"))
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 0, list)), protocol.DirectedOK)
	want := slices.Concat(view...)
	if !r.drive.holds(0, want) {
		t.Error("the I/O device is not what the memory has")
	}
	back, mb := r.memory(r.toOwner, 500*64, Result)
	list, view = fragments(back, mb, 500)
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list)), protocol.DirectedOK)
	if got := slices.Concat(view...); !bytes.HasPrefix(want, got) {
		t.Error("what is read is not what was written")
	}
}

func TestDirectedConnectionReused(t *testing.T)     { testConnectionReused(t, inMemory) }
func TestRDMADirectedConnectionReused(t *testing.T) { testConnectionReused(t, onSoftRoCE) }

// The first request makes the connection. All further requests, in both directions, use the same
// connection.
func testConnectionReused(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	_, in := r.memory(r.toOwner, 8192, Result)
	_, out := r.memory(r.toOwner, 8192, Source)
	for i := range 6 {
		op, m := protocol.DirectedRead, in
		if i%2 == 1 {
			op, m = protocol.DirectedWrite, out
		}
		list := []protocol.ListElement{{Fragment: m.Fragment(0, 8192), EndOfBuffer: true}}
		r.status(r.toOwner.Do(t.Context(), one(op, tapeDevice, 0, list)), protocol.DirectedOK)
		if now, made := r.nodes[unitSide].Connections(); now != 1 || made != 1 {
			t.Fatalf("after %d requests %d connections, %d made", i+1, now, made)
		}
	}
}

func TestDirectedRevoked(t *testing.T)     { testRevoked(t, inMemory) }
func TestRDMADirectedRevoked(t *testing.T) { testRevoked(t, onSoftRoCE) }

// The requester's device refuses a revoked handle, for reads and writes. Neither the memory nor the
// I/O device is written, and later requests get a new connection.
func testRevoked(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	for i, op := range []protocol.DirectedOperation{protocol.DirectedRead, protocol.DirectedWrite} {
		mem, m := r.memory(r.toOwner, 8192, direction(op))
		list := []protocol.ListElement{{Fragment: m.Fragment(0, 8192), EndOfBuffer: true}}
		request := one(op, tapeDevice, 0, list)
		r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
		clear(mem)
		r.check(m.Close())
		r.drive.mu.Lock()
		writes := r.drive.writes
		r.drive.mu.Unlock()
		r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedAccess)
		if slices.ContainsFunc(mem, func(b byte) bool { return b != 0 }) {
			t.Errorf("%v: memory that was revoked has changed", op)
		}
		if r.drive.writes != writes {
			t.Errorf("%v: the I/O device was written with nothing", op)
		}
		_, again := r.memory(r.toOwner, 8192, direction(op))
		list[0].Fragment = again.Fragment(0, 8192)
		r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
		if now, made := r.nodes[unitSide].Connections(); now != 1 || made != uint64(i+2) {
			t.Errorf("%v: %d connections, %d made", op, now, made)
		}
	}
}

func TestDirectedRefused(t *testing.T)     { testRefused(t, inMemory) }
func TestRDMADirectedRefused(t *testing.T) { testRefused(t, onSoftRoCE) }

// Requests that the owner does not allow, for a device that does not exist, or with memory of
// another unit are refused before a connection is made or data is moved.
func testRefused(t *testing.T, on fabricOf) {
	r := newFixture(t, on)
	_, m := r.memory(r.toOwner, 500*64, Result)
	own := protocol.ListElement{Fragment: m.Fragment(0, 4096), EndOfBuffer: true}
	others := own
	others.Platform = platforms[unitSide]
	do := func(device uint32, list ...protocol.ListElement) error {
		return r.toOwner.Do(t.Context(), one(protocol.DirectedRead, device, 0, list))
	}
	r.status(do(tapeDevice+1, own), protocol.DirectedDenied)
	r.status(do(tapeDevice, others), protocol.DirectedPlatform)
	r.status(do(tapeDevice, own, others), protocol.DirectedPlatform)
	r.allow = func(p protocol.Platform, q *protocol.DirectedRequest) bool {
		t := q.Transactions[0]
		return p != platforms[requesterSide] || t.Operation != protocol.DirectedRead || t.Results.Bytes != 4096
	}
	r.status(do(tapeDevice, own), protocol.DirectedDenied)
	if _, made := r.nodes[unitSide].Connections(); made != 0 {
		t.Errorf("%d connections were made", made)
	}
	r.mu.Lock()
	r.allow = nil
	r.mu.Unlock()
	// The owner does not see the list beyond the message. The I/O unit does.
	long, _ := fragments(make([]byte, 500*64), m, 500)
	long[450].Platform = platforms[unitSide]
	r.status(do(tapeDevice, long...), protocol.DirectedPlatform)
	own.Len = driveSize + 1 // more than the size of the I/O device, and of the memory
	r.status(do(tapeDevice, own), protocol.DirectedAccess)
	if r.drive.writes != 0 {
		t.Errorf("%d writes to the I/O device", r.drive.writes)
	}
	r.status(do(tapeDevice, protocol.ListElement{Fragment: m.Fragment(0, 64), EndOfBuffer: true}), protocol.DirectedOK)
}

// TestDirectedDeviceFails writes beyond the end of the I/O device, and expects the status
// DirectedFailed.
func TestDirectedDeviceFails(t *testing.T) {
	r := newFixture(t, inMemory)
	_, m := r.memory(r.toOwner, 4096, Source)
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 4096), EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, driveSize-1, list)),
		protocol.DirectedFailed)
}

// slowly is an I/O device whose next read takes lasts.
type slowly struct {
	Storage
	lasts *atomic.Int64
}

func (s slowly) ReadAt(b []byte, at int64) (int, error) {
	time.Sleep(time.Duration(s.lasts.Swap(0)))
	return s.Storage.ReadAt(b, at)
}

// TestDirectedTakesTooLong expects an I/O unit to give up a request for which the owner does not
// wait any longer. So the owner keeps the link, which other requests use too.
func TestDirectedTakesTooLong(t *testing.T) {
	var lasts atomic.Int64
	r := newFixture(t, inMemory, func(side int, c *Config) {
		if side == unitSide {
			c.Storage[tapeDevice] = slowly{c.Storage[tapeDevice], &lasts}
		}
	})
	_, m := r.memory(r.toOwner, driveSize, Result)
	read := func(size int) error {
		list := []protocol.ListElement{{Fragment: m.Fragment(0, size), EndOfBuffer: true}}
		return r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list))
	}
	r.status(read(4096), protocol.DirectedOK)
	hasty := r.nodes[unitSide].cfg
	hasty.Timeout = 100 * time.Millisecond
	r.nodes[unitSide].unit.cfg = &hasty // the links keep theirs
	lasts.Store(int64(2 * hasty.Timeout))
	r.status(read(driveSize), protocol.DirectedUnreachable)
	testenv.Eventually(t, func() bool {
		err := read(4096)
		if err != nil { // on a busy machine this can take too long as well
			r.status(err, protocol.DirectedUnreachable)
		}
		return err == nil
	}, "a request that takes little time")
}

func TestDirectedRequesterIsUnit(t *testing.T)     { testRequesterIsUnit(t, inMemory) }
func TestRDMADirectedRequesterIsUnit(t *testing.T) { testRequesterIsUnit(t, onSoftRoCE) }

// The requester is an I/O unit too, with a device that the same owner directs. Each of the two I/O
// units can read from the other's device.
func testRequesterIsUnit(t *testing.T, on fabricOf) {
	const otherDevice = 8
	other := newDrive(driveSize)
	pattern(other.mem, 77)
	r := newFixture(t, on, func(side int, c *Config) {
		if side == requesterSide {
			c.Storage = map[uint32]Storage{otherDevice: other}
		}
	})
	// A second link is for the direction of the requester's device by the owner.
	owned, directing := r.link(requesterSide, ownerSide, true)
	r.nodes[ownerSide].Assign(otherDevice, directing)
	defer owned.Close()
	defer directing.Close()
	asks, asked := r.link(unitSide, ownerSide, false)
	defer asks.Close()
	defer asked.Close()

	for _, c := range []struct {
		link   *Link
		device uint32
		drive  *tapeDrive
	}{{r.toOwner, tapeDevice, r.drive}, {asks, otherDevice, other}} {
		mem, m := r.memory(c.link, 64<<10, Result)
		list, view := fragments(mem, m, 3)
		r.status(c.link.Do(t.Context(), one(protocol.DirectedRead, c.device, 100, list)), protocol.DirectedOK)
		if !c.drive.holds(100, slices.Concat(view...)) {
			t.Errorf("device %d: the memory is not what it has", c.device)
		}
	}
}

// TestDirectedOwnerIsUnit has an owner that has the I/O device itself, and expects a read to
// succeed.
func TestDirectedOwnerIsUnit(t *testing.T) {
	drive := newDrive(driveSize)
	r := newFixture(t, inMemory, func(side int, c *Config) {
		if side == ownerSide {
			c.Storage = map[uint32]Storage{1: drive}
		}
	})
	mem, m := r.memory(r.toOwner, 8192, Result)
	list, view := fragments(mem, m, 2)
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, 1, 5, list)), protocol.DirectedOK)
	if !drive.holds(5, slices.Concat(view...)) {
		t.Error("the memory is not what the I/O device has")
	}
}

// TestDirectedHostile sends messages that violate the protocol: a requester acts as the owner, an
// I/O unit requests connections that were not asked for, links get invalid messages, and two
// requests at a time. It expects refusals, or the end of the link.
func TestDirectedHostile(t *testing.T) {
	connect := func(from, to protocol.Platform) func(uint64) []byte {
		return func(transaction uint64) []byte {
			return protocol.AppendDirectedConnect(nil, protocol.DirectedConnect{
				TransactionContext: transaction, From: from, To: to, Requester: to,
				End: protocol.DirectedEnd{BoundChannel: protocol.BoundChannel{QPN: 17}, MTU: 1024, Reads: 1},
			})
		}
	}
	connected := func(r *fixture, b []byte, err error) protocol.DirectedStatus {
		if err != nil {
			r.Fatal(err)
		}
		c, err := protocol.DecodeDirectedConnected(b)
		r.check(err)
		return c.Status
	}
	t.Run("passed on by no owner", func(t *testing.T) {
		r := newFixture(t, inMemory)
		_, m := r.memory(r.toOwner, 64, Result)
		list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
		q := message(protocol.DirectedRead, list)
		q.Requester = platforms[unitSide]
		if s := r.raw(r.toOwner, q); s != protocol.DirectedDenied {
			t.Error(s)
		}
	})
	t.Run("a connection that nobody waits for", func(t *testing.T) {
		r := newFixture(t, inMemory)
		b, err := r.requester.call(t.Context(), r.requester.joining, connect(9, platforms[requesterSide]))
		if s := connected(r, b, err); s != protocol.DirectedUnreachable {
			t.Errorf("to the requester: %v", s)
		}
		b, err = r.owner.call(t.Context(), r.owner.joining, connect(platforms[unitSide], platforms[requesterSide]))
		if s := connected(r, b, err); s != protocol.DirectedUnreachable {
			t.Errorf("by way of the owner: %v", s)
		}
	})
	t.Run("in another's name", func(t *testing.T) {
		r := newFixture(t, inMemory)
		n := r.nodes[ownerSide]
		n.mu.Lock()
		n.passing[r.unit] = passed{requester: r.requester}
		n.mu.Unlock()
		b, err := r.owner.call(t.Context(), r.owner.joining, connect(9, platforms[requesterSide]))
		if s := connected(r, b, err); s != protocol.DirectedUnreachable {
			t.Errorf("%v", s)
		}
	})
	good := message(protocol.DirectedWrite, []protocol.ListElement{{Data: []byte("x"), EndOfBuffer: true}})
	noList, none, many, total := good, good, good, good
	noList.List = nil
	none.Transactions = nil
	many.Transactions = slices.Repeat(good.Transactions, protocol.MaxDirectedTransactions+1)
	total.Transactions = slices.Repeat(good.Transactions, 2)
	for name, b := range map[string][]byte{
		"a message of a session":       protocol.AppendBufferPoolFlushReply(nil, 1),
		"an answer to nothing":         protocol.AppendDirectedReply(nil, protocol.DirectedReply{TransactionContext: 99}),
		"a list that is none":          protocol.AppendDirectedRequest(nil, noList),
		"no transaction":               protocol.AppendDirectedRequest(nil, none),
		"a transaction too many":       protocol.AppendDirectedRequest(nil, many),
		"buffers that are not there":   protocol.AppendDirectedRequest(nil, total),
		"a connection to queue pair 0": protocol.AppendDirectedConnect(nil, protocol.DirectedConnect{From: 1, To: 2}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, inMemory)
			r.check(r.toOwner.say(t.Context(), b))
			r.broken()
		})
	}
	t.Run("two requests", func(t *testing.T) {
		r := newFixture(t, inMemory)
		held, release := make(chan struct{}), make(chan struct{})
		r.allow = func(protocol.Platform, *protocol.DirectedRequest) bool {
			close(held)
			<-release
			return false
		}
		list := []protocol.ListElement{{Data: []byte("x"), EndOfBuffer: true}}
		b := protocol.AppendDirectedRequest(nil, message(protocol.DirectedWrite, list))
		r.check(r.toOwner.say(t.Context(), b))
		<-held
		r.check(r.toOwner.say(t.Context(), b))
		r.broken()
		close(release)
	})
	t.Run("requests before the answers", func(t *testing.T) {
		r := newFixture(t, inMemory)
		judged := make(chan struct{}, 100)
		r.allow = func(protocol.Platform, *protocol.DirectedRequest) bool {
			judged <- struct{}{}
			return false
		}
		r.requester.sending.Lock() // like a peer without a receive for the answer
		defer r.requester.sending.Unlock()
		list := []protocol.ListElement{{Data: []byte("x"), EndOfBuffer: true}}
		b := protocol.AppendDirectedRequest(nil, message(protocol.DirectedWrite, list))
		r.check(r.toOwner.say(t.Context(), b))
		<-judged
		testenv.Eventually(t, aboutToAnswer, "an answer that waits to be sent")
		r.check(r.toOwner.say(t.Context(), b))
		select {
		case <-judged:
			t.Fatal("a request is carried out before the answer to the one before it is sent")
		case <-r.requester.ctx.Done():
		}
		r.broken()
	})
}

// aboutToAnswer reports whether a goroutine waits to send an answer.
func aboutToAnswer() bool {
	stacks := make([]byte, 1<<20)
	for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		if bytes.Contains(stack, []byte("(*Link).serve(")) && bytes.Contains(stack, []byte("sync.(*Mutex).Lock(")) {
			return true
		}
	}
	return false
}

// broken expects the owner to end the link because the requester broke the protocol. If the owner
// answers instead, nobody at the requester waits for the answer, and the other end fails.
func (r *fixture) broken() {
	r.Helper()
	testenv.Eventually(r, func() bool { return errors.Join(r.requester.Err(), r.toOwner.Err()) != nil },
		"the end of the link")
	if err := r.requester.Err(); !errors.Is(err, ErrProtocol) {
		r.Errorf("the link ends with %v, at its other end with %v", err, r.toOwner.Err())
	}
}

// TestDirectedEvict expects the least recently used connection to be closed when there are too
// many, but not one that is in use.
func TestDirectedEvict(t *testing.T) {
	n := New(Config{MaxConnections: 2})
	for p := protocol.Platform(1); p <= 3; p++ {
		n.unit.acquire(peers{requester: p}).mu.Unlock()
	}
	if len(n.unit.conns) != 2 || n.unit.conns[peers{requester: 1}] != nil {
		t.Errorf("%d connections: %v", len(n.unit.conns), n.unit.conns)
	}
	used := n.unit.acquire(peers{requester: 2})
	n.unit.acquire(peers{requester: 4}).mu.Unlock()
	if n.unit.conns[peers{requester: 2}] != used || n.unit.conns[peers{requester: 3}] != nil {
		t.Errorf("%v", n.unit.conns)
	}
	used.mu.Unlock()
}

// TestDirectedCancelled cancels the wait for an owner that does not answer. It expects the next
// request to wait for that answer, and no link to end.
func TestDirectedCancelled(t *testing.T) {
	r := newFixture(t, inMemory)
	release := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	r.allow = func(protocol.Platform, *protocol.DirectedRequest) bool {
		cancel()
		<-release
		return true
	}
	mem, m := r.memory(r.toOwner, 64, Result)
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	request := one(protocol.DirectedRead, tapeDevice, 0, list)
	if err := r.toOwner.Do(ctx, request); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(release)
	r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
	if !r.drive.holds(0, mem) {
		t.Error("the memory is not what the I/O device has")
	}
}

// TestDirectedRequesterLeaves closes the link of a requester while its request is in progress. It
// expects the owner's link with the I/O unit to stay usable for other requests.
func TestDirectedRequesterLeaves(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	r := newFixture(t, inMemory, func(side int, c *Config) {
		if side == unitSide {
			c.Storage[tapeDevice] = &slowDrive{Storage: c.Storage[tapeDevice], held: held, release: release}
		}
	})
	leaves, left := r.link(requesterSide, ownerSide, false)
	_, m := r.memory(leaves, 64, Result)
	done := make(chan error, 1)
	go func() {
		list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
		done <- leaves.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list))
	}()
	<-held
	r.check(leaves.Close())
	if err := <-done; err == nil {
		t.Error("a request by a link that is closed has succeeded")
	}
	r.check(left.Close())
	close(release)
	mem, m := r.memory(r.toOwner, 64, Result)
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list)), protocol.DirectedOK)
	if !r.drive.holds(0, mem) {
		t.Error("the memory is not what the I/O device has")
	}
}

// slowDrive is an I/O device whose first read waits for release.
type slowDrive struct {
	Storage
	once          sync.Once
	held, release chan struct{}
}

// ReadAt implements io.ReaderAt.
func (d *slowDrive) ReadAt(b []byte, at int64) (int, error) {
	d.once.Do(func() {
		close(d.held)
		<-d.release
	})
	return d.Storage.ReadAt(b, at)
}
