package vhostuser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// frontEnd is a connection with one, and what it has negotiated. All of it is the
// goroutine's that serves it.
type frontEnd struct {
	d      *Device
	conn   *net.UnixConn
	feats  features
	proto  protocolFeatures
	agreed bool // about the protocol's features: rings are to be enabled
	memory *memory
	status uint8
	in     []byte
	oob    []byte
	out    []byte
}

// serve carries out the front end's messages until the connection ends, which is no
// error if the front end ends it.
func (f *frontEnd) serve() error {
	debug.SetPanicOnFault(true) // the goroutine ends with this
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
		if err := f.handle(&m); err != nil {
			closeAll(m.fds)
			if f.proto&protoReplyAck != 0 && m.flags&flagNeedReply != 0 {
				_ = f.reply(m.request, 1, 0) // as a courtesy: the connection ends
			}
			return err
		}
		closeAll(m.fds)
	}
}

// read reads a message. Its descriptors are there also with an error.
func (f *frontEnd) read() (m message, err error) {
	n, oobn, flags, _, err := f.conn.ReadMsgUnix(f.in[:headerSize], f.oob)
	if oobn > 0 {
		var failed error
		if m.fds, failed = rights(f.oob[:oobn]); err == nil {
			err = failed
		}
	}
	switch {
	case err != nil:
		return m, err
	case n == 0:
		return m, io.EOF
	case flags&unix.MSG_CTRUNC != 0:
		return m, fmt.Errorf("%w: a message with too many descriptors", ErrFrontEnd)
	}
	if _, err = io.ReadFull(f.conn, f.in[n:headerSize]); err != nil {
		return m, ended(err)
	}
	if m.header, err = decodeHeader(f.in); err != nil {
		return m, err
	}
	m.body = f.in[headerSize:][:m.size]
	if _, err = io.ReadFull(f.conn, m.body); err != nil {
		return m, ended(err)
	}
	return m, m.check()
}

// ended is for a connection that ends within a message.
func ended(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return io.EOF
	}
	return err
}

// rights are the descriptors in control messages.
func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrFrontEnd, err)
	}
	for i := range messages {
		some, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			fds = append(fds, some...)
		}
	}
	return fds, nil
}

// closeAll closes descriptors that nobody has taken: those are -1.
func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (f *frontEnd) reply(r request, body ...uint32) error {
	f.out = appendReply(f.out[:0], r, body...)
	_, err := f.conn.Write(f.out)
	return err
}

// number answers with a number of 64 bits.
func (f *frontEnd) number(r request, n uint64) error { return f.reply(r, uint32(n), uint32(n>>32)) }

// handle carries out a message and answers it.
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
	err := f.carryOut(m)
	if errors.Is(err, errRefused) {
		if f.proto&protoReplyAck != 0 && m.flags&flagNeedReply != 0 {
			return f.reply(m.request, 1, 0)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if f.proto&protoReplyAck != 0 && m.flags&flagNeedReply != 0 {
		return f.reply(m.request, 0, 0)
	}
	return nil
}

// carryOut carries out a message that has no answer of its own.
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
	case setVringErr: // who reads the log knows more
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
		if v.running.Load() {
			return fmt.Errorf("%w: other features while ring %d is used", ErrFrontEnd, v.number)
		}
	}
	f.feats = feats
	f.agreed = feats.has(featProtocol)
	f.d.note(func(s *Status) { s.Features = feats.Names() })
	return nil
}

// vring is the ring that a message is about.
func (f *frontEnd) vring(m *message) (v *vring, value uint32, err error) {
	index, value := m.vring()
	v, err = f.ring(index)
	return v, value, err
}

func (f *frontEnd) ring(index uint32) (*vring, error) {
	if index >= uint32(len(f.d.rings)) {
		return nil, fmt.Errorf("%w: ring %d; there are %d", ErrFrontEnd, index, len(f.d.rings))
	}
	return f.d.rings[index], nil
}

// setVring carries out a message about a ring.
func (f *frontEnd) setVring(m *message) error {
	switch m.request {
	case setVringKick, setVringCall:
		return f.setEvent(m)
	case setVringAddr:
		a, err := m.vringAddr()
		if err != nil {
			return err
		}
		v, err := f.ring(a.index)
		if err != nil {
			return err
		}
		return f.stopping(func() error {
			v.stop() // it goes on at the new place
			v.addr, v.interrupted = &a, false
			return nil
		})
	default:
	}
	v, value, err := f.vring(m)
	if err != nil {
		return err
	}
	if m.request == setVringEnable {
		if value > 1 { // QEMU enables rings before it has set features
			return fmt.Errorf("%w: ring %d is to be enabled with %d", ErrFrontEnd, v.number, value)
		}
		return f.change(func() error {
			v.enabled = value == 1
			return nil
		})
	}
	if v.ring != nil {
		return fmt.Errorf("%w: message %d about ring %d, which is used", ErrFrontEnd, m.request, v.number)
	}
	if m.request == setVringNum {
		if value == 0 || value > maxRingSize {
			return fmt.Errorf("%w: a ring of %d descriptors", ErrFrontEnd, value)
		}
		v.size = value
		return nil
	}
	v.start = value
	return nil
}

