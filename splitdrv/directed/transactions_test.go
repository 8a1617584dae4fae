package directed

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// swapDrive is an I/O device that has a meaning for an exchange: it returns what it has at the
// offset, and stores the source data there.
type swapDrive struct{ Storage }

// Exchange implements Exchanger.
func (d swapDrive) Exchange(results, source []byte, offset int64) error {
	_, err := d.ReadAt(results, offset)
	if err == nil {
		_, err = d.WriteAt(source, offset)
	}
	return err
}

// swapping makes the I/O unit's device a swapDrive.
func swapping(side int, c *Config) {
	if side == unitSide {
		c.Storage[tapeDevice] = swapDrive{c.Storage[tapeDevice]}
	}
}

// seen has the owner allow everything, and returns the transactions that it is asked about.
func (r *fixture) seen() *[]protocol.DirectedTransaction {
	var seen []protocol.DirectedTransaction
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allow = func(_ protocol.Platform, q *protocol.DirectedRequest) bool {
		seen = q.Transactions
		return true
	}
	return &seen
}

// stopped expects a request to stop with a status, after this many transactions and bytes.
func (r *fixture) stopped(err error, want StatusError) {
	r.Helper()
	var e *StatusError
	if !errors.As(err, &e) || *e != want {
		r.Errorf("got error %v, want %v", err, &want)
	}
}

// buffer returns a list of one buffer of one fragment.
func buffer(m *Memory, at, size int) []protocol.ListElement {
	return []protocol.ListElement{{Fragment: m.Fragment(at, size), EndOfBuffer: true}}
}

func TestDirectedExchange(t *testing.T)     { testExchange(t, inMemory) }
func TestRDMADirectedExchange(t *testing.T) { testExchange(t, onSoftRoCE) }

// One transaction has buffers with source data, of several fragments and data in the list, and
// buffers for results. Neither passes the owner, which knows how many bytes there are of each.
func testExchange(t *testing.T, on fabricOf) {
	r := newFixture(t, on, swapping)
	seen := r.seen()
	const size, offset = 400 << 10, 12345
	out, source := r.memory(r.toOwner, size, Source)
	in, results := r.memory(r.toOwner, size+8192, Result)
	pattern(out, 9)
	sources, from := fragments(out, source, 6)
	sources = slices.Insert(sources, 2, protocol.ListElement{Data: []byte("in between")})
	from = slices.Insert(from, 2, []byte("in between"))
	places, to := fragments(in, results, 5)
	was := bytes.Clone(r.drive.mem)
	var before [sides]uint64
	for i := range before {
		before[i] = r.wire(i)
	}
	exchange := Transaction{protocol.DirectedExchange, offset, sources, places}
	r.status(r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{exchange}}), protocol.DirectedOK)
	if !bytes.HasPrefix(was[offset:], slices.Concat(to...)) {
		t.Error("the results are not what the I/O device has returned")
	}
	data := slices.Concat(from...)
	if copy(was[offset:], data); !r.drive.holds(0, was) {
		t.Error("the I/O device does not have the source data, or something else as well")
	}
	want := []protocol.DirectedTransaction{{
		Operation: protocol.DirectedExchange, Offset: offset,
		Source:  protocol.DirectedBuffers{Count: 2, Bytes: uint64(len(data))},
		Results: protocol.DirectedBuffers{Count: 2, Bytes: uint64(len(slices.Concat(to...)))},
	}}
	if !slices.Equal(*seen, want) {
		t.Errorf("the owner has allowed %+v, want %+v", *seen, want)
	}
	r.noPayload(before, 2*size)
}

func TestDirectedTransactions(t *testing.T)     { testTransactions(t, inMemory) }
func TestRDMADirectedTransactions(t *testing.T) { testTransactions(t, onSoftRoCE) }

// One request has several transactions with buffers of their own, or without buffers. Each begins
// when the one before is complete: the second one reads what the first one writes, and so on.
func testTransactions(t *testing.T, on fabricOf) {
	r := newFixture(t, on, swapping)
	seen := r.seen()
	const size = 5000
	out, source := r.memory(r.toOwner, 2*size, Source)
	in, results := r.memory(r.toOwner, 4*size, Result)
	pattern(out, 6)
	was := bytes.Clone(r.drive.mem[:size])
	r.status(r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{
		{protocol.DirectedRead, 0, nil, buffer(results, 0, size)},
		{protocol.DirectedWrite, 0, buffer(source, 0, size), nil},
		{protocol.DirectedRead, 0, nil, buffer(results, size, size)},
		{protocol.DirectedExchange, 0, nil, nil},
		{protocol.DirectedExchange, 0, buffer(source, size, size), buffer(results, 2*size, size)},
		{protocol.DirectedRead, 0, nil, buffer(results, 3*size, size)},
	}}), protocol.DirectedOK)
	if want := slices.Concat(was, out[:size], out); !bytes.Equal(in, want) {
		for i, name := range []string{"what was there", "the write", "what the exchange returns", "the exchange"} {
			if !bytes.Equal(in[i*size:][:size], want[i*size:][:size]) {
				t.Errorf("%s: not what is read", name)
			}
		}
	}
	var ops []protocol.DirectedOperation
	for _, q := range *seen {
		ops = append(ops, q.Operation)
	}
	const read, write, exchange = protocol.DirectedRead, protocol.DirectedWrite, protocol.DirectedExchange
	if !slices.Equal(ops, []protocol.DirectedOperation{read, write, read, exchange, exchange, read}) {
		t.Errorf("the owner has allowed %v", ops)
	}
}

