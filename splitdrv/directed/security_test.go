package directed

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

// end returns an end of a connection of a device: a real queue pair, to which the other end can
// connect.
func (r *fixture) end(side int) protocol.DirectedEnd {
	r.Helper()
	dom, err := r.devices[side].NewDomain()
	if err != nil {
		r.Fatal(err)
	}
	cq, err := dom.NewCQ(1, 0)
	if err != nil {
		r.Fatal(err)
	}
	qp, err := dom.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { r.check(errors.Join(qp.Close(), dom.Close())) })
	return endOf(qp.Address(), 1)
}

// connect sends a connect message on a link, and returns the status of the answer.
func (r *fixture) connect(l *Link, c protocol.DirectedConnect) protocol.DirectedStatus {
	r.Helper()
	b, err := l.call(r.Context(), l.joining, func(transaction uint64) []byte {
		c.TransactionContext = transaction
		return protocol.AppendDirectedConnect(nil, c)
	})
	if err != nil {
		r.Fatal(err)
	}
	answer, err := protocol.DecodeDirectedConnected(b)
	if err != nil {
		r.Fatal(err)
	}
	return answer.Status
}

// opened returns the number of connections by which I/O units reach the memory of a link.
func opened(l *Link) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// asked returns the number of messages that this side of a link has sent.
func asked(l *Link) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// TestDirectedConnectRefused has an I/O unit ask for a connection with a real queue pair. It
// expects a connection if everything is right, and none if a single condition is not met.
func TestDirectedConnectRefused(t *testing.T) {
	for _, c := range []struct {
		name          string
		change        func(*protocol.DirectedConnect)
		waits, passed bool
		want          protocol.DirectedStatus
		reaches       bool // the message is passed on to the requester
	}{
		{"everything is right", func(*protocol.DirectedConnect) {}, true, true, protocol.DirectedOK, true},
		{"in another's name", func(c *protocol.DirectedConnect) { c.From = platforms[ownerSide] }, true, true,
			protocol.DirectedUnreachable, false},
		{"to another", func(c *protocol.DirectedConnect) { c.To = 9 }, true, true, protocol.DirectedPlatform, false},
		{"for another", func(c *protocol.DirectedConnect) { c.Requester = 9 }, true, true, protocol.DirectedUnreachable,
			false},
		{"no request waits", func(*protocol.DirectedConnect) {}, false, true, protocol.DirectedUnreachable, true},
		{"no request was passed on", func(*protocol.DirectedConnect) {}, true, false, protocol.DirectedUnreachable, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t, inMemory)
			if c.waits {
				r.toOwner.waits(1)
			}
			if c.passed {
				n := r.nodes[ownerSide]
				n.mu.Lock()
				n.passing[r.unit] = passed{requester: r.requester}
				n.mu.Unlock()
			}
			m := protocol.DirectedConnect{
				From: platforms[unitSide], To: platforms[requesterSide], Requester: platforms[requesterSide],
				End: r.end(unitSide),
			}
			c.change(&m)
			if s := r.connect(r.owner, m); s != c.want {
				t.Errorf("%v, want %v", s, c.want)
			}
			if n := opened(r.toOwner); n != 0 != (c.want == protocol.DirectedOK) {
				t.Errorf("%d connections reach the requester's memory", n)
			}
			if n := asked(r.requester); n != 0 != c.reaches {
				t.Errorf("the requester got %d messages", n)
			}
		})
	}
}

// TestDirectedOnlyOwnersDirect has a unit that is no owner pass on a request to an I/O unit, as an
// owner would. It expects the I/O unit to refuse it.
func TestDirectedOnlyOwnersDirect(t *testing.T) {
	r := newFixture(t, inMemory)
	to, at := r.link(requesterSide, unitSide, false)
	defer func() { r.check(errors.Join(to.Close(), at.Close())) }()
	mem, m := r.memory(to, 64, Result)
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	q := message(protocol.DirectedRead, list)
	q.Requester = platforms[requesterSide]
	if s := r.raw(to, q); s != protocol.DirectedDenied {
		t.Error(s)
	}
	if r.drive.reads != 0 || !bytes.Equal(mem, make([]byte, 64)) {
		t.Error("data was moved")
	}
}

// TestDirectedNoPolicy expects an owner without a policy to allow nothing.
func TestDirectedNoPolicy(t *testing.T) {
	r := newFixture(t, inMemory, func(_ int, c *Config) { c.Allow = nil })
	_, m := r.memory(r.toOwner, 64, Result)
	list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list)), protocol.DirectedDenied)
}