// setEvent takes the descriptor of a ring's kick or call.
func (f *frontEnd) setEvent(m *message) error {
	index, fd, err := m.vringFD()
	if err != nil {
		return err
	}
	v, err := f.ring(index)
	if err != nil {
		return err
	}
	for i := range m.fds {
		m.fds[i] = -1 // taken
	}
	if m.request == setVringKick {
		if fd < 0 {
			return fmt.Errorf("%w: ring %d is to be polled, which is not offered", ErrFrontEnd, index)
		}
		return f.change(func() error { return takeEvent(&v.kick, fd) })
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := takeEvent(&v.call, fd); err != nil || v.call < 0 {
		return err
	}
	v.raiseCall() // for a call that went to the one before
	return nil
}

// setTable takes a table of all memory. What is as it was keeps its place.
func (f *frontEnd) setTable(m *message) error {
	regions := m.regions()
	for i := range regions {
		if err := regions[i].mapRegion(m.fds[i]); err != nil {
			unmapAll(regions[:i])
			return err
		}
	}
	return f.setMemory(regions, regions)
}

func unmapAll(regions []region) {
	for i := range regions {
		_ = regions[i].unmap()
	}
}

// addRegion adds a region. It may be there already: QEMU 7.2 has a front end of its own for
// each pair of rings, and each says so.
func (f *frontEnd) addRegion(m *message) error {
	regions := m.regions()
	r := &regions[0]
	if err := r.mapRegion(m.fds[0]); err != nil {
		return err
	}
	if slices.ContainsFunc(f.memory.regions, func(o region) bool { return o.sameFile(r) }) {
		return r.unmap()
	}
	return f.setMemory(slices.Concat(f.memory.regions, regions), regions)
}

// removeRegion removes a region. It may be gone already, as with addRegion.
func (f *frontEnd) removeRegion(m *message) error {
	gone := m.regions()[0]
	left := slices.DeleteFunc(slices.Clone(f.memory.regions), func(r region) bool { return r.same(&gone) })
	if len(left) == len(f.memory.regions) {
		return nil
	}
	return f.setMemory(left, nil)
}

// setMemory has all rings use other memory, of which fresh is new, and unmaps what is not
// used any more.
func (f *frontEnd) setMemory(regions, fresh []region) error {
	m, err := newMemory(regions)
	if err != nil {
		unmapAll(fresh)
		return err
	}
	old := f.memory
	err = f.stopping(func() error {
		f.memory = m
		f.d.lender.lend(m.shared)
		for _, v := range f.d.rings {
			v.interrupt()
		}
		return nil
	})
	if f.memory != m {
		unmapAll(fresh)
		return err
	}
	return errors.Join(err, old.close(m))
}

// reset stops all rings, and forgets what was said of them.
func (f *frontEnd) reset() error {
	f.status = 0
	return f.stopping(f.forgetRings)
}

func (f *frontEnd) forgetRings() error {
	var errs []error
	for _, v := range f.d.rings {
		errs = append(errs, v.forget())
	}
	return errors.Join(errs...)
}

// end takes everything from the front end that it has given. What it has lent and is not
// back in time stays mapped until it is.
func (f *frontEnd) end() {
	_ = f.d.recall(f.memory)
	_ = f.change(func() error {
		f.d.lender.lend(nil)
		return f.forgetRings()
	})
	f.d.recalled.Store(false)
	_ = f.memory.close(nil)
}

// stopping is change for what stops rings: what they have lent is given back before.
func (f *frontEnd) stopping(fn func() error) error {
	defer f.d.recalled.Store(false)
	if err := f.d.recall(f.memory); err != nil {
		return err
	}
	return f.change(fn)
}

// change changes rings while no burst is under way, and starts those that can be.
func (f *frontEnd) change(fn func() error) error {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.queues {
		q.in.forget()
		q.out.forget()
	}
	for _, v := range d.rings {
		v.mu.Lock()
	}
	err := fn()
	for _, v := range d.rings {
		if err == nil {
			err = v.begin(f.memory, f.feats)
		}
		v.running.Store(v.ring != nil && (v.enabled || !f.agreed))
		v.mu.Unlock()
	}
	return errors.Join(err, d.wire())
}

// peerOf says who is at the other end of a connection.
func peerOf(c *net.UnixConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	name := ""
	_ = raw.Control(func(fd uintptr) {
		if u, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			name = fmt.Sprintf("pid %d, uid %d", u.Pid, u.Uid)
			if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", u.Pid)); err == nil {
				name = fmt.Sprintf("%s (%s)", string(comm[:max(len(comm)-1, 0)]), name)
			}
		}
	})
	return name
}
