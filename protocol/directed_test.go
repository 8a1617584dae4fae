package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var goldenEnd = DirectedEnd{
	BoundChannel: BoundChannel{QPN: 17, PSN: 0xabcdef, LID: 7, GID: [16]byte{0xfe, 0x80, 15: 1}}, MTU: 4096, Reads: 16,
}

// goldenDirected has the messages whose bytes are in testdata/golden-directed.
var goldenDirected = map[string]func() []byte{
	"request_write": func() []byte {
		return AppendDirectedRequest(nil, DirectedRequest{goldenTransaction, 3, 0, []DirectedTransaction{
			{DirectedWrite, 0x1122334455, DirectedBuffers{2, 69642}, DirectedBuffers{}},
		}, goldenLists["list"]()})
	},
	"request_read_forwarded": func() []byte {
		return AppendDirectedRequest(nil, DirectedRequest{goldenTransaction, 0, goldenPlatform, []DirectedTransaction{
			{DirectedRead, 0, DirectedBuffers{}, DirectedBuffers{2, 139266}},
		}, goldenLists["list_chained"]()})
	},
	"request_transactions": func() []byte {
		return AppendDirectedRequest(nil, DirectedRequest{goldenTransaction, 3, goldenPlatform, []DirectedTransaction{
			{DirectedExchange, 7, DirectedBuffers{1, 30}, DirectedBuffers{1, 30}},
			{DirectedWrite, 1 << 40, DirectedBuffers{1, 94}, DirectedBuffers{}},
			{DirectedExchange, 1<<63 - 1, DirectedBuffers{}, DirectedBuffers{}},
		}, goldenLists["list_named"]()})
	},
	"request_no_list": func() []byte {
		return AppendDirectedRequest(nil, DirectedRequest{goldenTransaction, 3, 0, []DirectedTransaction{
			{DirectedExchange, 0x1122334455, DirectedBuffers{}, DirectedBuffers{}},
		}, nil})
	},
	"reply": func() []byte {
		return AppendDirectedReply(nil, DirectedReply{goldenTransaction, DirectedAccess, 2, 1<<32 + 1})
	},
	"connect": func() []byte {
		return AppendDirectedConnect(nil, DirectedConnect{goldenTransaction, goldenOther, goldenPlatform, goldenPlatform,
			goldenEnd})
	},
	"connected": func() []byte {
		return AppendDirectedConnected(nil, DirectedConnected{goldenTransaction, DirectedOK, goldenEnd})
	},
	"connected_not": func() []byte {
		return AppendDirectedConnected(nil, DirectedConnected{goldenTransaction, DirectedUnreachable, DirectedEnd{}})
	},
}

func directedGolden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden-directed", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reencodeDirected decodes b with the decoder of b's function, and encodes the result.
func reencodeDirected(b []byte) ([]byte, error) {
	f, err := DecodeDirectedFunction(b)
	if err != nil {
		return nil, err
	}
	switch f {
	case FuncDirectedRequest:
		m, err := DecodeDirectedRequest(b)
		return AppendDirectedRequest(nil, m), err
	case FuncDirectedReply:
		m, err := DecodeDirectedReply(b)
		return AppendDirectedReply(nil, m), err
	case FuncDirectedConnect:
		m, err := DecodeDirectedConnect(b)
		return AppendDirectedConnect(nil, m), err
	case FuncDirectedConnected:
		m, err := DecodeDirectedConnected(b)
		return AppendDirectedConnected(nil, m), err
	default:
		panic("DecodeDirectedFunction let " + f.String() + " pass")
	}
}

func TestGoldenDirected(t *testing.T) {
	for name, message := range goldenDirected {
		want, got := directedGolden(t, name), message()
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\ngot  %x\nwant %x", name, got, want)
		}
		if again, err := reencodeDirected(want); err != nil || !bytes.Equal(again, want) {
			t.Errorf("%s, decoded and encoded again: %v\ngot  %x\nwant %x", name, err, again, want)
		}
		if _, err := DecodeHeader(want); !errors.Is(err, ErrFunction) {
			t.Errorf("%s on the control channel of a session: %v", name, err)
		}
	}
}