// TestDirectedNoBuffers expects a request without buffers to reach the I/O device, without a
// connection to anybody's memory.
func TestDirectedNoBuffers(t *testing.T) {
	calls := 0
	r := newFixture(t, inMemory, func(side int, c *Config) {
		if side == unitSide {
			c.Storage[tapeDevice] = countDrive{c.Storage[tapeDevice], &calls}
		}
	})
	nothing := Transaction{Operation: protocol.DirectedExchange}
	r.status(r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{nothing, nothing}}), protocol.DirectedOK)
	if _, made := r.nodes[unitSide].Connections(); calls != 2 || made != 0 {
		t.Errorf("%d exchanges, %d connections", calls, made)
	}
}

// countDrive counts its exchanges, which do nothing else.
type countDrive struct {
	Storage
	calls *int
}

func (d countDrive) Exchange(_, _ []byte, _ int64) error {
	*d.calls++
	return nil
}

// TestDirectedManyTransactions expects as many transactions as there can be, with a list of several
// sequences, and lists of any length with any number of transactions to fit their message.
func TestDirectedManyTransactions(t *testing.T) {
	r := newFixture(t, inMemory)
	const most, each, size = protocol.MaxDirectedTransactions, 5, 96
	out, source := r.memory(r.toOwner, most*each*size, Source)
	pattern(out, 8)
	var request Request
	request.Device = tapeDevice
	for i := range most {
		var list []protocol.ListElement
		for j := range each {
			list = append(list, buffer(source, (i*each+j)*size, size)...)
		}
		request.Transactions = append(request.Transactions, Transaction{
			Operation: protocol.DirectedWrite, Offset: uint64(most-1-i) * each * size, Source: list,
		})
	}
	r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
	for i := range most {
		if !r.drive.holds((most-1-i)*each*size, out[i*each*size:][:each*size]) {
			t.Errorf("transaction %d: the I/O device is not what the memory has", i)
		}
	}
	chains := 0
	for n := 1; n <= most; n++ {
		for elements := 1; elements <= 16; elements++ {
			list := slices.Repeat(buffer(source, 0, 1), elements)
			list[0] = protocol.ListElement{Data: make([]byte, 4*n+elements), EndOfBuffer: true}
			q, chain, err := r.toOwner.message(&Request{tapeDevice, slices.Repeat([]Transaction{
				{Operation: protocol.DirectedWrite, Source: list},
			}, n)})
			if err != nil {
				t.Fatal(err)
			}
			if chain != nil {
				chains++
				r.check(chain.Close())
			}
			if _, err := protocol.DecodeDirectedRequest(protocol.AppendDirectedRequest(nil, q)); err != nil {
				t.Fatalf("%d transactions of %d elements: %v", n, elements, err)
			}
		}
	}
	if chains == 0 || chains == 16*most {
		t.Errorf("%d lists of %d continue elsewhere", chains, 16*most)
	}
}

// TestDirectedTransactionDenied expects nothing of a request to be carried out if the owner does not
// allow one of its transactions, whichever that is.
func TestDirectedTransactionDenied(t *testing.T) {
	for bad := range 3 {
		r := newFixture(t, inMemory)
		r.allow = func(_ protocol.Platform, q *protocol.DirectedRequest) bool {
			return !slices.ContainsFunc(q.Transactions, func(q protocol.DirectedTransaction) bool { return q.Offset == 13 })
		}
		_, source := r.memory(r.toOwner, 64, Source)
		request := Request{Device: tapeDevice}
		for i := range 3 {
			offset := uint64(100 * i)
			if i == bad {
				offset = 13
			}
			request.Transactions = append(request.Transactions, Transaction{
				Operation: protocol.DirectedWrite, Offset: offset, Source: buffer(source, 0, 64),
			})
		}
		r.stopped(r.toOwner.Do(t.Context(), request), StatusError{Status: protocol.DirectedDenied})
		if _, made := r.nodes[unitSide].Connections(); r.drive.writes != 0 || made != 0 {
			t.Errorf("transaction %d is denied: %d writes, %d connections", bad, r.drive.writes, made)
		}
		request.Transactions[bad].Offset = 14
		r.status(r.toOwner.Do(t.Context(), request), protocol.DirectedOK)
	}
}

