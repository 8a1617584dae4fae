package protocol

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestImmDataBits(t *testing.T) {
	// The example of source document 001: pool 7, element 5, 256 bytes.
	if got := PackImm(7, 5, 256); got != 0x07050100 {
		t.Errorf("got %#08x", uint32(got))
	}
}

func TestWRIDBits(t *testing.T) {
	if got := PackWRID(WRDataRecv, 0x12, 0x3456, 0x789abcde); got != 0x04123456789abcde {
		t.Errorf("got %#016x", uint64(got))
	}
}

func TestPoolContext(t *testing.T) {
	p := Pool{Context: PoolContext(513, 1<<48-1)}
	if p.Channel() != 513 || p.Context>>16 != 1<<48-1 {
		t.Errorf("context %#x, channel %d", p.Context, p.Channel())
	}
}

func TestUpdateRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var want []PoolReturn
		room := MaxControlSize - HeaderSize
		for {
			p := PoolReturn{Pool: r.Uint32(), Elements: make([]uint16, 1+r.IntN(256))}
			if room -= PoolReturnSize(len(p.Elements)); room < 0 {
				break
			}
			for i := range p.Elements {
				p.Elements[i] = uint16(r.Uint32())
			}
			want = append(want, p)
		}
		transaction := r.Uint64()
		m, err := DecodeBufferRecvPoolUpdate(AppendBufferRecvPoolUpdate(nil, transaction, want...))
		if err != nil {
			t.Fatal(err)
		}
		if m.TransactionContext != transaction {
			t.Fatalf("transaction context %#x, want %#x", m.TransactionContext, transaction)
		}
		n := 0
		for it := m.Returns(); it.Next(); n++ {
			var elements []uint16
			for i := range it.Len() {
				elements = append(elements, it.Element(i))
			}
			if n >= len(want) || it.Pool() != want[n].Pool || !slices.Equal(elements, want[n].Elements) {
				t.Fatalf("return %d is pool %d %v", n, it.Pool(), elements)
			}
		}
		if n != len(want) {
			t.Fatalf("%d returns, want %d", n, len(want))
		}
	}
}

func TestPoolRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		want := make([]Pool, 1+r.IntN(MaxPoolsPerMessage))
		for i := range want {
			want[i] = Pool{
				Ref:         r.Uint32N(MaxPoolRef + 1),
				Elements:    1 + r.Uint32N(MaxPoolElements),
				ElementSize: MinElementSize + r.Uint32N(1<<20),
				RKey:        r.Uint32(),
				Addr:        r.Uint64N(1 << 57),
				Context:     PoolContext(1+uint16(r.UintN(1<<16-1)), r.Uint64()),
			}
		}
		m, err := DecodeBufferRecvPool(AppendBufferRecvPool(nil, 1, want...))
		if err != nil {
			t.Fatal(err)
		}
		if m.Len() != len(want) {
			t.Fatalf("%d pools, want %d", m.Len(), len(want))
		}
		for i, p := range want {
			if m.At(i) != p {
				t.Fatalf("pool %d is %+v, want %+v", i, m.At(i), p)
			}
		}
	}
}

func TestDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, MaxControlSize)
	elements := make([]uint16, 256)
	for i := range elements {
		elements[i] = uint16(255 - i)
	}
	returns := []PoolReturn{{1, elements}, {2, elements[:7]}, {3, elements}}
	pools := []Pool{{Ref: 1, Elements: 256, ElementSize: 2048, Context: 1},
		{Ref: 2, Elements: 16, ElementSize: 65536, Context: 1}}
	indications := []Indication{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}
	get := BufferRecvPoolGet{TransactionContext: 1, ElementSize: 64, Elements: 1, Channel: 1}
	poolKeys := []uint32{0x100, 0x1ff}
	vlan := vlans(7)
	message := make([]byte, SendDataOverhead+1500)
	keepAlive := AppendCfgUtilRequest(nil, CfgUtilRequest{Type: CfgKeepAlive})

	for name, f := range map[string]func() bool{
		"append update": func() bool {
			return len(AppendBufferRecvPoolUpdate(buf, 1, returns...)) > HeaderSize
		},
		"decode update": func() bool {
			m, err := DecodeBufferRecvPoolUpdate(AppendBufferRecvPoolUpdate(buf, 1, returns...))
			sum := 0
			for r := m.Returns(); r.Next(); {
				for i := range r.Len() {
					sum += int(r.Element(i))
				}
			}
			return err == nil && sum == 2*255*128+255*7-21
		},
		"decode pools": func() bool {
			m, err := DecodeBufferRecvPool(AppendBufferRecvPool(buf, 1, pools...))
			return err == nil && m.At(1) == pools[1]
		},
		"send data": func() bool {
			PutSendData(message, 9, 1500)
			m, err := DecodeSendData(message)
			return err == nil && m.TransactionContext == 9 && len(m.Data) == 1500
		},
		"indications": func() bool {
			m, err := DecodeBufferRDMAIndicate(AppendBufferRDMAIndicate(buf, 1, indications...))
			return err == nil && m.Len() == 3 && m.At(2) == indications[2]
		},
		"get": func() bool {
			m, err := DecodeBufferRecvPoolGet(AppendBufferRecvPoolGet(buf, get))
			return err == nil && m == get
		},
		"sent": func() bool {
			m, err := DecodeSent(AppendSent(buf, Sent{1, 2}))
			return err == nil && m == Sent{1, 2}
		},
		"arrived": func() bool {
			m, err := DecodeMarkerNonce(AppendMarkerNonce(buf, MarkerNonce{1, 15: 2}))
			return err == nil && m == MarkerNonce{1, 15: 2}
		},
		"pool keys": func() bool {
			m, err := DecodePoolKeys(AppendPoolKeys(buf, 7, 5, poolKeys))
			return err == nil && m.Pool == 7 && m.First == 5 && m.Len() == 2 && m.At(1) == 0x1ff && NextKey(m.At(1)) == 0x100
		},
		"vlan": func() bool {
			return vlan.Has(7) && !vlan.Has(8) && CanImm(1, 2, 3)
		},
		"decode keep-alive": func() bool {
			m, err := DecodeCfgUtilRequest(keepAlive)
			return err == nil && DecodeKeepAlive(m.Data) == nil
		},
		"append keep-alive": func() bool {
			return len(AppendCfgUtilReply(buf, CfgUtilReply{Type: CfgKeepAlive})) == cfgReplySize
		},
		"immediate data": func() bool {
			p, e, l := PackImm(1, 2, 3).Unpack()
			return p == 1 && e == 2 && l == 3
		},
		"work request identifier": func() bool {
			_, _, index, _ := PackWRID(WRDataWrite, 1, 2, 3).Unpack()
			return index == 2
		},
	} {
		ok := true
		if n := testing.AllocsPerRun(100, func() { ok = ok && f() }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if !ok {
			t.Errorf("%s: wrong result", name)
		}
	}
}

func BenchmarkDecodeUpdate(b *testing.B) {
	elements := make([]uint16, 64)
	message := AppendBufferRecvPoolUpdate(nil, 1, PoolReturn{1, elements})
	b.SetBytes(int64(len(message)))
	b.ReportAllocs()
	for b.Loop() {
		m, err := DecodeBufferRecvPoolUpdate(message)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for r := m.Returns(); r.Next(); {
			for i := range r.Len() {
				n += int(r.Element(i))
			}
		}
		if n != 0 {
			b.Fatal(n)
		}
	}
}

func FuzzPoolReturnsStayInside(f *testing.F) {
	f.Add(uint32(1), []byte{0, 1})
	f.Fuzz(func(t *testing.T, count uint32, elements []byte) {
		b := appendHeader(nil, FuncBufferRecvPoolUpdate, 0)
		b = binary.BigEndian.AppendUint32(b, 1)
		b = binary.BigEndian.AppendUint32(b, count)
		b = append(b, elements...)
		m, err := DecodeBufferRecvPoolUpdate(b)
		if err != nil {
			return
		}
		read := 0
		for r := m.Returns(); r.Next(); {
			for i := range r.Len() {
				_ = r.Element(i)
				read += 2
			}
		}
		if read > len(elements) {
			t.Errorf("read %d bytes of elements from %d", read, len(elements))
		}
	})
}