func TestDirectedOtherDirection(t *testing.T)     { testOtherDirection(t, inMemory) }
func TestRDMADirectedOtherDirection(t *testing.T) { testOtherDirection(t, onSoftRoCE) }

// Memory that is registered for one direction cannot be accessed in the other one, also not beside
// memory for the other direction in the same transaction.
func testOtherDirection(t *testing.T, on fabricOf) {
	r := newFixture(t, on, swapping)
	const size = 8192
	mem, m := make([][]byte, 2), make([]*Memory, 2)
	lists := make([][]protocol.ListElement, 2)
	for _, d := range []Direction{Source, Result} {
		mem[d], m[d] = r.memory(r.toOwner, size, d)
		pattern(mem[d], 5+int(d))
		lists[d] = []protocol.ListElement{{Fragment: m[d].Fragment(0, size), EndOfBuffer: true}}
	}
	was := bytes.Clone(mem[Source])
	do := func(op protocol.DirectedOperation, source, results []protocol.ListElement) error {
		return r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{{op, 0, source, results}}})
	}
	r.status(do(protocol.DirectedRead, nil, lists[Source]), protocol.DirectedAccess)
	r.status(do(protocol.DirectedWrite, lists[Result], nil), protocol.DirectedAccess)
	r.status(do(protocol.DirectedExchange, lists[Result], lists[Result]), protocol.DirectedAccess)
	r.status(do(protocol.DirectedExchange, lists[Result], lists[Source]), protocol.DirectedAccess)
	if r.drive.writes != 0 {
		t.Error("memory for results was read")
	}
	r.status(do(protocol.DirectedExchange, lists[Source], lists[Source]), protocol.DirectedAccess)
	if !bytes.Equal(mem[Source], was) {
		t.Error("memory with source data was written")
	}
	r.status(do(protocol.DirectedRead, nil, lists[Result]), protocol.DirectedOK)
	r.status(do(protocol.DirectedWrite, lists[Source], nil), protocol.DirectedOK)
	r.status(do(protocol.DirectedExchange, lists[Source], lists[Result]), protocol.DirectedOK)
}

// longList returns a list of n elements with data of 1 KiB each, three of which fit a sequence.
func longList(n int) (list []protocol.ListElement, data []byte) {
	data = make([]byte, n*protocol.MaxListImmediate)
	pattern(data, 4)
	for b := range slices.Chunk(data, protocol.MaxListImmediate) {
		list = append(list, protocol.ListElement{Data: b, EndOfBuffer: true})
	}
	return list, data
}

// TestDirectedChainMemory expects the memory with the rest of a list to be accessible to the I/O
// unit while the request is under way, for reads only, and not afterwards.
func TestDirectedChainMemory(t *testing.T) {
	r := newFixture(t, inMemory)
	list, _ := longList(6)
	chainOf := func(sequence []byte) []protocol.ListElement {
		var d protocol.ListDecoder
		chain, more, err := d.Add(sequence)
		if err != nil || !more {
			t.Fatalf("a list without a chain pointer: %v, %v", more, err)
		}
		return []protocol.ListElement{{Fragment: chain, EndOfBuffer: true}}
	}

	write := one(protocol.DirectedWrite, tapeDevice, 0, list)
	q, chain, err := r.toOwner.message(&write)
	if err != nil {
		t.Fatal(err)
	}
	rest := chainOf(q.List)
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, rest)), protocol.DirectedAccess)
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 0, rest)), protocol.DirectedOK)
	r.check(chain.Close())

	var left []protocol.ListElement
	r.allow = func(_ protocol.Platform, q *protocol.DirectedRequest) bool {
		left = chainOf(q.List)
		return true
	}
	r.status(r.toOwner.Do(t.Context(), write), protocol.DirectedOK)
	r.mu.Lock()
	r.allow = nil
	r.mu.Unlock()
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 0, left)), protocol.DirectedAccess)
}