// TestDirectedThirdTransaction has two good transactions and a bad one, which is bad where only the
// I/O unit sees it. It expects nothing to be moved: the whole request is checked first.
func TestDirectedThirdTransaction(t *testing.T) {
	const size = 64
	write := func(b ...uint64) (ts []protocol.DirectedTransaction) {
		for i, n := range b {
			ts = append(ts, protocol.DirectedTransaction{
				Operation: protocol.DirectedWrite, Offset: uint64(i) * 4096, Source: protocol.DirectedBuffers{Count: 1, Bytes: n},
			})
		}
		return ts
	}
	read := write(size, size, size)
	read[2].Operation, read[2].Source, read[2].Results = protocol.DirectedRead, read[2].Results, read[2].Source
	exchange := write(size, size, size)
	exchange[2].Operation = protocol.DirectedExchange
	data := protocol.ListElement{Data: make([]byte, size), EndOfBuffer: true}
	for _, c := range []struct {
		name         string
		transactions []protocol.DirectedTransaction
		third        func(m *Memory) protocol.ListElement
		want         protocol.DirectedStatus
	}{
		{"fewer bytes than the owner has allowed", write(size, size+1, size-1), nil, protocol.DirectedInvalid},
		{"more bytes than the owner has allowed", write(size, size-1, size+1), nil, protocol.DirectedInvalid},
		{"data for results", read, func(*Memory) protocol.ListElement { return data }, protocol.DirectedInvalid},
		{"memory of another unit", write(size, size, size), func(m *Memory) protocol.ListElement {
			f := m.Fragment(0, size)
			f.Platform = platforms[unitSide]
			return protocol.ListElement{Fragment: f, EndOfBuffer: true}
		}, protocol.DirectedPlatform},
		{"an operation that the I/O device does not have", exchange, nil, protocol.DirectedUnsupported},
		{"nothing bad", write(size, size, size), nil, protocol.DirectedOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t, inMemory)
			mem, m := r.memory(r.toOwner, 4096, Source)
			list := slices.Repeat(buffer(m, 0, size), 3)
			if c.third != nil {
				list[2] = c.third(m)
			}
			a := protocol.AttributesOf(list)
			chain := m.Fragment(1024, copy(mem[1024:], protocol.AppendListSequence(nil, nil, nil, list)))
			s := r.raw(r.toOwner, protocol.DirectedRequest{
				Device: tapeDevice, Transactions: c.transactions,
				List: protocol.AppendListSequence(nil, &a, []protocol.Fragment{chain}, nil),
			})
			if moved := r.drive.writes != 0; s != c.want || moved != (s == protocol.DirectedOK) {
				t.Errorf("%v, %d writes; want %v", s, r.drive.writes, c.want)
			}
		})
	}
}

// TestDirectedTransactionFails has the third of four transactions fail. It expects the first two to
// be carried out, the last one not to be, and the answer to say how far the request came.
func TestDirectedTransactionFails(t *testing.T) {
	const size, large = 4096, stagingSize + 4096
	for _, c := range []struct {
		name  string
		third func(r *fixture, source, revoked *Memory) Transaction
		want  protocol.DirectedStatus
		bytes uint64 // of the third
	}{
		{"at the I/O device", func(_ *fixture, source, _ *Memory) Transaction {
			return Transaction{protocol.DirectedWrite, driveSize, buffer(source, 0, size), nil}
		}, protocol.DirectedFailed, 0},
		{"at the I/O device, in an exchange", func(_ *fixture, source, _ *Memory) Transaction {
			return Transaction{protocol.DirectedExchange, driveSize, buffer(source, 0, size), nil}
		}, protocol.DirectedFailed, size},
		{"at the memory", func(_ *fixture, _, revoked *Memory) Transaction {
			return Transaction{protocol.DirectedWrite, 2 * size, buffer(revoked, 0, size), nil}
		}, protocol.DirectedAccess, 0},
		{"in its second part", func(r *fixture, _, revoked *Memory) Transaction {
			_, source := r.memory(r.toOwner, large, Source)
			return Transaction{protocol.DirectedWrite, 8 * size, slices.Concat(buffer(source, 0, stagingSize),
				buffer(revoked, 0, size)), nil}
		}, protocol.DirectedAccess, stagingSize},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newFixture(t, inMemory, swapping)
			out, source := r.memory(r.toOwner, 2*size, Source)
			pattern(out, 7)
			_, revoked := r.memory(r.toOwner, size, Source)
			r.check(revoked.Close())
			in, results := r.memory(r.toOwner, size, Result)
			err := r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{
				{protocol.DirectedWrite, 0, buffer(source, 0, size), nil},
				{protocol.DirectedWrite, size, buffer(source, size, size), nil},
				c.third(r, source, revoked),
				{protocol.DirectedRead, 0, nil, buffer(results, 0, size)},
			}})
			r.stopped(err, StatusError{Status: c.want, Done: 2, Bytes: 2*size + c.bytes})
			if !r.drive.holds(0, out) {
				t.Error("the first two are not carried out")
			}
			if !bytes.Equal(in, make([]byte, size)) {
				t.Error("the last one is carried out")
			}
		})
	}
}

