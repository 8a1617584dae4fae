package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// with returns a copy of a golden message with v, big-endian, at offset at.
func with[V uint16 | uint32 | uint64](t *testing.T, name string, at int, v V) []byte {
	t.Helper()
	b := golden(t, name)
	switch v := any(v).(type) {
	case uint16:
		binary.BigEndian.PutUint16(b[at:], v)
	case uint32:
		binary.BigEndian.PutUint32(b[at:], v)
	case uint64:
		binary.BigEndian.PutUint64(b[at:], v)
	}
	return b
}

func TestDecodersRefuse(t *testing.T) {
	const (
		pool    = "buffer_recv_pool"
		update  = "buffer_recv_pool_update"
		flush   = "buffer_pool_flush_request"
		request = "cfg_util_request_mac"
		reply   = "cfg_util_reply_mtu"
		get     = "buffer_recv_pool_get"
		send    = "send_data"
		written = "buffer_rdma_indicate"
	)
	over := AppendBufferPoolFlushRequest(nil, 0, make([]uint32, MaxFlushPools+1)...)

	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"nothing", nil, ErrShort},
		{"half a header", golden(t, pool)[:11], ErrShort},
		{"too long", over, ErrLong},
		{"version", with[uint16](t, pool, 2, 2), ErrVersion},
		{"earlier version", with[uint16](t, pool, 2, 0), ErrVersion},
		{"function zero", with[uint16](t, pool, 0, 0), ErrFunction},
		{"function unknown", with[uint16](t, pool, 0, 10), ErrFunction},

		{"no pools", golden(t, pool)[:HeaderSize], ErrCount},
		{"pool cut", golden(t, pool)[:HeaderSize+63], ErrShort},
		{"pool without elements", with[uint32](t, pool, 16, 0), ErrCount},
		{"pool with too many elements", with[uint32](t, pool, 16, 65537), ErrCount},
		{"elements too small", with[uint32](t, pool, 20, 63), ErrSize},
		{"address wraps", with[uint64](t, pool, 28, math.MaxUint64-256*2048+1), ErrOverflow},
		{"second pool's address wraps", with[uint64](t, pool, 60, math.MaxUint64), ErrOverflow},
		{"control channel's pool", with[uint64](t, pool, 36, 0xAB0000), ErrChannel},

		{"no returns", golden(t, update)[:HeaderSize], ErrCount},
		{"return cut", golden(t, update)[:HeaderSize+7], ErrShort},
		{"return of nothing", AppendBufferRecvPoolUpdate(nil, 0, PoolReturn{Pool: 1}), ErrCount},
		{"return of too many", with[uint32](t, update, 16, 65537), ErrCount},
		{"return of 2^32-1", with[uint32](t, update, 16, math.MaxUint32), ErrCount},
		{"return longer than message", with[uint32](t, update, 16, 15), ErrShort},
		{"last return cut", golden(t, update)[:len(golden(t, update))-1], ErrShort},
		{"padding", with[uint16](t, update, 26, 1), ErrPadding},

		{"get cut", golden(t, get)[:23], ErrShort},
		{"get longer", append(golden(t, get), 0), ErrTrailing},
		{"get of elements too small", with[uint32](t, get, 12, 63), ErrSize},
		{"get of no elements", with[uint32](t, get, 16, 0), ErrCount},
		{"get of too many elements", with[uint32](t, get, 16, 65537), ErrCount},
		{"get for the control channel", with[uint32](t, get, 20, 0), ErrChannel},
		{"get for a channel beyond all", with[uint32](t, get, 20, 65536), ErrChannel},

		{"send cut", golden(t, send)[:15], ErrShort},
		{"send without a header", golden(t, send)[:11], ErrShort},
		{"send too long", sendData(0, make([]byte, maxData+1)), ErrLong},
		{"send of another version", with[uint16](t, send, 2, 2), ErrVersion},
		{"send of nothing", sendData(0, nil), ErrSize},
		{"send of more than a sealed frame", with[uint32](t, send, 12, maxData+1), ErrSize},
		{"send of 2^32-1", with[uint32](t, send, 12, math.MaxUint32), ErrSize},
		{"send data cut", golden(t, send)[:39], ErrShort},
		{"send data longer", append(golden(t, send), 0), ErrTrailing},

		{"no indications", golden(t, written)[:HeaderSize], ErrCount},
		{"indication cut", golden(t, written)[:HeaderSize+13], ErrShort},
		{"indications too many",
			AppendBufferRDMAIndicate(nil, 0, make([]Indication, MaxIndications+1)...), ErrLong},

		{"no references", golden(t, flush)[:HeaderSize], ErrCount},
		{"reference cut", golden(t, flush)[:HeaderSize+3], ErrShort},
		{"reply with body", append(golden(t, "buffer_pool_flush_reply"), 0), ErrTrailing},

		{"request cut", golden(t, request)[:19], ErrShort},
		{"request data cut", golden(t, request)[:25], ErrShort},
		{"request data longer", append(golden(t, request), 0), ErrTrailing},
		{"request data huge", with[uint32](t, request, 16, math.MaxUint32), ErrSize},
		{"request more than a reply holds",
			AppendCfgUtilRequest(nil, CfgUtilRequest{Data: make([]byte, MaxCfgData+1)}), ErrSize},
		{"reply cut", golden(t, reply)[:23], ErrShort},
		{"reply data cut", golden(t, reply)[:27], ErrShort},
		{"reply data longer", append(golden(t, reply), 0), ErrTrailing},
		{"reply data huge", with[uint32](t, reply, 20, 1<<31), ErrSize},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := reencode(tt.b); !errors.Is(err, tt.want) {
				t.Errorf("got error %v, want one that is %q", err, tt.want)
			}
		})
	}
}

