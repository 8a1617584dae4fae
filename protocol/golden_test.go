package protocol

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/splitnic/splitnic/vnet"
)

const goldenTransaction = 0x0102030405060708

// goldenMessages has the messages whose bytes are in testdata/golden. These files define the
// format: they were not written by this package, and must never be generated from the code.
var goldenMessages = map[string]func() []byte{
	"buffer_recv_pool": func() []byte {
		return AppendBufferRecvPool(nil, goldenTransaction,
			Pool{Ref: 7, Elements: 256, ElementSize: 2048, RKey: 0xA1B2C3D4, Addr: 0x7F0011223000,
				Context: PoolContext(1, 0xAB)},
			Pool{Ref: 8, Elements: 16, ElementSize: 65536, RKey: 0xA1B2C3D5, Addr: 0x7F0022334000,
				Context: PoolContext(2, 1<<48-1)})
	},
	"buffer_recv_pool_send": func() []byte {
		return AppendBufferRecvPool(nil, goldenTransaction,
			Pool{Elements: 1024, ElementSize: 2048, Context: PoolContext(1, 0)})
	},
	"buffer_recv_pool_key_follows": func() []byte {
		return AppendBufferRecvPool(nil, goldenTransaction,
			Pool{Ref: 7, Elements: 256, ElementSize: 2048, Addr: 0x7F0011223000,
				Context: PoolContext(1, PoolInvalidate|PoolKeyFollows)})
	},
	"buffer_recv_pool_get": func() []byte {
		return AppendBufferRecvPoolGet(nil, BufferRecvPoolGet{goldenTransaction, 65536, 32, 3})
	},
	"buffer_recv_pool_update": func() []byte {
		return AppendBufferRecvPoolUpdate(nil, goldenTransaction,
			PoolReturn{Pool: 7, Elements: []uint16{5, 0, 255}},
			PoolReturn{Pool: 8, Elements: []uint16{15, 3}})
	},
	"buffer_pool_flush_request": func() []byte {
		return AppendBufferPoolFlushRequest(nil, goldenTransaction, 7, 0x80000008)
	},
	"buffer_pool_flush_reply": func() []byte {
		return AppendBufferPoolFlushReply(nil, goldenTransaction)
	},
	"send_data": func() []byte {
		return sendData(goldenTransaction, append(make([]byte, vnet.HdrLen),
			"\xff\xff\xff\xff\xff\xff\x02\x00\x5e\x10\x00\x01\x08\x06"...))
	},
	"buffer_rdma_indicate": func() []byte {
		return AppendBufferRDMAIndicate(nil, goldenTransaction, Indication{7, 5, 256}, Indication{0x80000008, 65535, 65563})
	},
	"cfg_util_request_mac": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgMAC,
			AppendMAC(nil, MAC{2, 0, 0x5e, 0x10, 0, 1})})
	},
	"cfg_util_request_keep_alive": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgKeepAlive, nil})
	},
	"cfg_util_reply_mtu": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, CfgMTU, CfgOK, AppendMTU(nil, 9000)})
	},
	"cfg_util_reply_link_state": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, CfgLinkState, CfgOK,
			AppendLinkState(nil, LinkState{Up: true, Speed: 25000})})
	},
	"cfg_util_reply_offloads": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, CfgOffloads, CfgOK,
			AppendOffloads(nil, vnet.CSUM|vnet.TSO4|vnet.TSO6|vnet.USO)})
	},
	"cfg_util_request_mtu": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgMTU, AppendMTU(nil, 1500)})
	},
	"cfg_util_request_link_state": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgLinkState, AppendLinkState(nil, LinkState{})})
	},
	"cfg_util_request_filter": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgFilter, AppendReceiveFilter(nil, goldenFilter)})
	},
	"cfg_util_reply_denied": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, CfgFilter, CfgDenied, nil})
	},
	"cfg_util_request_vlan": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgVLAN,
			AppendVLANSet(nil, vlans(1, 7, 8, 100, 4094))})
	},
	"cfg_util_request_stats_read": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgStatsRead, nil})
	},
	"cfg_util_reply_stats_read": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, CfgStatsRead, CfgOK,
			AppendStatistics(nil, goldenStatistics)})
	},
	"cfg_util_request_stats_clear": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgStatsClear, nil})
	},
	"cfg_util_reply_stats_clear": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, CfgStatsClear, CfgOK,
			AppendStatistics(nil, goldenStatistics)})
	},
	"cfg_util_request_reset": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgReset, nil})
	},
	"cfg_util_request_sent": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgSent,
			AppendSent(nil, Sent{Channel: 2, Next: 0x1122334455})})
	},
	"cfg_util_request_bind": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgBind, goldenProof[:]})
	},
	"cfg_util_request_pool_keys": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgPoolKeys,
			AppendPoolKeys(nil, 7, 1016, []uint32{0x1a2b3cff, 0x1a2b3d00})})
	},
	"cfg_util_request_arrived": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgArrived,
			AppendMarkerNonce(nil, MarkerNonce{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 15: 0x01})})
	},
	"cfg_util_request_refusal": func() []byte {
		return AppendCfgUtilRequest(nil, CfgUtilRequest{goldenTransaction, CfgRefusal, AppendSubject(nil, CfgFilter)})
	},
	"cfg_util_reply_refusal": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, CfgRefusal, CfgOK, AppendRefusal(nil, "not allowed")})
	},
	"cfg_util_reply_unsupported": func() []byte {
		return AppendCfgUtilReply(nil, CfgUtilReply{goldenTransaction, 12, CfgUnsupported, nil})
	},
}