// TestDirectedExchangeSeveralUnits expects an exchange with source data of one unit, and results for
// two, which the owner allows for this operation only.
func TestDirectedExchangeSeveralUnits(t *testing.T) {
	r := newFixture(t, inMemory, swapping, func(side int, c *Config) {
		if side == ownerSide {
			c.AllowMemory = func(_, of protocol.Platform, q *protocol.DirectedRequest) bool {
				return of == lender && len(q.Transactions) == 1 && q.Transactions[0].Operation == protocol.DirectedExchange
			}
		}
	})
	const size = 4096
	lends := r.lend()
	out, source := r.offered(lends, size, Source, platforms[requesterSide])
	others, lent := r.offered(lends, size, Result, platforms[requesterSide])
	own, results := r.memory(r.toOwner, size, Result)
	pattern(out, 3)
	was := bytes.Clone(r.drive.mem[:2*size])
	exchange := Transaction{protocol.DirectedExchange, 0, buffer(source, 0, size), slices.Concat(
		buffer(results, 0, size), buffer(lent, 0, size))}
	r.status(r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{exchange}}), protocol.DirectedOK)
	if !r.drive.holds(0, out) || !bytes.Equal(slices.Concat(own, others), was) {
		t.Error("the I/O device does not have the source data, or the memory of both units not the results")
	}
	r.status(r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{exchange, exchange}}), protocol.DirectedPlatform)
}

// TestDirectedClaims has an I/O unit, or an owner, reply what cannot be. It expects the side that gets
// the reply to end the link, and the requester to get an error.
func TestDirectedClaims(t *testing.T) {
	const ok, failed = protocol.DirectedOK, protocol.DirectedFailed
	for name, claim := range map[string]protocol.DirectedReply{
		"more transactions than asked":    {Status: ok, Done: 3, Bytes: 128},
		"more transactions, and failed":   {Status: failed, Done: 3, Bytes: 128},
		"success for a part":              {Status: ok, Done: 1, Bytes: 128},
		"a failure after everything":      {Status: failed, Done: 2, Bytes: 128},
		"more bytes than asked":           {Status: ok, Done: 2, Bytes: 129},
		"fewer bytes than is claimed":     {Status: failed, Done: 1, Bytes: 63},
		"a byte of a transaction too far": {Status: failed, Done: 0, Bytes: 65},
	} {
		forge := func(_ *Link, _ protocol.Function, b []byte) ([]byte, error) {
			q, err := protocol.DecodeDirectedRequest(b)
			claim.TransactionContext = q.TransactionContext
			return protocol.AppendDirectedReply(nil, claim), err
		}
		ask := func(r *fixture) error {
			_, source := r.memory(r.toOwner, 64, Source)
			write := Transaction{Operation: protocol.DirectedWrite, Source: buffer(source, 0, 64)}
			return r.toOwner.Do(t.Context(), Request{tapeDevice, []Transaction{write, write}})
		}
		t.Run(name+", by the I/O unit", func(t *testing.T) {
			r := newFixture(t, inMemory)
			r.owner.answer = forge
			r.stopped(ask(r), StatusError{Status: failed})
			if err := r.unit.Err(); !errors.Is(err, ErrProtocol) {
				t.Errorf("the owner's link with the I/O unit: %v", err)
			}
		})
		t.Run(name+", by the owner", func(t *testing.T) {
			r := newFixture(t, inMemory)
			r.requester.answer = forge
			if err := ask(r); !errors.Is(err, ErrProtocol) {
				t.Errorf("the requester gets %v", err)
			}
			if err := r.toOwner.Err(); !errors.Is(err, ErrProtocol) {
				t.Errorf("the requester's link with the owner: %v", err)
			}
		})
	}
}
