package attacks

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/hostiletest"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// Target is an I/O unit, and the means of the attacker to reach it.
type Target struct {
	Address string          // host and port
	From    string          // local address for connections; any if empty
	Key     tls.Certificate // of the attacker
	Device  fabric.Device   // of the attacker
	Timing  fabric.Timing
	// Patience bounds a handshake, and reads from the bootstrap connection of a
	// session.
	Patience time.Duration
}

// Session is a session of an attacker that the I/O unit has accepted as a host. It may be used by
// one goroutine.
type Session struct {
	*Connection
	*hostiletest.Queues
	Welcome session.Welcome
	Pools   []protocol.Pool // the pools that the I/O unit lends
	free    [][]uint16      // free elements of each pool
}

const (
	lentElements = 4
	lentElement  = 2048
)

// newQueues makes a control channel and a data channel.
func newQueues(dev fabric.Device) (*hostiletest.Queues, error) {
	return hostiletest.NewQueues(hostiletest.QueuesConfig{
		Device: dev, Transport: fabric.RC, Channels: 1, Receives: 128, DataReceives: 64,
		Lent: lentElements * lentElement, Scratch: 256 << 10,
	})
}

// honestHello returns a hello as an honest host could send it.
func honestHello(name string, mode protocol.Mode) session.Hello {
	return session.Hello{
		Name: name, Software: "test", Modes: []protocol.Mode{mode}, Queues: 1, Pools: mode.MaxPools(),
		MaxMTU: 1500, Offloads: vnet.AllOffloads,
	}
}

