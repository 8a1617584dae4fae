package messaging_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/porttest"
	"github.com/splitnic/splitnic/vnet"
)

// The steps of the scripted peer. A byte of the fuzzer's input, modulo scripted, selects the
// step. The parameters of the step are the bytes behind it.
const (
	scriptControl  = iota // a control message: 16 bits of length, and its bytes
	scriptLend            // lend a pool: reference, channel, elements, elements' size in 64 bytes
	scriptWriteImm        // write with immediate data: element size in bytes of data, 4 bytes of immediate data
	scriptWrite           // write and indicate: pool, element, length
	scriptSend            // a SendData: sequence number, length of the frame
	scriptFrame           // the Conn reads a frame from its port: length in 16 bytes
	scriptFlush           // flush a pool: pool, and whether it is lent by the Conn (odd) or by the peer
	scriptWait            // wait until the Conn has handled all steps before
	scriptRaw             // a message on the data channel: 16 bits of length, and its bytes
	scriptPayload         // write with matching immediate data: pool, element, length, and the bytes written
	scriptDevice          // an event of a device: which (deviceStatus etc.), and a parameter
	scripted
)

// scriptKeys is a flag in the first byte of a script: both sides agree that keys are sent
// behind binds.
const scriptKeys = 0x80

// sinkPort drops every frame written to it, and reads frames from fd, to which the test writes
// them.
type sinkPort struct{ fd int }

func (p sinkPort) FD() int                 { return p.fd }
func (p sinkPort) WriteFrame([]byte) error { return nil }
func (p sinkPort) ReadFrame(slot []byte) ([]byte, error) {
	n, err := unix.Read(p.fd, slot)
	if err != nil {
		return nil, err
	}
	return slot[:n], nil
}

// script is a peer controlled by the bytes of input.
type script struct {
	t      *testing.T
	net    *fabrictest.Network
	mode   protocol.Mode
	keys   bool
	conn   *messaging.Conn
	input  []byte
	mem    []byte
	region fabric.Region
	cq     fabric.CQ
	ctrl   fabric.QP
	data   fabric.QP
	wire   int
	lent   []protocol.Pool // by the Conn
	asked  uint64
	heard  uint64 // the last of the peer's requests that was answered
	mute   bool   // the peer's queue pairs have failed, so its requests are not answered
}

const (
	scriptReceives = 128
	ownTransaction = 1 << 40 // transaction contexts above this are those of await
)

func (s *script) byte() byte {
	if len(s.input) == 0 {
		return 0
	}
	b := s.input[0]
	s.input = s.input[1:]
	return b
}

