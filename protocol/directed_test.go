package protocol

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

var goldenEnd = DirectedEnd{
	BoundChannel: BoundChannel{QPN: 17, PSN: 0xabcdef, LID: 7, GID: [16]byte{0xfe, 0x80, 15: 1}}, MTU: 4096, Reads: 16,
}

// goldenDirected has the messages whose bytes are in testdata/golden-directed.
var goldenDirected = map[string]func() []byte{
	"request_read": func() []byte {
		return AppendDirectedRequest(nil, DirectedRequest{goldenTransaction, DirectedRead, 3, 0x1122334455, 0,
			goldenLists["list"]()})
	},
	"request_write_forwarded": func() []byte {
		return AppendDirectedRequest(nil, DirectedRequest{goldenTransaction, DirectedWrite, 0, 0, goldenPlatform,
			goldenLists["list_chained"]()})
	},
	"reply": func() []byte {
		return AppendDirectedReply(nil, DirectedReply{goldenTransaction, DirectedAccess, 1<<32 + 1})
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
	const request, reply, connect, connected, not = "request_read", "reply", "connect", "connected", "connected_not"
	of := func(name string) []byte { return directedGolden(t, name) }
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
		{"request cut", of(request)[:directedListAt-1], ErrShort},
		{"request without a list", of(request)[:directedListAt], ErrShort},
		{"operation 0", at[uint32](of(request), 12, 0), ErrFunction},
		{"operation 3", at[uint32](of(request), 12, 3), ErrFunction},
		{"offset and bytes wrap", at[uint64](of(request), 20, 1<<63-1), ErrOverflow},
		{"offset is negative", at[uint64](of(request), 20, 1<<63), ErrOverflow},
		{"list malformed", at[uint16](of(request), directedListAt+4, 33), ErrSize},
		{"list longer", append(of(request), 0, 0, 0, 0), ErrTrailing},
		{"reply cut", of(reply)[:23], ErrShort},
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
	for s := DirectedOK; s <= DirectedFailed+1; s++ {
		if s.String() == "" || (s == DirectedFailed+1) != (s.String() == DirectedFailed.String() && s != DirectedFailed) {
			t.Errorf("status %d is %q", s, s)
		}
	}
}

// FuzzDirected fuzzes the decoders of all four messages.
func FuzzDirected(f *testing.F) {
	for name := range goldenDirected {
		f.Add(directedGolden(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := reencodeDirected(b); err == nil && !bytes.Equal(got, b) {
			t.Errorf("accepted %x\nencoded again %x", b, got)
		}
	})
}
