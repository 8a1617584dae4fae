package claims

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

// Opcodes of the base transport header, reliable connected service
// (InfiniBand Architecture Specification, volume 1, §9.2.1).
const (
	sendLast       = 2
	sendOnly       = 4
	writeFirst     = 6
	writeMiddle    = 7
	writeLast      = 8
	writeLastImm   = 9
	writeOnly      = 10
	writeOnlyImm   = 11
	acknowledgment = 17
)

// cell is a RoCE v2 packet, which source document 001 calls a cell. Fields that its opcode does not
// have are zero.
type cell struct {
	opcode  byte
	qpn     uint32 // destination
	psn     uint32
	va      uint64 // RETH: virtual address, memory handle, length of the message
	rkey    uint32
	length  uint32
	imm     uint32 // ImmDt
	payload []byte
	crc     uint32 // ICRC
}

// parseCell decodes an Ethernet frame. ok is false if the frame is not a RoCE v2 packet over IPv4.
func parseCell(frame []byte) (c cell, ok bool) {
	const eth, udp, bth, reth, immdt, icrc = 14, 8, 12, 16, 4, 4
	if len(frame) < eth+20 || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[eth+9] != unix.IPPROTO_UDP {
		return c, false
	}
	b := frame[eth:]
	if n := int(binary.BigEndian.Uint16(b[2:])); n <= len(b) {
		b = b[:n]
	}
	b = b[int(b[0]&15)*4:]
	if len(b) < udp+bth+icrc || binary.BigEndian.Uint16(b[2:]) != 4791 {
		return c, false
	}
	b = b[udp:]
	c.opcode, c.qpn, c.psn = b[0], binary.BigEndian.Uint32(b[4:])&0xffffff, binary.BigEndian.Uint32(b[8:])&0xffffff
	pad := int(b[1]>>4) & 3
	b, c.crc = b[bth:len(b)-icrc], binary.LittleEndian.Uint32(b[len(b)-icrc:])
	if slices.Contains([]byte{writeFirst, writeOnly, writeOnlyImm}, c.opcode) {
		c.va, c.rkey, c.length = binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
		b = b[reth:]
	}
	if slices.Contains([]byte{writeLastImm, writeOnlyImm}, c.opcode) {
		c.imm = binary.BigEndian.Uint32(b)
		b = b[immdt:]
	}
	c.payload = slices.Clone(b[:max(len(b)-pad, 0)])
	return c, true
}

// wiretap collects the cells that arrive at the port of a Soft-RoCE device.
type wiretap struct {
	fd   int
	stop chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex
	cells []cell
}

// tapWire starts a wiretap on the netdevice of an RDMA device. The wiretap stops at the end of the
// test.
func tapWire(t *testing.T, rdma string) *wiretap {
	t.Helper()
	testenv.NeedRoot(t)
	netdevs := must(verbs.NetdevOf(rdma))(t)
	dev := must(net.InterfaceByName(netdevs[0]))(t)
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	w := &wiretap{stop: make(chan struct{})}
	w.fd = must(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))(t)
	timeout := unix.NsecToTimeval(int64(50 * time.Millisecond))
	if err := errors.Join(
		unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20),
		unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
		unix.Bind(w.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
	); err != nil {
		t.Fatal(err, unix.Close(w.fd))
	}
	w.wg.Go(w.run)
	t.Cleanup(func() {
		close(w.stop)
		w.wg.Wait()
		unix.Close(w.fd)
	})
	return w
}

func (w *wiretap) run() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := unix.Recvfrom(w.fd, buf, 0)
		select {
		case <-w.stop:
			return
		default:
		}
		ll, ok := from.(*unix.SockaddrLinklayer)
		if err != nil || !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if c, ok := parseCell(buf[:n]); ok {
			w.mu.Lock()
			w.cells = append(w.cells, c)
			w.mu.Unlock()
		}
	}
}

// all returns the cells so far, in order, without acknowledgements and retransmitted cells.
func (w *wiretap) all() []cell {
	w.mu.Lock()
	defer w.mu.Unlock()
	type place struct{ qpn, psn uint32 }
	seen := map[place]bool{}
	return filter(w.cells, func(c cell) bool {
		p := place{c.qpn, c.psn}
		if c.opcode == acknowledgment || seen[p] {
			return false
		}
		seen[p] = true
		return true
	})
}

// to returns those of the cells returned by all that are for queue pair qpn.
func (w *wiretap) to(qpn uint32) []cell {
	return filter(w.all(), func(c cell) bool { return c.qpn == qpn })
}
