package vhostuser

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// serve handles the messages of the front end until the connection ends. It returns nil if the front
// end ends the connection.
func (f *frontEnd) serve() error {
	debug.SetPanicOnFault(true) // for the whole goroutine, which ends with serve
	f.in, f.oob = make([]byte, headerSize+maxBody), make([]byte, unix.CmsgSpace(4*(maxTable+1)))
	f.memory = &memory{shared: &vnet.Memory{}}
	defer f.end()
	for {
		m, err := f.read()
		if err != nil {
			closeAll(m.fds)
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				return nil
			}
			return err
		}
		err = f.handle(&m)
		closeAll(m.fds)
		switch {
		case errors.Is(err, syscall.EPIPE): // the front end has gone before the reply
			return nil
		case err != nil:
			_ = f.acknowledge(&m, 1) // the connection ends in any case
			return err
		}
	}
}

// handle carries out a message and replies.
func (f *frontEnd) handle(m *message) error {
	d := f.d
	switch m.request {
	case getFeatures:
		return f.number(m.request, uint64(d.offer))
	case getProtocolFeatures:
		return f.number(m.request, uint64(protoFeaturesAlways))
	case getQueueNum:
		return f.number(m.request, uint64(d.pairs))
	case getMaxMemSlots:
		return f.number(m.request, maxRegions)
	case getStatus:
		return f.number(m.request, uint64(f.status))
	case getVringBase:
		v, _, err := f.vring(m)
		if err != nil {
			return err
		}
		err = f.stopping(func() error {
			v.stop()
			return takeEvent(&v.kick, -1)
		})
		if err != nil {
			return err
		}
		return f.reply(m.request, uint32(v.number), v.start)
	default:
	}
	switch err := f.carryOut(m); {
	case errors.Is(err, errRefused):
		return f.acknowledge(m, 1)
	case err != nil:
		return err
	}
	return f.acknowledge(m, 0)
}

// acknowledge sends the reply to a message that has none with data, if the front end asks for one.
func (f *frontEnd) acknowledge(m *message, failed uint32) error {
	if f.proto&protoReplyAck == 0 || m.flags&flagNeedReply == 0 {
		return nil
	}
	return f.reply(m.request, failed, 0)
}

// carryOut carries out a message that has no reply with data.
func (f *frontEnd) carryOut(m *message) error {
	switch m.request {
	case setFeatures:
		return f.setFeatures(features(m.number()))
	case setProtocolFeatures:
		p := protocolFeatures(m.number())
		if p&^protoFeaturesAlways != 0 {
			return fmt.Errorf("%w: protocol features %#x were not offered", ErrFrontEnd, uint64(p&^protoFeaturesAlways))
		}
		f.proto = p
		return nil
	case setMemTable:
		return f.setTable(m)
	case addMemReg:
		return f.addRegion(m)
	case remMemReg:
		return f.removeRegion(m)
	case netSetMTU:
		return f.d.setGuestMTU(m.number())
	case setStatus:
		if f.status = uint8(m.number()); f.status != 0 {
			return nil
		}
		return f.reset()
	case resetDevice, resetOwner:
		return f.reset()
	case setVringErr: // the log has the errors
		_, _, err := m.vringFD()
		return err
	case setVringNum, setVringAddr, setVringBase, setVringKick, setVringCall, setVringEnable:
		return f.setVring(m)
	default: // setOwner
		return nil
	}
}

func (f *frontEnd) setFeatures(feats features) error {
	if err := feats.check(f.d.offer); err != nil {
		return err
	}
	if feats == f.feats {
		return nil
	}
	for _, v := range f.d.rings {
		if v.started() {
			return fmt.Errorf("%w: other features while ring %d is used", ErrFrontEnd, v.number)
		}
	}
	f.feats = feats
	f.agreed = feats.has(featProtocol)
	f.d.note(func(s *Status) { s.Features = feats.Names() })
	return nil
}

// end releases everything that the front end has provided. Memory that is lent and not returned in
// time stays mapped until it is returned.
func (f *frontEnd) end() {
	_ = f.d.recall(f.memory)
	_ = f.change(func() error {
		f.d.lender.lend(nil)
		return f.forgetRings()
	})
	f.d.recalled.Store(false)
	_ = f.memory.close(nil)
}
