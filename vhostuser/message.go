package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrFrontEnd is wrapped by errors about a front end that violates the protocol.
var ErrFrontEnd = errors.New("the front end breaks the vhost-user protocol")

// request is the type of a message.
type request uint32

const (
	getFeatures         request = 1
	setFeatures         request = 2
	setOwner            request = 3
	resetOwner          request = 4
	setMemTable         request = 5
	setLogBase          request = 6
	setVringNum         request = 8
	setVringAddr        request = 9
	setVringBase        request = 10
	getVringBase        request = 11
	setVringKick        request = 12
	setVringCall        request = 13
	setVringErr         request = 14
	getProtocolFeatures request = 15
	setProtocolFeatures request = 16
	getQueueNum         request = 17
	setVringEnable      request = 18
	netSetMTU           request = 20
	resetDevice         request = 34
	getMaxMemSlots      request = 36
	addMemReg           request = 37
	remMemReg           request = 38
	setStatus           request = 39
	getStatus           request = 40
)

// Sizes in bytes, and limits.
const (
	headerSize  = 12
	regionSize  = 32
	maxRegions  = 64 // with addMemReg; the descriptors of a table come in one message
	maxTable    = 8  // VHOST_MEMORY_BASELINE_NREGIONS
	maxBody     = 8 + maxTable*regionSize
	maxRingSize = 1 << 15
)

// Flags of a message.
const (
	flagVersion   = 1
	flagReply     = 4
	flagNeedReply = 8
)

// header is the beginning of a message.
type header struct {
	request request
	flags   uint32
	size    uint32 // of the body
}

// decodeHeader decodes the headerSize bytes of b.
func decodeHeader(b []byte) (h header, err error) {
	h = header{
		request(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]),
	}
	switch {
	case h.flags&3 != flagVersion || h.flags&flagReply != 0:
		err = fmt.Errorf("%w: message %d has flags %#x", ErrFrontEnd, h.request, h.flags)
	case h.size > maxBody:
		err = fmt.Errorf("%w: message %d has %d bytes", ErrFrontEnd, h.request, h.size)
	}
	return h, err
}

// body describes the body of a request.
type body struct {
	size int // in bytes; for a memory table without the regions
	// fds is the largest number of descriptors. The content of the body determines whether one
	// may be missing.
	fds int
}

// bodies has the known requests.
var bodies = map[request]body{
	getFeatures: {}, setFeatures: {8, 0}, setOwner: {}, resetOwner: {}, setMemTable: {8, maxTable},
	setVringNum: {8, 0}, setVringAddr: {40, 0}, setVringBase: {8, 0}, getVringBase: {8, 0},
	setVringKick: {8, 1}, setVringCall: {8, 1}, setVringErr: {8, 1},
	getProtocolFeatures: {}, setProtocolFeatures: {8, 0}, getQueueNum: {}, setVringEnable: {8, 0},
	netSetMTU: {8, 0}, resetDevice: {}, getMaxMemSlots: {}, addMemReg: {8 + regionSize, 1}, remMemReg: {8 + regionSize, 1},
	setStatus: {8, 0}, getStatus: {},
}

// message is a message whose form has been checked.
type message struct {
	header
	body []byte // content depends on the request
	fds  []int  // owned by the caller
}

// check checks the form of a message, and not the values in its body.
func (m *message) check() error {
	b, known := bodies[m.request]
	switch {
	case m.request == setLogBase:
		return fmt.Errorf("%w: a log of the pages written, as for live migration, is not offered", ErrFrontEnd)
	case !known:
		return fmt.Errorf("%w: message %d is for something that was not offered", ErrFrontEnd, m.request)
	case len(m.fds) > b.fds:
		return fmt.Errorf("%w: message %d has %d descriptors; it may have %d", ErrFrontEnd, m.request, len(m.fds), b.fds)
	}
	want := b.size
	if m.request == setMemTable && len(m.body) >= b.size {
		n := binary.LittleEndian.Uint32(m.body)
		if n > maxTable {
			return fmt.Errorf("%w: a memory table of %d regions; it may have %d", ErrFrontEnd, n, maxTable)
		}
		if int(n) != len(m.fds) {
			return fmt.Errorf("%w: a memory table of %d regions with %d descriptors", ErrFrontEnd, n, len(m.fds))
		}
		want += int(n) * regionSize
	}
	if len(m.body) != want && (b.size > 0 || len(m.body) > 8) { // DPDK sends 8 bytes for an empty body
		return fmt.Errorf("%w: message %d has %d bytes instead of %d", ErrFrontEnd, m.request, len(m.body), want)
	}
	if m.request == addMemReg && len(m.fds) != 1 {
		return fmt.Errorf("%w: a region of memory without descriptor", ErrFrontEnd)
	}
	return nil
}

// number returns the number that is the body of most messages.
func (m *message) number() uint64 { return binary.LittleEndian.Uint64(m.body) }

// vring returns the body of messages about the state of a ring.
func (m *message) vring() (index, value uint32) {
	return binary.LittleEndian.Uint32(m.body), binary.LittleEndian.Uint32(m.body[4:])
}

// vringFD returns the body of messages with a descriptor of a ring. fd is -1 if there is none.
func (m *message) vringFD() (index uint32, fd int, err error) {
	const none = 1 << 8
	n := m.number()
	switch {
	case n&^(none|0xff) != 0:
		return 0, -1, fmt.Errorf("%w: message %d has %#x for a ring", ErrFrontEnd, m.request, n)
	case (n&none != 0) != (len(m.fds) == 0):
		return 0, -1, fmt.Errorf("%w: message %d has %#x, and %d descriptors", ErrFrontEnd, m.request, n, len(m.fds))
	case n&none != 0:
		return uint32(n & 0xff), -1, nil
	}
	return uint32(n & 0xff), m.fds[0], nil
}

// vringAddr has the addresses of the parts of a ring in the front end's process. The parts of a packed
// ring are the ring, and the event suppression structures of the driver and the device.
type vringAddr struct {
	index              uint32
	desc, used, driver uint64
}

const addrLog = 1 // flag: writes to the used ring have to be logged

func (m *message) vringAddr() (vringAddr, error) {
	b := m.body
	if flags := binary.LittleEndian.Uint32(b[4:]); flags&addrLog != 0 {
		return vringAddr{}, fmt.Errorf("%w: a log of a ring, which is not offered", ErrFrontEnd)
	}
	return vringAddr{
		index: binary.LittleEndian.Uint32(b), desc: binary.LittleEndian.Uint64(b[8:]),
		used: binary.LittleEndian.Uint64(b[16:]), driver: binary.LittleEndian.Uint64(b[24:]),
	}, nil
}

// appendReply appends the reply to a request.
func appendReply(b []byte, r request, body ...uint32) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(r))
	b = binary.LittleEndian.AppendUint32(b, flagVersion|flagReply)
	b = binary.LittleEndian.AppendUint32(b, uint32(4*len(body)))
	for _, w := range body {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