// goldenProof is a host's proof about one channel. The bytes of the proof were computed with
// another implementation of HMAC, from docs/protocol.md:
//
//	import hmac; text = bytes.fromhex("01" + "0001" + "00000011" + "00abcdef" + "0007" + "fe80" + "00"*13 +
//		"01" + "0001" + "00000065" + "0000002a" + "0000" + "fe80" + "00"*13 + "02")
//	hmac.new(bytes(range(32)), text, "sha256").hexdigest()
var goldenProof = func() Proof {
	var secret [32]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	host := []BoundChannel{{QPN: 17, PSN: 0xabcdef, LID: 7, GID: [16]byte{0xfe, 0x80, 15: 1}}}
	unit := []BoundChannel{{QPN: 101, PSN: 42, GID: [16]byte{0xfe, 0x80, 15: 2}}}
	return MakeProof(secret[:], true, host, unit)
}()

var goldenFilter = ReceiveFilter{
	AllMulti:  true,
	Unicast:   []MAC{{2, 0, 0x5e, 0x10, 0, 2}},
	Multicast: []Group{{1, 0, 0x5e, 0, 0, 1}, {0x33, 0x33, 0, 0, 0, 1}},
}

var goldenStatistics = Statistics{
	RxFrames: 1<<32 + 1, RxBytes: 1<<32 + 2, TxFrames: 1<<32 + 3, TxBytes: 1<<32 + 4,
	RxDropped: 1<<32 + 5, RxTooLong: 1<<32 + 6, RxInvalid: 1<<32 + 7, RxFiltered: 1<<32 + 8,
	TxDropped: 1<<32 + 9, TxSource: 1<<32 + 10, TxVLAN: 1<<32 + 11,
}

func vlans(numbers ...uint16) (s VLANSet) {
	for _, v := range numbers {
		s.Add(v)
	}
	return s
}

// sendData returns a whole SendData message.
func sendData(seq uint64, data []byte) []byte {
	b := append(make([]byte, SendDataOverhead), data...)
	PutSendData(b, seq, len(data))
	return b
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenBytes(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.bin")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(goldenMessages) {
		t.Errorf("%d golden files for %d messages", len(files), len(goldenMessages))
	}
	for name, message := range goldenMessages {
		t.Run(name, func(t *testing.T) {
			want, got := golden(t, name), message()
			if !bytes.Equal(got, want) {
				t.Errorf("got  %x\nwant %x", got, want)
			}
			again, err := reencode(want)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, want) {
				t.Errorf("decoded and encoded again:\ngot  %x\nwant %x", again, want)
			}
		})
	}
}

// reencode decodes b with the decoder of b's function, and encodes the result.
func reencode(b []byte) ([]byte, error) {
	if len(b) >= 2 && b[0] == 0 && Function(b[1]) == FuncSendData { // may be longer than other messages
		m, err := DecodeSendData(b)
		if err != nil {
			return nil, err
		}
		return sendData(m.TransactionContext, m.Data), nil
	}
	h, err := DecodeHeader(b)
	if err != nil {
		return nil, err
	}
	switch h.Function {
	case FuncBufferRecvPoolGet:
		m, err := DecodeBufferRecvPoolGet(b)
		if err != nil {
			return nil, err
		}
		return AppendBufferRecvPoolGet(nil, m), nil
	case FuncBufferRDMAIndicate:
		m, err := DecodeBufferRDMAIndicate(b)
		if err != nil {
			return nil, err
		}
		var indications []Indication
		for i := range m.Len() {
			indications = append(indications, m.At(i))
		}
		return AppendBufferRDMAIndicate(nil, m.TransactionContext, indications...), nil
	case FuncBufferRecvPool:
		m, err := DecodeBufferRecvPool(b)
		if err != nil {
			return nil, err
		}
		var pools []Pool
		for i := range m.Len() {
			pools = append(pools, m.At(i))
		}
		return AppendBufferRecvPool(nil, m.TransactionContext, pools...), nil
	case FuncBufferRecvPoolUpdate:
		m, err := DecodeBufferRecvPoolUpdate(b)
		if err != nil {
			return nil, err
		}
		var returns []PoolReturn
		for r := m.Returns(); r.Next(); {
			p := PoolReturn{Pool: r.Pool()}
			for i := range r.Len() {
				p.Elements = append(p.Elements, r.Element(i))
			}
			returns = append(returns, p)
		}
		return AppendBufferRecvPoolUpdate(nil, m.TransactionContext, returns...), nil
	case FuncBufferPoolFlushRequest:
		m, err := DecodeBufferPoolFlushRequest(b)
		if err != nil {
			return nil, err
		}
		var pools []uint32
		for i := range m.Len() {
			pools = append(pools, m.Pool(i))
		}
		return AppendBufferPoolFlushRequest(nil, m.TransactionContext, pools...), nil
	case FuncBufferPoolFlushReply:
		m, err := DecodeBufferPoolFlushReply(b)
		if err != nil {
			return nil, err
		}
		return AppendBufferPoolFlushReply(nil, m.TransactionContext), nil
	case FuncCfgUtilRequest:
		m, err := DecodeCfgUtilRequest(b)
		if err != nil {
			return nil, err
		}
		return AppendCfgUtilRequest(nil, m), nil
	case FuncCfgUtilReply:
		m, err := DecodeCfgUtilReply(b)
		if err != nil {
			return nil, err
		}
		return AppendCfgUtilReply(nil, m), nil
	default:
		panic("DecodeHeader let " + h.Function.String() + " pass")
	}
}