func TestDecodersRefuseOtherFunctions(t *testing.T) {
	decoders := map[Function]func([]byte) error{
		FuncBufferRecvPool:         func(b []byte) error { _, err := DecodeBufferRecvPool(b); return err },
		FuncBufferRecvPoolUpdate:   func(b []byte) error { _, err := DecodeBufferRecvPoolUpdate(b); return err },
		FuncBufferPoolFlushRequest: func(b []byte) error { _, err := DecodeBufferPoolFlushRequest(b); return err },
		FuncBufferPoolFlushReply:   func(b []byte) error { _, err := DecodeBufferPoolFlushReply(b); return err },
		FuncCfgUtilRequest:         func(b []byte) error { _, err := DecodeCfgUtilRequest(b); return err },
		FuncBufferRecvPoolGet:      func(b []byte) error { _, err := DecodeBufferRecvPoolGet(b); return err },
		FuncSendData:               func(b []byte) error { _, err := DecodeSendData(b); return err },
		FuncBufferRDMAIndicate:     func(b []byte) error { _, err := DecodeBufferRDMAIndicate(b); return err },
		FuncCfgUtilReply:           func(b []byte) error { _, err := DecodeCfgUtilReply(b); return err },
	}
	for name := range goldenMessages {
		b := golden(t, name)
		h, err := DecodeHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		for f, decode := range decoders {
			if err := decode(b); f == h.Function && err != nil || f != h.Function && !errors.Is(err, ErrFunction) {
				t.Errorf("decoder of %v got %s: %v", f, name, err)
			}
		}
	}
}

func TestLargestMessages(t *testing.T) {
	pools := make([]Pool, MaxPoolsPerMessage)
	for i := range pools {
		pools[i] = Pool{Elements: 1, ElementSize: 64, Context: 1}
	}
	full := make([]uint16, 256)
	for name, b := range map[string][]byte{
		"pools": AppendBufferRecvPool(nil, 0, pools...),
		"seven whole pools": AppendBufferRecvPoolUpdate(nil, 0,
			PoolReturn{0, full}, PoolReturn{1, full}, PoolReturn{2, full}, PoolReturn{3, full},
			PoolReturn{4, full}, PoolReturn{5, full}, PoolReturn{6, full}),
		"send":     sendData(0, make([]byte, maxData)),
		"indicate": AppendBufferRDMAIndicate(nil, 0, make([]Indication, MaxIndications)...),
		"flush":    AppendBufferPoolFlushRequest(nil, 0, make([]uint32, MaxFlushPools)...),
		"request":  AppendCfgUtilRequest(nil, CfgUtilRequest{Data: make([]byte, MaxCfgData)}),
		"reply":    AppendCfgUtilReply(nil, CfgUtilReply{Data: make([]byte, MaxCfgData)}),
	} {
		if _, err := reencode(b); err != nil {
			t.Errorf("%s, %d bytes: %v", name, len(b), err)
		}
	}
}

func TestPoolReturnSize(t *testing.T) {
	for n := range 300 {
		b := AppendBufferRecvPoolUpdate(nil, 0, PoolReturn{1, make([]uint16, n)})
		if got, want := HeaderSize+PoolReturnSize(n), len(b); got != want {
			t.Fatalf("%d elements: size %d, encoded %d", n, got, want)
		}
	}
}

