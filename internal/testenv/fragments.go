package testenv

import (
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Pieces records which fragments of IP datagrams have been seen.
type Pieces struct {
	Whole, Broken int
	bytes         map[uint32]int // seen of each datagram, by identification
	size          map[uint32]int // of each datagram whose last fragment was seen
}

// See adds a frame of [virtio_net_hdr | Ethernet frame] if it is a fragment of
// IPv4, or of IPv6 without other extension headers.
func (p *Pieces) See(frame []byte) {
	if p.bytes == nil {
		p.bytes, p.size = map[uint32]int{}, map[uint32]int{}
	}
	f := frame[vnet.HdrLen+12:]
	var id uint32
	var offset, size int
	var more bool
	switch ip := f[2:]; binary.BigEndian.Uint16(f) {
	case unix.ETH_P_IP:
		word := binary.BigEndian.Uint16(ip[6:])
		id, offset, more = uint32(binary.BigEndian.Uint16(ip[4:])), int(word&0x1fff)*8, word&0x2000 != 0
		size = int(binary.BigEndian.Uint16(ip[2:])) - 20
	case unix.ETH_P_IPV6:
		if ip[6] != unix.IPPROTO_FRAGMENT {
			return
		}
		word := binary.BigEndian.Uint16(ip[42:])
		id, offset, more = binary.BigEndian.Uint32(ip[44:]), int(word&^7), word&1 != 0
		size = int(binary.BigEndian.Uint16(ip[4:])) - 8
	default:
		return
	}
	if !more && offset == 0 {
		return
	}
	p.bytes[id] += size
	if !more {
		p.size[id] = offset + size
	}
}

// Count sets Whole and Broken to the numbers of complete and incomplete datagrams.
func (p *Pieces) Count() {
	p.Whole, p.Broken = 0, 0
	for id, n := range p.bytes {
		if n == p.size[id] {
			p.Whole++
		} else {
			p.Broken++
		}
	}
}

// Flood calls send far more often than a queue has room for what it sends. Each time it reads a few
// frames from the queue, and at the end the rest. It returns the fragments that it has read, and
// the longest time without a read.
func Flood(t testing.TB, q Port, send func()) (p Pieces, longest time.Duration) {
	t.Helper()
	const datagrams, each = 200, 7
	slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
	read := func() bool {
		frame, err := ReadFrame(q, slot)
		if err == nil {
			p.See(frame)
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		return err == nil
	}
	for read() {
	}
	p = Pieces{} // earlier datagrams may have been read in part
	last := time.Now()
	for range datagrams {
		send()
		for range each {
			read()
		}
		longest = max(longest, time.Since(last))
		last = time.Now()
	}
	for read() {
	}
	p.Count()
	return p, longest
}

// LongDatagrams returns a function that sends a UDP datagram of n bytes from a network namespace to
// addr. A full queue is no error. The function does not wait for room, as long as at most 256 MiB
// are queued.
func LongDatagrams(t testing.TB, ns, addr string, n int) func() {
	t.Helper()
	var c net.Conn
	within(t, ns, func() (err error) {
		c, err = net.Dial("udp", net.JoinHostPort(addr, "9"))
		return err
	})
	t.Cleanup(func() { c.Close() })
	setOption(t, c.(*net.UDPConn), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 256<<20)
	data := make([]byte, n)
	return func() { _, _ = c.Write(data) }
}