func (s *script) bytes(n int) []byte {
	n = min(n, len(s.input))
	b := s.input[:n]
	s.input = s.input[n:]
	return b
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// post polls, and then posts a work request with data, which it copies behind the memory of
// the receives.
func (s *script) post(qp fabric.QP, wr fabric.SendWR, data []byte) {
	s.poll()
	scratch := s.mem[scriptReceives*protocol.MaxControlSize:]
	n := copy(scratch, data)
	wr.Addr, wr.Len, wr.LKey = uint64(uintptr(unsafe.Pointer(&scratch[0]))), uint32(n), s.region.LKey()
	wr.Flags |= fabric.Signaled | fabric.Solicited
	_, _ = qp.PostSend([]fabric.SendWR{wr}) // a failed queue pair refuses it
}

func (s *script) send(msg []byte) { s.post(s.ctrl, fabric.SendWR{Op: fabric.OpSend}, msg) }

func (s *script) postRecv(i uint64) {
	_, _ = s.ctrl.PostRecv([]fabric.RecvWR{{
		ID: i, Addr: s.region.Addr() + i*protocol.MaxControlSize, Len: protocol.MaxControlSize, LKey: s.region.LKey(),
	}})
}

// poll handles all messages that have arrived, and posts their receives again.
func (s *script) poll() {
	var comps [32]fabric.Completion
	for {
		n, err := s.cq.Poll(comps[:])
		s.must(err)
		for _, c := range comps[:n] {
			if c.Status == fabric.StatusSuccess && c.Op == fabric.OpRecv {
				msg := s.mem[c.ID*protocol.MaxControlSize:][:c.Len]
				s.hear(msg)
				s.postRecv(c.ID)
			}
		}
		if n < len(comps) {
			return
		}
	}
}

func (s *script) hear(msg []byte) {
	h, err := protocol.DecodeHeader(msg)
	s.must(err)
	switch h.Function {
	case protocol.FuncBufferRecvPool:
		m, err := protocol.DecodeBufferRecvPool(msg)
		s.must(err)
		for i := range m.Len() {
			s.lent = append(s.lent, m.At(i))
		}
	case protocol.FuncCfgUtilReply:
		m, err := protocol.DecodeCfgUtilReply(msg)
		s.must(err)
		if m.TransactionContext > ownTransaction {
			s.heard = max(s.heard, m.TransactionContext-ownTransaction)
		}
	case protocol.FuncBufferRecvPoolUpdate:
		_, err := protocol.DecodeBufferRecvPoolUpdate(msg)
		s.must(err)
	case protocol.FuncBufferRDMAIndicate:
		_, err := protocol.DecodeBufferRDMAIndicate(msg)
		s.must(err)
	default:
	}
}

// await waits until the Conn has answered a request, or ended.
func (s *script) await() (alive bool) {
	s.undo()
	if s.mute {
		return s.conn.Err() == nil
	}
	s.asked++
	s.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: ownTransaction + s.asked,
		Type: protocol.CfgKeepAlive}))
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	go func() {
		select {
		case <-s.conn.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	for s.heard < s.asked {
		s.must(s.cq.Arm(false))
		s.poll()
		if s.heard >= s.asked {
			break
		}
		if s.conn.Err() != nil {
			return false
		}
		if err := s.cq.Wait(ctx); err != nil && s.conn.Err() == nil {
			s.t.Fatalf("no answer and no end: %v", err)
		}
	}
	return s.conn.Err() == nil
}

// pool returns the pool that the Conn lends under ref, or a made-up one if there is none.
func (s *script) pool(ref uint32) protocol.Pool {
	for _, p := range s.lent {
		if p.Ref == ref {
			return p
		}
	}
	return protocol.Pool{Ref: ref, ElementSize: 64}
}

func (s *script) write(op fabric.Opcode, imm, ref, elem uint32, n int) {
	p := s.pool(ref)
	s.post(s.data, fabric.SendWR{
		Op: op, Imm: imm, RKey: p.RKey, RemoteAddr: p.Addr + uint64(elem)*uint64(p.ElementSize),
	}, frame(1, max(n, vnet.MinFrame), 1500)[:n])
}

// step carries out the step that the next byte selects.
func (s *script) step() (alive bool) {
	switch s.byte() % scripted {
	case scriptControl:
		n := int(s.byte())<<8 | int(s.byte())
		s.send(s.bytes(n % (protocol.MaxControlSize + 2)))
	case scriptLend:
		p := protocol.Pool{Ref: uint32(s.byte()), Context: protocol.PoolContext(uint16(s.byte()), 0),
			Elements: uint32(s.byte()), ElementSize: 64 * uint32(s.byte())}
		if !s.mode.Sends() {
			// Behind the memory that this side uses itself.
			p.RKey, p.Addr = s.region.RKey(), s.region.Addr()+(scriptReceives+1)*protocol.MaxControlSize
		}
		s.send(protocol.AppendBufferRecvPool(nil, 0, p))
	case scriptWriteImm:
		n := int(s.byte())
		imm := binary.BigEndian.Uint32(append(slices.Clone(s.bytes(4)), 0, 0, 0, 0))
		s.write(fabric.OpWriteImm, imm, imm>>24, imm>>16&0xff, n)
	case scriptWrite:
		x := protocol.Indication{Pool: uint32(s.byte()), Element: uint32(s.byte()), Length: uint32(s.byte())}
		s.write(fabric.OpWrite, 0, x.Pool, x.Element, int(x.Length))
		s.send(protocol.AppendBufferRDMAIndicate(nil, 0, x))
	case scriptSend:
		seq, n := uint64(s.byte()), int(s.byte())
		msg := make([]byte, protocol.SendDataOverhead, protocol.SendDataOverhead+n)
		protocol.PutSendData(msg, seq, n)
		s.post(s.data, fabric.SendWR{Op: fabric.OpSend}, append(msg, frame(1, max(n, vnet.MinFrame), 1500)[:n]...))
	case scriptFrame:
		n := 16 * int(s.byte())
		_, _ = unix.Write(s.wire, frame(1, max(n, vnet.MinFrame), 1500)[:n]) // a full socket refuses it
	case scriptFlush:
		ref := uint32(s.byte())
		if s.byte()%2 == 1 {
			ref |= protocol.FlushGiveBack
		}
		s.send(protocol.AppendBufferPoolFlushRequest(nil, 0, ref))
	case scriptWait:
		return s.await()
	case scriptRaw:
		s.raw()
	case scriptPayload:
		s.payload()
	case scriptDevice:
		s.device()
	}
	return true
}

// fuzzMessages returns one control message of each type, each valid at the beginning of a
// session.
func fuzzMessages(mode protocol.Mode) [][]byte {
	pool := protocol.Pool{Ref: 1, Elements: 4, ElementSize: 2048, Context: protocol.PoolContext(1, 0)}
	if !mode.Sends() {
		pool.RKey, pool.Addr = 1, 4096
	}
	var ms [][]byte
	add := func(m []byte) { ms = append(ms, m) }
	add(protocol.AppendBufferRecvPool(nil, 0, pool))
	add(protocol.AppendBufferRecvPoolUpdate(nil, 0, protocol.PoolReturn{Pool: 0, Elements: []uint16{0, 1}}))
	add(protocol.AppendBufferRecvPoolGet(nil, protocol.BufferRecvPoolGet{ElementSize: 256, Elements: 2, Channel: 1}))
	add(protocol.AppendBufferPoolFlushRequest(nil, 1, 0|protocol.FlushGiveBack))
	add(protocol.AppendBufferPoolFlushRequest(nil, 1, 1))
	add(protocol.AppendBufferPoolFlushReply(nil, 1))
	add(protocol.AppendBufferRDMAIndicate(nil, 0, protocol.Indication{Pool: 0, Element: 0, Length: 60},
		protocol.Indication{Pool: 0, Element: 1, Length: 60}))
	for _, t := range []protocol.CfgType{protocol.CfgKeepAlive, protocol.CfgMTU, protocol.CfgStatsRead} {
		add(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: 1, Type: t}))
	}
	add(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{Type: protocol.CfgSent,
		Data: protocol.AppendSent(nil, protocol.Sent{Channel: 1, Next: 2})}))
	add(protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: 1, Type: protocol.CfgKeepAlive}))
	return ms
}