func TestDirectedRefuses(t *testing.T) {
	const request, several, chained, none = "request_write", "request_transactions", "request_read_forwarded",
		"request_no_list"
	const reply, connect, connected, not = "reply", "connect", "connected", "connected_not"
	const (
		first  = directedTransactionsAt
		second = first + directedTransactionSize
		third  = second + directedTransactionSize
		after  = third + directedTransactionSize
		// Offsets in a transaction.
		sources, results, offset, sourceBytes, resultBytes = 4, 6, 8, 16, 24
	)
	of := func(name string) []byte { return directedGolden(t, name) }
	empty := make([]byte, directedTransactionSize)
	binary.BigEndian.PutUint32(empty, uint32(DirectedExchange))
	many := func(count int) []byte { // of transactions without buffers
		return at(append(of(none)[:first:first], bytes.Repeat(empty, count)...), 16, uint32(count))
	}
	exchange := func(source, results uint32) []byte {
		list := []ListElement{
			{Fragment: Fragment{goldenOther, 1, 0, source}, EndOfBuffer: true},
			{Fragment: Fragment{goldenOther, 1, 0, results}, EndOfBuffer: true},
		}
		a := AttributesOf(list)
		return AppendDirectedRequest(nil, DirectedRequest{Transactions: []DirectedTransaction{
			{DirectedExchange, 0, DirectedBuffers{1, uint64(source)}, DirectedBuffers{1, uint64(results)}},
		}, List: AppendListSequence(nil, &a, nil, list)})
	}
	dataForResults, err := DecodeDirectedRequest(of(request))
	if err != nil {
		t.Fatal(err)
	}
	write := dataForResults.Transactions[0]
	dataForResults.Transactions = []DirectedTransaction{{Operation: DirectedRead, Results: write.Source}}
	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"too long", append(of(request), make([]byte, MaxControlSize)...), ErrLong},
		{"version", at[uint16](of(reply), 2, 2), ErrVersion},
		{"a session's function", at[uint16](of(reply), 0, uint16(FuncCfgUtilReply)), ErrFunction},
		{"function unknown", at[uint16](of(reply), 0, 14), ErrFunction},
		{"request cut", of(request)[:first-1], ErrShort},
		{"request without a transaction", of(request)[:first], ErrShort},
		{"transactions cut", of(several)[:after-1], ErrShort},
		{"request without a list", of(request)[:second], ErrShort},
		{"no transaction", at[uint32](of(request), 16, 0), ErrCount},
		{"as many transactions as there can be", many(MaxDirectedTransactions), nil},
		{"a transaction more", many(MaxDirectedTransactions + 1), ErrCount},
		{"2^32-1 transactions", at[uint32](of(request), 16, math.MaxUint32), ErrCount},
		{"a transaction more than there is", at[uint32](of(several), 16, 4), ErrCount},
		{"a transaction less than there is", at[uint32](of(several), 16, 2), ErrSize},
		{"operation 0", at[uint32](of(request), first, 0), ErrFunction},
		{"operation 4", at[uint32](of(several), third, 4), ErrFunction},
		{"offset and bytes wrap", at[uint64](of(request), first+offset, 1<<63-1), ErrOverflow},
		{"offset is negative", at[uint64](of(several), third+offset, 1<<63), ErrOverflow},
		{"a read of source data", at(of(request), first, uint32(DirectedRead)), ErrCount},
		{"a read with source data", at(of(several), first, uint32(DirectedRead)), ErrCount},
		{"a read of nothing", at(of(none), first, uint32(DirectedRead)), ErrCount},
		{"a write of results", at(of(several), first, uint32(DirectedWrite)), ErrCount},
		{"a write of nothing", at(of(several), third, uint32(DirectedWrite)), ErrCount},
		{"buffers of no bytes", at[uint16](of(several), third+results, 1), ErrSize},
		{"bytes of no buffers", at[uint64](of(several), third+sourceBytes, 1), ErrCount},
		{"more bytes than a list can have", at[uint64](of(several), first+resultBytes, maxListBytes+1), ErrOverflow},
		{"the largest exchange", exchange(MaxDirectedExchange-30, 30), nil},
		{"a larger exchange", exchange(MaxDirectedExchange-30, 31), ErrSize},
		{"fewer source buffers than in the list", at[uint16](of(request), first+sources, 1), ErrCount},
		{"more source buffers than in the list", at[uint16](of(request), first+sources, 3), ErrCount},
		{"fewer result buffers than in the list", at[uint16](of(chained), first+results, 1), ErrCount},
		{"more bytes than in the list", at[uint64](of(request), first+sourceBytes, 69643), ErrSize},
		{"fewer bytes than in the list", at[uint64](of(chained), first+resultBytes, 139265), ErrSize},
		{"bytes of another transaction", at[uint64](at[uint64](of(several), first+resultBytes, 31), second+sourceBytes, 93),
			ErrSize},
		{"bytes of the other side", at[uint64](at[uint64](of(several), first+sourceBytes, 29), first+resultBytes, 31),
			ErrSize},
		{"a list of no buffers", append(of(none), of(request)[second:]...), ErrCount},
		{"data for results", AppendDirectedRequest(nil, dataForResults), ErrElement},
		{"list malformed", at[uint16](of(request), second+4, 33), ErrSize},
		{"list longer", append(of(request), 0, 0, 0, 0), ErrTrailing},
		{"reply cut", of(reply)[:27], ErrShort},
		{"reply longer", append(of(reply), 0), ErrTrailing},
		{"connect cut", of(connect)[:67], ErrShort},
		{"connect longer", append(of(connect), 0), ErrTrailing},
		{"connect from nobody", at[uint64](of(connect), 12, 0), ErrPlatform},
		{"connect to nobody", at[uint64](of(connect), 20, 0), ErrPlatform},
		{"connect for nobody", at[uint64](of(connect), 28, 0), ErrPlatform},
		{"queue pair 0", at[uint32](of(connect), 36, 0), ErrSize},
		{"queue pair of 25 bits", at[uint32](of(connect), 36, 1<<24), ErrSize},
		{"sequence number of 25 bits", at[uint32](of(connect), 40, 1<<24), ErrSize},
		{"MTU 0", at[uint16](of(connect), 46, 0), ErrSize},
		{"MTU 1500", at[uint16](of(connect), 46, 1500), ErrSize},
		{"256 reads", at[uint16](of(connect), 64, 256), ErrCount},
		{"padding", at[uint16](of(connect), 66, 1), ErrPadding},
		{"connected cut", of(connected)[:47], ErrShort},
		{"connected to queue pair 1", at[uint32](of(connected), 16, 1), ErrSize},
		{"not connected, with a queue pair", at[uint32](of(not), 16, 17), ErrReserved},
		{"not connected, with padding", at[uint16](of(not), 46, 1), ErrReserved},
	} {
		if _, err := reencodeDirected(tt.b); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want one that is %q", tt.name, err, tt.want)
		}
	}
	if _, err := DecodeDirectedReply(of(connect)); !errors.Is(err, ErrFunction) {
		t.Error(err)
	}
}