// Open opens a session by a correct handshake.
func Open(ctx context.Context, to Target, name string, mode protocol.Mode) (s *Session, err error) {
	ctx, cancel := context.WithTimeout(ctx, to.Patience)
	defer cancel()
	s = &Session{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Queues, err = newQueues(to.Device); err != nil {
		return s, err
	}
	nc, err := Dial(ctx, to.Address, to.From)
	if err != nil {
		return s, err
	}
	if s.Connection, err = Handshake(ctx, nc, to.Key); err != nil {
		return s, errors.Join(err, nc.Close())
	}
	s.SetDeadline(time.Now().Add(to.Patience))
	if s.Welcome, err = s.Hello(honestHello(name, mode)); err != nil {
		return s, err
	}
	w := &s.Welcome
	err = s.Accept(session.Accept{
		ControlReceives: protocol.ControlReceives(w.Mode, w.Queues, w.Pools),
		Channels:        session.Channels([]fabric.Address{s.Control.Address(), s.Data[0].Address()}),
	})
	if err != nil {
		return s, err
	}
	if err = errors.Join(s.Control.Connect(w.Channels[0].Address(), to.Timing),
		s.Data[0].Connect(w.Channels[1].Address(), to.Timing)); err != nil {
		return s, err
	}
	if err = s.Ready(); err != nil {
		return s, err
	}
	msg, err := s.Message(ctx, protocol.FuncBufferRecvPool)
	if err != nil {
		return s, err
	}
	m, err := protocol.DecodeBufferRecvPool(msg)
	if err != nil {
		return s, err
	}
	for i := range m.Len() {
		s.Pools = append(s.Pools, m.At(i))
		s.free = append(s.free, nil)
		for e := range min(m.At(i).Elements, 256) { // the range of immediate data
			s.free[i] = append(s.free[i], uint16(e))
		}
	}
	return s, nil
}

// Ask connects, sends a hello and disconnects after the answer.
func Ask(ctx context.Context, to Target, name string) error {
	ctx, cancel := context.WithTimeout(ctx, to.Patience)
	defer cancel()
	nc, err := Dial(ctx, to.Address, to.From)
	if err != nil {
		return err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	c, err := Handshake(ctx, nc, to.Key)
	if err != nil {
		return err
	}
	_, err = c.Hello(honestHello(name, protocol.ModeImm))
	return err
}

// Codes of refusals for the moment: sessions are opened too fast, or there are too many. The I/O unit
// counts a session until it has released all its resources.
const (
	busy = "busy"
	full = "full"
)

// of reports whether r is a refusal with one of these codes.
func (r *Refusal) of(codes ...string) bool {
	return r.Type == "refuse" && slices.Contains(codes, r.Code)
}

// Frame writes a frame into the next free element of the first pool that has
// elements for it, as an honest host does. It waits for an element.
func (s *Session) Frame(ctx context.Context, frame []byte) error {
	i := slices.IndexFunc(s.Pools, func(p protocol.Pool) bool { return len(frame) <= int(p.ElementSize) })
	if i < 0 {
		return fmt.Errorf("a frame of %d bytes fits none of the pools", len(frame))
	}
	for len(s.free[i]) == 0 {
		msg, err := s.Message(ctx, protocol.FuncBufferRecvPoolUpdate)
		if err != nil {
			return err
		}
		m, err := protocol.DecodeBufferRecvPoolUpdate(msg)
		if err != nil {
			return err
		}
		for r := m.Returns(); r.Next(); {
			j := slices.IndexFunc(s.Pools, func(p protocol.Pool) bool { return p.Ref == r.Pool() })
			for e := range r.Len() {
				s.free[j] = append(s.free[j], r.Element(e))
			}
		}
	}
	elem := s.free[i][0]
	s.free[i] = s.free[i][1:]
	pool := s.Pools[i]
	return s.Post(s.Data[0], fabric.SendWR{
		Op: fabric.OpWriteImm, RemoteAddr: s.Element(i, int(elem)), RKey: pool.RKey,
		Imm: uint32(protocol.PackImm(uint8(pool.Ref), uint8(elem), uint16(len(frame)))),
	}, frame)
}

// SuperFrame returns a frame of TCP over IPv4 with n bytes of data, to be segmented with size bytes
// of data per segment.
func SuperFrame(from protocol.MAC, n, size int) []byte {
	const ip, tcp = 20, 20
	f := make([]byte, vnet.HdrLen+vnet.EthLen+ip+tcp+n)
	(&vnet.Header{
		Flags: vnet.FlagNeedsCsum, GSOType: vnet.GSOTCPv4, GSOSize: uint16(size), HdrLen: vnet.EthLen + ip + tcp,
		CsumStart: vnet.EthLen + ip, CsumOffset: 16,
	}).Encode(f)
	eth := f[vnet.HdrLen:]
	copy(eth, "\x02\x00\x00\x00\x00\x99") // an unused address
	copy(eth[6:], from[:])
	copy(eth[12:], "\x08\x00\x45\x00")
	h := eth[vnet.EthLen:]
	binary.BigEndian.PutUint16(h[2:], uint16(ip+tcp+n))
	copy(h[8:], "\x40\x06\x00\x00\x0a\x4d\x00\x63\x0a\x4d\x00\x64") // TTL, TCP, addresses
	h[ip+12] = tcp / 4 << 4
	return f
}

// Close ends the session without a bye, as a killed host does.
func (s *Session) Close() error {
	var errs []error
	if s.Connection != nil {
		_ = s.TCP.Close() // it may have ended already
	}
	if s.Queues != nil {
		errs = append(errs, s.Queues.Close())
	}
	return errors.Join(errs...)
}

// RDMAWrite writes data to an address in the I/O unit's memory and returns the result of the
// device, a *fabric.WCError if it refuses the write.
func (s *Session) RDMAWrite(ctx context.Context, op fabric.Opcode, addr uint64, rkey uint32, data []byte) error {
	wr := fabric.SendWR{Op: op, RemoteAddr: addr, RKey: rkey,
		Imm: uint32(protocol.PackImm(uint8(s.Pools[0].Ref), 0, uint16(len(data))))}
	if err := s.Post(s.Data[0], wr, data); err != nil {
		return err
	}
	return s.Completed(ctx)
}

// Element returns the address of an element that the I/O unit lends.
func (s *Session) Element(pool, elem int) uint64 {
	return s.Pools[pool].Addr + uint64(elem)*uint64(s.Pools[pool].ElementSize)
}

// Request sends a request and returns the status of the answer.
func (s *Session) Request(ctx context.Context, t protocol.CfgType, data []byte) (protocol.CfgStatus, error) {
	if err := s.Send(protocol.AppendCfgUtilRequest(nil,
		protocol.CfgUtilRequest{TransactionContext: 99, Type: t, Data: data})); err != nil {
		return 0, err
	}
	msg, err := s.Message(ctx, protocol.FuncCfgUtilReply)
	if err != nil {
		return 0, err
	}
	m, err := protocol.DecodeCfgUtilReply(msg)
	return m.Status, err
}

// Alive sends a keep-alive and returns an error unless the I/O unit answers it.
func (s *Session) Alive(ctx context.Context) error {
	status, err := s.Request(ctx, protocol.CfgKeepAlive, nil)
	if err == nil && status != protocol.CfgOK {
		err = &Refusal{"reply", status.String(), "to a keep-alive"}
	}
	return err
}

// LendAndTakeBack lends the I/O unit a pool of so many elements, which are too small for any frame,
// and takes it back.
func (s *Session) LendAndTakeBack(ctx context.Context, elements int) error {
	const ref = 5
	err := s.Send(protocol.AppendBufferRecvPool(nil, 0, protocol.Pool{
		Ref: ref, Elements: uint32(elements), ElementSize: protocol.MinElementSize, Context: protocol.PoolContext(1, 0),
		RKey: s.Region.RKey(), Addr: s.At(s.LentAt()),
	}))
	if err != nil {
		return err
	}
	if err := s.Send(protocol.AppendBufferPoolFlushRequest(nil, 8, ref)); err != nil {
		return err
	}
	_, err = s.Message(ctx, protocol.FuncBufferPoolFlushReply)
	return err
}