func scriptOf(steps ...[]byte) []byte { return bytes.Join(steps, nil) }

func controlStep(msg []byte) []byte {
	return append([]byte{scriptControl, byte(len(msg) >> 8), byte(len(msg))}, msg...)
}

// FuzzControl lets the input control the peer of a Conn. The Conn must go on with consistent
// ledgers, or end with an error that says what was wrong. It must neither hang nor leak.
func FuzzControl(f *testing.F) {
	lend := []byte{scriptLend, 0, 1, 4, 4}
	frames := []byte{scriptFrame, 8, scriptFrame, 8, scriptFrame, 15, scriptWait}
	for i, mode := range protocol.Modes() {
		first := []byte{byte(i)}
		f.Add(first)
		f.Add(scriptOf(first, lend, frames))
		for _, m := range fuzzMessages(mode) {
			f.Add(scriptOf(first, controlStep(m)))
			f.Add(scriptOf(first, lend, frames, controlStep(m), []byte{scriptWait}, controlStep(m)))
		}
		f.Add(scriptOf(first, []byte{scriptWrite, 0, 0, 60, scriptWrite, 0, 1, 60, scriptWait, scriptWrite, 1, 0, 100}))
		f.Add(scriptOf(first, []byte{scriptWriteImm, 60, 0, 0, 0, 60, scriptWriteImm, 60, 1, 1, 0, 60, scriptWait}))
		f.Add(scriptOf(first, []byte{scriptSend, 0, 60, scriptSend, 1, 60, scriptWait, scriptSend, 3, 60}))
		f.Add(scriptOf(first, lend, []byte{scriptFlush, 0, 0, scriptWait, scriptLend, 0, 1, 2, 40, scriptFlush, 1, 1,
			scriptWait, scriptFlush, 0, 0}))
	}
	f.Fuzz(fuzzScript)
}