func TestDirectedStatusText(t *testing.T) {
	seen := make(map[string]bool)
	for s := DirectedOK; s <= DirectedUnsupported; s++ {
		if text := s.String(); text == "" || seen[text] {
			t.Errorf("status %d is %q", s, text)
		} else {
			seen[text] = true
		}
	}
	for _, s := range []DirectedStatus{DirectedUnsupported + 1, math.MaxUint32} {
		if s.String() != DirectedFailed.String() {
			t.Errorf("status %d is %q", s, s)
		}
	}
}

// TestMatchDirected compares a list of three buffers of 30, 30 and 94 bytes, the last one with data,
// with transactions. An owner sees the transactions and not the whole list, so that every difference
// has to be found.
func TestMatchDirected(t *testing.T) {
	var list ListDecoder
	if _, more, err := list.Add(goldenList(t, "list_named")); more || err != nil {
		t.Fatal(more, err)
	}
	of := func(source, results DirectedBuffers) DirectedTransaction {
		return DirectedTransaction{DirectedExchange, 0, source, results}
	}
	none := DirectedBuffers{}
	for _, tt := range []struct {
		name         string
		transactions []DirectedTransaction
		want         error
	}{
		{"one for all", []DirectedTransaction{of(DirectedBuffers{3, 154}, none)}, nil},
		{"one each", []DirectedTransaction{
			of(DirectedBuffers{1, 30}, none), of(none, DirectedBuffers{1, 30}), of(DirectedBuffers{1, 94}, none),
		}, nil},
		{"with transactions of no buffers", []DirectedTransaction{
			of(none, none), of(none, DirectedBuffers{2, 60}), of(none, none), of(DirectedBuffers{1, 94}, none), of(none, none),
		}, nil},
		{"a buffer too few", []DirectedTransaction{of(DirectedBuffers{2, 60}, none)}, ErrTrailing},
		{"a buffer too many", []DirectedTransaction{of(DirectedBuffers{3, 154}, DirectedBuffers{1, 1})}, ErrCount},
		{"no buffers", []DirectedTransaction{of(none, none)}, ErrTrailing},
		{"bytes of the other side", []DirectedTransaction{
			of(DirectedBuffers{1, 31}, DirectedBuffers{1, 29}), of(DirectedBuffers{1, 94}, none),
		}, ErrSize},
		{"bytes of another transaction", []DirectedTransaction{
			of(DirectedBuffers{2, 61}, none), of(DirectedBuffers{1, 93}, none),
		}, ErrSize},
		{"data for results", []DirectedTransaction{of(DirectedBuffers{2, 60}, DirectedBuffers{1, 94})}, ErrElement},
	} {
		if err := MatchDirected(tt.transactions, &list); !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", tt.name, err, tt.want)
		}
	}
}