func TestPoolValid(t *testing.T) {
	good := Pool{Ref: 255, Elements: 256, ElementSize: 65536, Addr: math.MaxUint64 - 256*65536, Context: 1}
	for _, tt := range []struct {
		name   string
		change func(*Pool)
		want   error
	}{
		{"good", func(*Pool) {}, nil},
		{"smallest", func(p *Pool) { p.Ref, p.Elements, p.ElementSize = 0, 1, 64 }, nil},
		{"wraps by a byte", func(p *Pool) { p.Addr++ }, ErrOverflow},
		{"product needs 49 bits", func(p *Pool) { p.Elements, p.ElementSize, p.Addr = 1<<16, math.MaxUint32, 0 }, nil},
		{"product of 33 bits wraps", func(p *Pool) { p.Elements, p.Addr = 1<<16, math.MaxUint64-1<<32+1 }, ErrOverflow},
		{"largest reference", func(p *Pool) { p.Ref = MaxPoolRef }, nil},
		{"reference of 32 bits", func(p *Pool) { p.Ref = MaxPoolRef + 1 }, ErrPool},
		{"65537 elements", func(p *Pool) { p.Elements, p.Addr = 65537, 0 }, ErrCount},
		{"no channel", func(p *Pool) { p.Context = 1 << 16 }, ErrChannel},
	} {
		p := good
		tt.change(&p)
		if err := p.Valid(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestCfgDataRefused(t *testing.T) {
	mac := func(b []byte) error { _, err := DecodeMAC(b); return err }
	mtu := func(b []byte) error { _, err := DecodeMTU(b); return err }
	link := func(b []byte) error { _, err := DecodeLinkState(b); return err }
	offloads := func(b []byte) error { _, err := DecodeOffloads(b); return err }
	filter := func(b []byte) error { _, err := DecodeReceiveFilter(b); return err }
	vlan := func(b []byte) error { _, err := DecodeVLANSet(b); return err }
	stats := func(b []byte) error { _, err := DecodeStatistics(b); return err }
	proof := func(b []byte) error { _, err := DecodeProof(b); return err }
	sent := func(b []byte) error { _, err := DecodeSent(b); return err }
	keys := func(b []byte) error { _, err := DecodePoolKeys(b); return err }
	arrived := func(b []byte) error { _, err := DecodeMarkerNonce(b); return err }
	reset := func(b []byte) error { return dataSize(CfgReset, b, 0) }
	for _, tt := range []struct {
		name   string
		decode func([]byte) error
		data   []byte
		want   error
	}{
		{"mac", mac, []byte{2, 0, 0, 0, 0, 1}, nil},
		{"mac short", mac, make([]byte, 5), ErrShort},
		{"mac long", mac, make([]byte, 7), ErrTrailing},
		{"mac zero", mac, make([]byte, 6), ErrMAC},
		{"mac multicast", mac, []byte{1, 0, 0x5e, 0, 0, 1}, ErrMAC},
		{"mac broadcast", mac, []byte{255, 255, 255, 255, 255, 255}, ErrMAC},
		{"mtu least", mtu, AppendMTU(nil, MinMTU), nil},
		{"mtu most", mtu, AppendMTU(nil, MaxMTU), nil},
		{"mtu too small", mtu, AppendMTU(nil, MinMTU-1), ErrSize},
		{"mtu too large", mtu, AppendMTU(nil, MaxMTU+1), ErrSize},
		{"mtu long", mtu, make([]byte, 5), ErrTrailing},
		{"link down", link, make([]byte, 8), nil},
		{"link short", link, make([]byte, 7), ErrShort},
		{"link reserved", link, []byte{0, 0, 0, 3, 0, 0, 0, 0}, ErrReserved},
		{"offloads unknown bit", offloads, []byte{0x80, 0, 0, 0}, nil},
		{"offloads long", offloads, make([]byte, 5), ErrTrailing},
		{"filter of everything", filter, AppendReceiveFilter(nil, ReceiveFilter{Promisc: true, AllMulti: true}), nil},
		{"filter with most addresses", filter, AppendReceiveFilter(nil,
			ReceiveFilter{Multicast: slices.Repeat(goldenFilter.Multicast[:1], MaxFilterAddresses)}), nil},
		{"filter with more addresses", filter, AppendReceiveFilter(nil,
			ReceiveFilter{Multicast: slices.Repeat(goldenFilter.Multicast[:1], MaxFilterAddresses+1)}), ErrCount},
		{"filter short", filter, make([]byte, 7), ErrShort},
		{"filter reserved", filter, []byte{0, 0, 0, 4, 0, 0, 0, 0}, ErrReserved},
		{"filter cut", filter, AppendReceiveFilter(nil, goldenFilter)[:25], ErrShort},
		{"filter longer", filter, append(AppendReceiveFilter(nil, goldenFilter), 0), ErrTrailing},
		{"filter with a group as unicast", filter, []byte{0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0x5e, 0, 0, 1}, ErrMAC},
		{"filter with zero as unicast", filter, []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, ErrMAC},
		{"filter with unicast as a group", filter, []byte{0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1}, ErrGroup},
		{"vlans none", vlan, make([]byte, 512), nil},
		{"vlans all", vlan, AppendVLANSet(nil, AllVLANs()), nil},
		{"vlans short", vlan, make([]byte, 511), ErrShort},
		{"vlans long", vlan, make([]byte, 513), ErrTrailing},
		{"vlan 0", vlan, append([]byte{1}, make([]byte, 511)...), ErrVLAN},
		{"vlan 4095", vlan, append(make([]byte, 511), 0x80), ErrVLAN},
		{"statistics none", stats, nil, nil},
		{"statistics cut", stats, make([]byte, 87), ErrShort},
		{"sent short", sent, make([]byte, 11), ErrShort},
		{"sent long", sent, make([]byte, 13), ErrTrailing},
		{"sent on the control channel", sent, make([]byte, 12), ErrChannel},
		{"sent on a channel beyond all", sent, AppendSent(nil, Sent{Channel: 65536}), ErrChannel},
		{"proof", proof, make([]byte, 32), nil},
		{"proof short", proof, make([]byte, 31), ErrShort},
		{"proof long", proof, make([]byte, 33), ErrTrailing},
		{"keys without head", keys, make([]byte, 7), ErrShort},
		{"nonce short", arrived, make([]byte, 15), ErrShort},
		{"nonce long", arrived, make([]byte, 17), ErrTrailing},
		{"no keys", keys, AppendPoolKeys(nil, 1, 0, nil), ErrCount},
		{"keys cut short", keys, AppendPoolKeys(nil, 1, 0, []uint32{1, 2})[:15], ErrShort},
		{"too many keys", keys, AppendPoolKeys(nil, 1, 0, make([]uint32, MaxPoolKeys+1)), ErrCount},
		{"keys of a reference of 32 bits", keys, AppendPoolKeys(nil, MaxPoolRef+1, 0, []uint32{1}), ErrPool},
		{"keys beyond the last element", keys, AppendPoolKeys(nil, 1, MaxPoolElements, []uint32{1}), ErrCount},
		{"keys across the last element", keys, AppendPoolKeys(nil, 1, MaxPoolElements-1, []uint32{1, 2}), ErrCount},
		{"keys from element 2^32-1", keys, AppendPoolKeys(nil, 1, 1<<32-1, []uint32{1, 2}), ErrCount},
		{"no data", reset, nil, nil},
		{"no data with data", reset, []byte{0}, ErrTrailing},
		{"keep-alive", DecodeKeepAlive, nil, nil},
		{"keep-alive with data", DecodeKeepAlive, []byte{0}, ErrTrailing},
	} {
		if err := tt.decode(tt.data); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestParseMAC(t *testing.T) {
	for s, want := range map[string]error{
		"02:00:5e:10:00:01":       nil,
		"02-00-5E-10-00-01":       nil,
		"ff:ff:ff:ff:ff:ff":       ErrMAC,
		"02:00:5e:10:00:01:00:00": ErrMAC,
		"02:00:5e:10:00":          ErrMAC,
		"01:00:5e:00:00:01":       ErrMAC,
		"eth0":                    ErrMAC,
		"":                        ErrMAC,
	} {
		m, err := ParseMAC(s)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", s, err, want)
		}
		if err == nil && m.String() != "02:00:5e:10:00:01" {
			t.Errorf("%q is %v", s, m)
		}
		if err != nil && (strings.Count(err.Error(), s) != 1 && s != "" || !strings.Contains(err.Error(), "six bytes")) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestCfgDataAsJSON(t *testing.T) {
	type config struct {
		MAC MAC `json:"mac"`
	}
	const text = `{"mac":"02:00:5e:10:00:01"}`
	want := config{MAC{2, 0, 0x5e, 0x10, 0, 1}}
	b, err := json.Marshal(want)
	if err != nil || string(b) != text {
		t.Errorf("encoded %s, %v", b, err)
	}
	var got config
	if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
		t.Errorf("decoded %+v, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`{"mac":"33:33:00:00:00:01"}`), &got); !errors.Is(err, ErrMAC) {
		t.Errorf("multicast address: %v", err)
	}
}