// fuzzScript runs input, which is a byte with the mode, followed by the script.
func fuzzScript(t *testing.T, input []byte) {
	if len(input) == 0 || len(input) > 4096 {
		return
	}
	s := &script{t: t, mode: protocol.Modes()[int(input[0])%len(protocol.Modes())], keys: input[0]&scriptKeys != 0,
		input: input[1:]}
	err := s.run()
	var pe *messaging.ProtocolError
	var wc *fabric.WCError
	switch {
	case err == nil || errors.As(err, &wc):
	case !errors.As(err, &pe):
		t.Errorf("ended without a reason that a peer can give: %v", err)
	case !slices.Contains(messaging.Codes(), pe.Code()),
		pe.Code() == "unexpected" && !errors.Is(err, messaging.ErrUnexpected):
		t.Errorf("a rule without a name: %v", err)
	}
}

// run runs the script against a new Conn. It returns the error that ended the Conn, or nil if
// the script did not end it.
func (s *script) run() error {
	// With this scale, a peer that does not answer is given up after 5 ms.
	n := fabrictest.New(fabrictest.WithTimeScale(0.01))
	s.net = n
	before := descriptors(s.t)
	dev, far := n.Device("a"), n.Device("script")
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	s.must(err)
	s.wire = fds[1]
	pools := []messaging.PoolConfig{{ElementSize: 256, Elements: 4}, {ElementSize: 1024, Elements: 2}}
	if s.mode.Sends() {
		pools = pools[:1]
	}
	cfg := messaging.Config{
		Device: dev, Mode: s.mode, Pools: pools, SendSlots: 8, Batch: 3, SignalEvery: 2,
		KeepAlive: time.Minute, PeerTimeout: time.Hour, PoolIdle: time.Minute,
	}
	if s.keys { // only the peer sends keys; the Conn's own pools have their keys in the offer
		cfg.KeySend, cfg.Protection = true, messaging.ProtectRegion
	}
	s.conn, err = messaging.New(cfg)
	s.must(err)
	s.mem, err = unix.Mmap(-1, 0, (scriptReceives+1)*protocol.MaxControlSize+1<<16, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON)
	s.must(err)
	dom, err := far.NewDomain()
	s.must(err)
	s.region, err = dom.Register(s.mem, fabric.LocalWrite|fabric.RemoteWrite)
	s.must(err)
	s.cq, err = dom.NewCQ(8192, 0)
	s.must(err)
	for _, qp := range []*fabric.QP{&s.ctrl, &s.data} {
		cfg := fabric.QPConfig{Transport: fabric.RC, SendCQ: s.cq, RecvCQ: s.cq, MaxSend: 1024, MaxRecv: scriptReceives}
		if s.mode.Lossy() && qp == &s.data {
			cfg.Transport = fabric.UC
		}
		*qp, err = dom.NewQP(cfg)
		s.must(err)
	}
	for i := range uint64(scriptReceives) {
		s.postRecv(i)
	}
	s.must(s.conn.Connect([]fabric.Address{s.ctrl.Address(), s.data.Address()}, scriptReceives))
	remote := s.conn.Addresses()
	s.must(s.ctrl.Connect(remote[0], fabric.Timing{}))
	s.must(s.data.Connect(remote[1], fabric.Timing{}))
	s.must(s.conn.Start([]messaging.Port{porttest.Batched{Single: sinkPort{fds[0]}}}))

	alive := true
	for alive && len(s.input) > 0 {
		alive = s.step()
	}
	if alive {
		alive = s.await()
	}
	if stats := s.conn.Stats(); alive {
		for _, c := range stats.Channels {
			for _, p := range append(c.LocalPools, c.RemotePools...) {
				s.must(p.Check())
			}
		}
	}
	s.undo()
	reason := s.conn.Err()
	if errors.Is(reason, net.ErrClosed) {
		s.t.Errorf("it closed itself: %v", reason)
	}
	s.must(errors.Join(s.conn.Close(), dev.Close(), far.Close(), unix.Munmap(s.mem), unix.Close(fds[0]),
		unix.Close(fds[1])))
	if l := n.Live(); l != (fabrictest.Live{}) {
		s.t.Errorf("left open on the fabric: %+v", l)
	}
	if after := descriptors(s.t); after > before {
		s.t.Errorf("%d descriptors, %d before", after, before)
	}
	return reason
}
