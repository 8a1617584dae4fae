package protocol

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/splitnic/splitnic/vnet"
)

var (
	goldenMarker = Marker{
		Nonce: [16]byte{0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, Queue: 2, Queues: 3,
	}
	goldenMarkerBytes = "00000000000000000000" + "020000000002" + "020000000001" + "88b5" +
		"534e504d" + "01" + "00" + "0002" + "0003" + "a00102030405060708090a0b0c0d0e0f" +
		"0000000000000000000000000000000000000000"
)

func appendGoldenMarker() []byte {
	return AppendMarker(nil, MAC{2, 0, 0, 0, 0, 2}, MAC{2, 0, 0, 0, 0, 1}, &goldenMarker)
}

func TestMarker(t *testing.T) {
	b := appendGoldenMarker()
	if got := hex.EncodeToString(b); got != goldenMarkerBytes || len(b) != MarkerLen {
		t.Errorf("%s\nwant %s", got, goldenMarkerBytes)
	}
	if vnet.Check(b, 60) != nil {
		t.Error("a marker is not a frame")
	}
	if m, ok := DecodeMarker(append(b, 1, 2, 3)); !ok || m != goldenMarker {
		t.Errorf("%+v, %v", m, ok)
	}
	for _, tc := range []struct {
		name   string
		change func(b []byte) []byte
		is     bool
	}{
		{"another EtherType", func(b []byte) []byte { b[markerTypeAt+1]++; return b }, false},
		{"another use of it", func(b []byte) []byte { b[markerMagicAt]++; return b }, false},
		{"another version", func(b []byte) []byte { b[markerVersionAt]++; return b }, true},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }, true},
		{"cut in its beginning", func(b []byte) []byte { return b[:markerVersionAt-1] }, false},
		{"nothing", func([]byte) []byte { return nil }, false},
		{"no queues", func(b []byte) []byte { b[markerQueueAt+1], b[markerQueuesAt+1] = 0, 0; return b }, true},
		{"a queue too many", func(b []byte) []byte { b[markerQueueAt+1] = 3; return b }, true},
		{"too many queues", func(b []byte) []byte { b[markerQueuesAt] = 1; return b }, true},
		{"all queues", func(b []byte) []byte { b[markerQueuesAt], b[markerQueuesAt+1] = 255, 255; return b }, true},
	} {
		b := tc.change(appendGoldenMarker())
		if _, ok := DecodeMarker(b); ok || IsMarker(b) != tc.is {
			t.Errorf("%s: decoded %v, is a marker %v", tc.name, ok, IsMarker(b))
		}
	}
}

func FuzzMarker(f *testing.F) {
	b := appendGoldenMarker()
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(append(bytes.Clone(b), 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := DecodeMarker(b)
		if !ok {
			return
		}
		if !IsMarker(b) || m.Queue >= m.Queues || m.Queues > MaxMarkerQueues {
			t.Errorf("accepted %x as %+v", b, m)
		}
		if again, ok := DecodeMarker(AppendMarker(nil, MAC(b[vnet.HdrLen:]), MAC(b[vnet.HdrLen+6:]), &m)); !ok || again != m {
			t.Errorf("%+v encoded is %+v, %v", m, again, ok)
		}
	})
}
