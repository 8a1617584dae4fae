package protocol

import (
	"bytes"
	"strings"
	"testing"
	"unicode"

	"github.com/splitnic/splitnic/vnet"
)

// fuzzDecoder fuzzes the decoders of some functions. The seeds are all golden messages, also with a
// byte less and a byte more. A decoder must not panic, and a message that a decoder accepts has to
// be encoded to the same bytes again.
func fuzzDecoder(f *testing.F, functions ...Function) {
	for name := range goldenMessages {
		b := golden(f, name)
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(append(bytes.Clone(b), 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Set the function, so that each run tests these decoders.
		for _, function := range functions {
			b := bytes.Clone(b)
			if len(b) >= 2 {
				b[0], b[1] = byte(function>>8), byte(function)
			}
			got, err := reencode(b)
			if err == nil && !bytes.Equal(got, b) {
				t.Errorf("accepted %x\nencoded again %x", b, got)
			}
		}
	})
}

func FuzzBufferRecvPool(f *testing.F)       { fuzzDecoder(f, FuncBufferRecvPool) }
func FuzzBufferRecvPoolGet(f *testing.F)    { fuzzDecoder(f, FuncBufferRecvPoolGet) }
func FuzzBufferRecvPoolUpdate(f *testing.F) { fuzzDecoder(f, FuncBufferRecvPoolUpdate) }
func FuzzBufferPoolFlush(f *testing.F) {
	fuzzDecoder(f, FuncBufferPoolFlushRequest, FuncBufferPoolFlushReply)
}
func FuzzSendData(f *testing.F)           { fuzzDecoder(f, FuncSendData) }
func FuzzBufferRDMAIndicate(f *testing.F) { fuzzDecoder(f, FuncBufferRDMAIndicate) }
func FuzzCfgUtil(f *testing.F)            { fuzzDecoder(f, FuncCfgUtilRequest, FuncCfgUtilReply) }

// FuzzHeader fuzzes the decoder of the header, also with unknown functions and versions.
func FuzzHeader(f *testing.F) {
	for name := range goldenMessages {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHeader(b)
		if err == nil && !bytes.Equal(appendHeader(nil, h.Function, h.TransactionContext), b[:HeaderSize]) {
			t.Errorf("accepted %x as %+v", b[:HeaderSize], h)
		}
	})
}

func FuzzCfgData(f *testing.F) {
	f.Add(AppendMAC(nil, MAC{2, 0, 0, 0, 0, 1}))
	f.Add(AppendMTU(nil, 1500))
	f.Add(AppendLinkState(nil, LinkState{Up: true, Speed: 100000}))
	f.Add(AppendOffloads(nil, vnet.AllOffloads))
	f.Add(AppendReceiveFilter(nil, goldenFilter))
	f.Add(AppendVLANSet(nil, vlans(1, 100)))
	f.Add(AppendStatistics(nil, goldenStatistics))
	f.Add(AppendSent(nil, Sent{Channel: 1, Next: 1}))
	f.Add(append([]byte{1}, make([]byte, 31)...))
	f.Add(AppendPoolKeys(nil, 3, 1016, []uint32{0x1ff, 0x200}))
	f.Add(AppendSubject(nil, CfgFilter))
	f.Add(AppendRefusal(nil, "not allowed: \x1b[31mMAC address\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		check := func(encoded []byte, err error) {
			if err == nil && !bytes.Equal(encoded, b) {
				t.Errorf("accepted %x\nencoded again %x", b, encoded)
			}
		}
		mac, err := DecodeMAC(b)
		check(AppendMAC(nil, mac), err)
		mtu, err := DecodeMTU(b)
		check(AppendMTU(nil, mtu), err)
		link, err := DecodeLinkState(b)
		check(AppendLinkState(nil, link), err)
		offloads, err := DecodeOffloads(b)
		check(AppendOffloads(nil, offloads), err)
		check(nil, DecodeKeepAlive(b))
		filter, err := DecodeReceiveFilter(b)
		check(AppendReceiveFilter(nil, filter), err)
		set, err := DecodeVLANSet(b)
		check(AppendVLANSet(nil, set), err)
		if again, err := ParseVLANs(set.String()); err != nil || again != set {
			t.Errorf("VLANs %v parsed as %v, %v", set, again, err)
		}
		sent, err := DecodeSent(b)
		check(AppendSent(nil, sent), err)
		proof, err := DecodeProof(b)
		check(proof[:], err)
		nonce, err := DecodeMarkerNonce(b)
		check(AppendMarkerNonce(nil, nonce), err)
		subject, err := DecodeSubject(b)
		check(AppendSubject(nil, subject), err)
		if reason, err := DecodeRefusal(b); err == nil {
			unsafe := func(r rune) bool { return !unicode.IsPrint(r) }
			if strings.ContainsFunc(reason, unsafe) || len(AppendRefusal(nil, reason+"\u00e9")) > MaxRefusal {
				t.Errorf("reason %q of %x", reason, b)
			}
		}
		if k, err := DecodePoolKeys(b); err == nil {
			var keys []uint32
			for i := range k.Len() {
				keys = append(keys, k.At(i))
			}
			check(AppendPoolKeys(nil, k.Pool, k.First, keys), nil)
		}
		// A list of counters may have any length. The known counters are decoded.
		if statistics, err := DecodeStatistics(b); err == nil {
			encoded := AppendStatistics(nil, statistics)
			n := min(len(encoded), len(b))
			if !bytes.Equal(encoded[:n], b[:n]) || bytes.Count(encoded[n:], []byte{0}) != len(encoded)-n {
				t.Errorf("accepted %x\nencoded again %x", b, encoded)
			}
		}
	})
}

func FuzzImmData(f *testing.F) {
	f.Add(uint8(7), uint8(5), uint16(256))
	f.Add(uint8(255), uint8(0), uint16(65535))
	f.Fuzz(func(t *testing.T, pool, element uint8, length uint16) {
		p, e, l := PackImm(pool, element, length).Unpack()
		if p != pool || e != element || l != length {
			t.Errorf("(%d, %d, %d) became (%d, %d, %d)", pool, element, length, p, e, l)
		}
	})
}

func FuzzWRID(f *testing.F) {
	f.Add(uint8(WRDataWrite), uint8(3), uint16(511), uint32(1<<31))
	f.Add(uint8(255), uint8(255), uint16(65535), uint32(0))
	f.Fuzz(func(t *testing.T, kind, queue uint8, index uint16, generation uint32) {
		id := PackWRID(WRKind(kind), queue, index, generation)
		k, q, i, g := id.Unpack()
		if k != WRKind(kind) || q != queue || i != index || g != generation {
			t.Errorf("(%d, %d, %d, %d) became (%d, %d, %d, %d)", kind, queue, index, generation, k, q, i, g)
		}
	})
}