// TestDirectedLongestList expects a list of 16 sequences to be carried out, and the requester to
// refuse one of 17, and one of too many elements.
func TestDirectedLongestList(t *testing.T) {
	r := newFixture(t, inMemory)
	const most = 3 * protocol.MaxListSequences
	list, data := longList(most)
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedWrite, tapeDevice, 0, list)), protocol.DirectedOK)
	if !r.drive.holds(0, data) {
		t.Error("the I/O device is not what the list has")
	}
	list, _ = longList(most + 1)
	request := one(protocol.DirectedWrite, tapeDevice, 0, list)
	if _, _, err := r.toOwner.message(&request); !errors.Is(err, protocol.ErrCount) {
		t.Errorf("17 sequences: %v", err)
	}
	_, m := r.memory(r.toOwner, protocol.MaxListElements+1, Source)
	list = nil
	for i := range protocol.MaxListElements + 1 {
		list = append(list, protocol.ListElement{Fragment: m.Fragment(i, 1), EndOfBuffer: true})
	}
	request = one(protocol.DirectedWrite, tapeDevice, 0, list)
	if _, _, err := r.toOwner.message(&request); !errors.Is(err, protocol.ErrCount) {
		t.Errorf("%d elements: %v", len(list), err)
	}
	request = one(protocol.DirectedWrite, tapeDevice, 0, list[1:])
	r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
}

// TestDirectedAccept expects a requester to have a bounded number of connections with I/O units,
// one for each, and to grant no more reads than its device has and the I/O unit wants.
func TestDirectedAccept(t *testing.T) {
	r := newFixture(t, inMemory, func(_ int, c *Config) { c.MaxConnections = 2 })
	accept := func(from protocol.Platform, reads uint16) (protocol.DirectedEnd, error) {
		end := r.end(unitSide)
		end.Reads = reads
		return r.toOwner.accept(protocol.DirectedConnect{
			From: from, To: platforms[requesterSide], Requester: platforms[requesterSide], End: end,
		})
	}
	r.toOwner.waits(1)
	end, err := accept(1, 255)
	if most := r.devices[requesterSide].Limits().MaxDestRdAtomic; err != nil || int(end.Reads) != most {
		t.Errorf("granted %d reads of 255, the device has %d: %v", end.Reads, most, err)
	}
	var old answering
	for _, old = range r.toOwner.open {
	}
	if end, err = accept(2, 3); err != nil || end.Reads != 3 {
		t.Errorf("granted %d reads of 3: %v", end.Reads, err)
	}
	if _, err := accept(3, 1); !errors.Is(err, errTooMany) || opened(r.toOwner) != 2 {
		t.Errorf("a connection too many: %v, %d connections", err, opened(r.toOwner))
	}
	if _, err := accept(1, 1); err != nil || opened(r.toOwner) != 2 {
		t.Errorf("again: %v, %d connections", err, opened(r.toOwner))
	}
	if _, err := old.qp.Failed(); err == nil {
		t.Error("the queue pair of the connection that was replaced is open")
	}
}

// TestDirectedOwnerHasNoAccess has the owner write to memory that the requester has registered, over
// the link, and expects the requester's device to refuse that. The same handle is good for the I/O unit.
func TestDirectedOwnerHasNoAccess(t *testing.T) {
	r := newFixture(t, inMemory)
	_, m := r.memory(r.toOwner, 64, Result)
	f := m.Fragment(0, 64)
	list := []protocol.ListElement{{Fragment: f, EndOfBuffer: true}}
	r.status(r.toOwner.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list)), protocol.DirectedOK)
	l := r.requester
	write := fabric.SendWR{
		Op: fabric.OpWrite, Flags: fabric.Signaled, Addr: l.mem.Addr(), LKey: l.mem.LKey(), Len: 64,
		RemoteAddr: f.Addr, RKey: f.Handle,
	}
	err := post(t.Context(), l.qp, l.send, []fabric.SendWR{write}, afterFlush)
	if !errors.Is(err, &fabric.WCError{Status: fabric.StatusRemAccessErr}) {
		t.Errorf("the owner writes to the requester's memory: %v", err)
	}
}

