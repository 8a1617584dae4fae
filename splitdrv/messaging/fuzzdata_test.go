package messaging_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/vnet"
)

// The events of scriptDevice. The byte behind it, modulo devices, selects the event, and the
// next one is the parameter.
const (
	deviceStatus  = iota // the Conn's next work requests fail with this status
	deviceStall          // the Conn's device stalls until the next wait
	deviceLose           // the next messages on an unreliable channel are lost, in both directions
	deviceFail           // one of the peer's queue pairs fails
	deviceZero           // the peer writes zero bytes, which is allowed
	deviceKey            // the peer sends a key, which may be invalid
	deviceKeyless        // the peer lends a pool whose key follows
	devices
)

// raw sends bytes of the input on the data channel, unchecked.
func (s *script) raw() {
	n := int(s.byte())<<8 | int(s.byte())
	s.post(s.data, fabric.SendWR{Op: fabric.OpSend}, s.bytes(n))
}

// payload writes bytes of the input to an element, with the immediate data that an honest peer
// would use.
func (s *script) payload() {
	ref, elem, n := s.byte(), s.byte(), int(s.byte())
	p := s.pool(uint32(ref))
	b := s.bytes(n)
	s.post(s.data, fabric.SendWR{
		Op: fabric.OpWriteImm, Imm: uint32(protocol.PackImm(ref, elem, uint16(len(b)))),
		RKey: p.RKey, RemoteAddr: p.Addr + uint64(elem)*uint64(p.ElementSize),
	}, b)
}

// device carries out an event that is mostly not under the peer's control.
func (s *script) device() {
	what, how := s.byte()%devices, s.byte()
	switch what {
	case deviceStatus:
		// The remainder is always a valid status.
		status := fabric.Status(how) % (fabric.StatusGeneralErr + 1)
		s.net.OnSend("a", func(uint32, fabric.SendWR) fabric.Status { return status })
	case deviceStall:
		s.net.Stall("a")
	case deviceLose:
		s.net.DropUC("a", int(how%16))
		s.net.DropUC("script", int(how/16))
	case deviceFail:
		qp := s.data
		if how%2 == 1 {
			qp = s.ctrl
		}
		s.must(qp.Fail())
		s.mute = true
	case deviceZero:
		s.post(s.data, fabric.SendWR{Op: fabric.OpWrite, RKey: s.pool(uint32(how)).RKey,
			RemoteAddr: s.pool(uint32(how)).Addr}, nil)
	case deviceKey:
		key := uint32(how)
		if how == 0 {
			key = s.region.RKey()
		}
		s.post(s.data, fabric.SendWR{Op: fabric.OpSendImm, Imm: key}, nil)
	case deviceKeyless:
		s.send(protocol.AppendBufferRecvPool(nil, 0, protocol.Pool{Ref: uint32(how), Elements: 4, ElementSize: 2048,
			Addr:    s.region.Addr() + (scriptReceives+1)*protocol.MaxControlSize,
			Context: protocol.PoolContext(1, protocol.PoolKeyFollows)}))
	}
}

// undo ends a stall.
func (s *script) undo() { s.net.Resume("a") }

func rawStep(msg []byte) []byte {
	return append([]byte{scriptRaw, byte(len(msg) >> 8), byte(len(msg))}, msg...)
}

func payloadStep(elem byte, payload []byte) []byte {
	return append([]byte{scriptPayload, 0, elem, byte(len(payload))}, payload...)
}

// packOf returns a pack of frames.
func packOf(frames ...[]byte) []byte {
	b := []byte{0x80, 0, 0, byte(len(frames))}
	for _, f := range frames {
		b = binary.BigEndian.AppendUint16(b, uint16(len(f)))
		b = append(b, f...)
	}
	return b
}

// sendDataOf returns a SendData message.
func sendDataOf(seq uint64, data []byte) []byte {
	b := make([]byte, protocol.SendDataOverhead)
	protocol.PutSendData(b, seq, len(data))
	return append(b, data...)
}

// FuzzData is FuzzControl with scripts that are mostly about the data channels: writes and
// sends there, and failures of the fabric.
func FuzzData(f *testing.F) {
	wait := []byte{scriptWait}
	small, large := frame(1, vnet.MinFrame, 1500), frame(1, 100, 1500)
	spoilt := slices.Clone(large)
	h := vnet.Header{Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, GSOSize: 100, CsumStart: 34, CsumOffset: 16}
	h.Encode(spoilt)
	pack := packOf(small, large)
	lend := []byte{scriptLend, 0, 1, 4, 4}
	out := []byte{scriptFrame, 8, scriptFrame, 8}
	for i, mode := range protocol.Modes() {
		add := func(steps ...[]byte) { f.Add(scriptOf(append([][]byte{{byte(i)}}, steps...)...)) }
		for _, data := range [][]byte{small, large, spoilt, pack, pack[:len(pack)-1], append(slices.Clone(pack), 0), packOf(),
			small[:10]} {
			if mode.Sends() {
				add(rawStep(sendDataOf(0, data)), wait, rawStep(sendDataOf(1, data)), wait)
				add(rawStep(sendDataOf(1, data)), wait)
			} else {
				add(payloadStep(0, data), payloadStep(1, data), wait)
			}
		}
		add(rawStep(small), wait)
		add(rawStep(protocol.AppendBufferRDMAIndicate(nil, 0, protocol.Indication{Length: 60})), wait)
		for _, how := range []byte{0, byte(fabric.StatusRemAccessErr), byte(fabric.StatusRetryExcErr),
			byte(fabric.StatusWRFlushErr)} {
			add(lend, []byte{scriptDevice, deviceStatus, how}, out, wait)
		}
		add(lend, []byte{scriptDevice, deviceStall, 0}, out, wait, out, wait)
		add(lend, []byte{scriptDevice, deviceLose, 0x21}, out, wait, out, wait)
		add(lend, out, []byte{scriptDevice, deviceFail, 0}, out, wait)
		add(lend, out, []byte{scriptDevice, deviceFail, 1}, out, wait)
		add([]byte{scriptDevice, deviceZero, 0}, wait)
		keyless, key := []byte{scriptDevice, deviceKeyless, 3}, []byte{scriptDevice, deviceKey, 0}
		flush := []byte{scriptFlush, 3, 0}
		for _, steps := range [][][]byte{{keyless, key, out, wait}, {key, wait, keyless, out, wait},
			{keyless, out, flush, wait, key, wait}, {key, key, key, key, key, wait}} {
			f.Add(scriptOf(append([][]byte{{scriptKeys | byte(i)}}, steps...)...))
		}
	}
	f.Fuzz(fuzzScript)
}