// TestDirectedReplySuits expects a reply to claim what the transactions of its request can have led to.
func TestDirectedReplySuits(t *testing.T) {
	q := DirectedRequest{Transactions: []DirectedTransaction{
		{DirectedRead, 0, DirectedBuffers{}, DirectedBuffers{1, 100}},
		{DirectedExchange, 0, DirectedBuffers{1, 20}, DirectedBuffers{1, 10}},
		{DirectedWrite, 0, DirectedBuffers{2, 50}, DirectedBuffers{}},
	}}
	const ok, failed = DirectedOK, DirectedFailed
	for _, tt := range []struct {
		status DirectedStatus
		done   uint32
		bytes  uint64
		want   error
	}{
		{ok, 3, 180, nil}, {failed, 0, 0, nil}, {failed, 0, 100, nil}, {failed, 1, 100, nil}, {failed, 1, 129, nil},
		{failed, 2, 130, nil}, {failed, 2, 180, nil}, {77, 2, 130, nil},
		{ok, 4, 180, ErrCount}, {failed, 4, 180, ErrCount}, {failed, math.MaxUint32, 180, ErrCount},
		{ok, 2, 180, ErrCount}, {ok, 0, 0, ErrCount}, {failed, 3, 180, ErrCount}, {77, 3, 180, ErrCount},
		{ok, 3, 181, ErrSize}, {ok, 3, 179, ErrSize}, {failed, 1, 99, ErrSize}, {failed, 1, 131, ErrSize},
		{failed, 2, 181, ErrSize}, {failed, 0, math.MaxUint64, ErrSize},
	} {
		r := DirectedReply{Status: tt.status, Done: tt.done, Bytes: tt.bytes}
		if err := r.Suits(&q); !errors.Is(err, tt.want) {
			t.Errorf("%v, %d transactions, %d bytes: got error %v, want %v", tt.status, tt.done, tt.bytes, err, tt.want)
		}
	}
}

// FuzzDirected fuzzes the decoders of all four messages, and requests whose list continues in
// another sequence.
func FuzzDirected(f *testing.F) {
	for name := range goldenDirected {
		f.Add(directedGolden(f, name), goldenList(f, "list_rest"))
	}
	f.Fuzz(func(t *testing.T, b, rest []byte) {
		got, err := reencodeDirected(b)
		if err != nil {
			return
		}
		if !bytes.Equal(got, b) {
			t.Errorf("accepted %x\nencoded again %x", b, got)
		}
		r, err := DecodeDirectedRequest(b)
		if err != nil || len(r.List) == 0 {
			return
		}
		list := ListDecoder{Local: goldenPlatform}
		_, more, err := list.Add(r.List)
		if err == nil && more {
			if _, more, err = list.Add(rest); err == nil {
				err = MatchDirected(r.Transactions, &list)
			}
		}
		if !more && err == nil {
			sameBuffers(t, r.Transactions, &list)
		}
	})
}

// sameBuffers expects a list to have exactly the buffers of the transactions.
func sameBuffers(t *testing.T, transactions []DirectedTransaction, list *ListDecoder) {
	t.Helper()
	var want, got []DirectedBuffers // of one transaction after the other
	var results []bool
	for _, q := range transactions {
		want = append(want, q.Source, q.Results)
		results = append(results, false, true)
	}
	got = make([]DirectedBuffers, len(want))
	i := 0
	for e := range list.Elements() {
		for i < len(want) && got[i].Count == want[i].Count {
			i++
		}
		if i == len(want) || e.Data != nil && results[i] {
			t.Fatalf("an element of no buffer, or with data for results: %+v, of %+v", e, transactions)
		}
		got[i].Bytes += uint64(e.Bytes())
		if e.EndOfBuffer {
			got[i].Count++
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the list has %+v, the transactions are %+v", got, transactions)
	}
}