// TestDirectedOtherOwner has a requester with two owners, which direct the same I/O unit. It expects
// each owner's requests to reach the memory for this owner only.
func TestDirectedOtherOwner(t *testing.T) {
	r := newFixture(t, inMemory)
	second := New(Config{
		Device: r.devices[ownerSide], Platform: 99,
		Allow: func(protocol.Platform, *protocol.DirectedRequest) bool { return true },
	})
	join := func(side int, owner bool) (of, to *Link) {
		of, err := r.nodes[side].NewLink()
		r.check(err)
		to, err = second.NewLink()
		r.check(err)
		of.Owner = owner
		r.check(errors.Join(of.Start(to.Address(), 99), to.Start(of.Address(), platforms[side])))
		t.Cleanup(func() { r.check(errors.Join(of.Close(), to.Close())) })
		return of, to
	}
	toSecond, _ := join(requesterSide, false)
	_, unit := join(unitSide, true)
	second.Assign(tapeDevice, unit)
	t.Cleanup(func() { r.check(second.Close()) })

	links := []*Link{r.toOwner, toSecond}
	read := func(by *Link, m *Memory) error {
		list := []protocol.ListElement{{Fragment: m.Fragment(0, 64), EndOfBuffer: true}}
		return by.Do(t.Context(), one(protocol.DirectedRead, tapeDevice, 0, list))
	}
	var memory [2]*Memory
	for i, l := range links {
		_, memory[i] = r.memory(l, 64, Result)
		r.status(read(l, memory[i]), protocol.DirectedOK)
	}
	for i, l := range links {
		r.status(read(l, memory[1-i]), protocol.DirectedAccess)
		r.status(read(l, memory[i]), protocol.DirectedOK)
	}
}

// TestDirectedNoAnswer has an owner that does not answer. It expects a request to end when the link
// does, and otherwise after Timeout; the link ends if there is no answer for as long again.
func TestDirectedNoAnswer(t *testing.T) {
	list := []protocol.ListElement{{Data: []byte("x"), EndOfBuffer: true}}
	request := one(protocol.DirectedWrite, tapeDevice, 0, list)
	hold := func(r *fixture) (held, release chan struct{}) {
		held, release = make(chan struct{}), make(chan struct{})
		r.allow = func(protocol.Platform, *protocol.DirectedRequest) bool {
			close(held)
			<-release
			return false
		}
		return held, release
	}
	t.Run("the link ends", func(t *testing.T) {
		r := newFixture(t, inMemory)
		held, release := hold(r)
		defer close(release)
		done := make(chan error, 2)
		for range 2 { // one waits for its answer, the other one to be sent
			go func() { done <- r.toOwner.Do(context.Background(), request) }()
		}
		<-held
		ends := errors.New("the end")
		r.toOwner.fail(ends)
		for range 2 {
			if err := <-done; !errors.Is(err, ends) {
				t.Errorf("%v, want %v", err, ends)
			}
		}
	})
	t.Run("for a long time", func(t *testing.T) {
		r := newFixture(t, inMemory, func(side int, c *Config) {
			if side == requesterSide {
				c.Timeout = 50 * time.Millisecond
			}
		})
		_, release := hold(r)
		defer close(release)
		if err := r.toOwner.Do(t.Context(), request); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		testenv.Eventually(t, func() bool { return r.toOwner.Err() != nil }, "the end of the link")
		if err := r.toOwner.Err(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the link ends with %v", err)
		}
	})
}

// TestDirectedCloseWaits expects Close of a link to return only when a message of the peer has been
// dealt with: it uses the memory and the queue pair of the link.
func TestDirectedCloseWaits(t *testing.T) {
	r := newFixture(t, inMemory)
	asks, asked := r.link(requesterSide, ownerSide, false)
	held, release := make(chan struct{}), make(chan struct{})
	r.allow = func(protocol.Platform, *protocol.DirectedRequest) bool {
		close(held)
		<-release
		return false
	}
	list := []protocol.ListElement{{Data: []byte("x"), EndOfBuffer: true}}
	done := make(chan error, 1)
	go func() { done <- asks.Do(context.Background(), one(protocol.DirectedWrite, tapeDevice, 0, list)) }()
	<-held
	closed := make(chan error, 1)
	go func() { closed <- asked.Close() }()
	testenv.Eventually(t, func() bool { return len(closed) != 0 || closeWaits() }, "Close that waits")
	if len(closed) != 0 {
		t.Fatal("the link is closed before its peer's request is dealt with")
	}
	close(release)
	r.check(<-closed)
	r.check(asks.Close())
	if err := <-done; err == nil {
		t.Error("a request has succeeded whose link was closed")
	}
}

// closeWaits reports whether a goroutine waits in Close for the work of a link.
func closeWaits() bool {
	stacks := make([]byte, 1<<20)
	for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		if bytes.Contains(stack, []byte("(*Link).Close(")) && bytes.Contains(stack, []byte("sync.(*WaitGroup).Wait(")) {
			return true
		}
	}
	return false
}
