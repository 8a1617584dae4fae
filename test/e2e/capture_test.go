package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// captured is a frame from a packet socket, with the information that the socket has about it.
type captured struct {
	frame      []byte // valid during the call only
	outgoing   bool   // sent by the device, as opposed to received
	unfinished bool   // the checksum is not computed yet (checksum offload)
}

// capture is a running packet capture.
type capture struct {
	t    testing.TB
	fd   int
	stop chan struct{}
	wg   sync.WaitGroup
	once sync.Once
}

// startCapture starts a capture, which calls fn, from one goroutine, with every frame that passes
// dev in ns until close is called.
func startCapture(t testing.TB, ns, dev string, fn func(captured)) *capture {
	t.Helper()
	c := &capture{t: t, fd: -1, stop: make(chan struct{})}
	link := testenv.Link(t, ns, dev)
	if link == nil {
		t.Fatalf("no device %s in %s", dev, ns)
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	err := netns.Do(ns, func() (err error) {
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(os.NewSyscallError("socket", err))
	}
	if err := errors.Join(
		unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptInt(c.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		setDeadline(c.fd, 100*time.Millisecond),
		unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index}),
	); err != nil {
		t.Fatal(errors.Join(err, unix.Close(c.fd)))
	}
	c.wg.Go(func() { c.run(fn) })
	t.Cleanup(c.close)
	return c
}

// run receives frames until stop is closed and no more frames are queued.
func (c *capture) run(fn func(captured)) {
	buf, oob := make([]byte, 128<<10), make([]byte, 256)
	for {
		n, m, _, from, err := unix.Recvmsg(c.fd, buf, oob, 0)
		switch {
		case err == nil:
			ll, ok := from.(*unix.SockaddrLinklayer)
			fn(captured{buf[:n], ok && ll.Pkttype == unix.PACKET_OUTGOING, unfinished(oob[:m])})
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			select {
			case <-c.stop:
				return
			default:
			}
		default:
			c.t.Errorf("capture: %v", err)
			return
		}
	}
}

// close ends the capture. When it returns, fn has been called with every frame that passed before.
func (c *capture) close() {
	c.once.Do(func() {
		close(c.stop)
		c.wg.Wait()
		unix.Close(c.fd)
	})
}

// unfinished reports whether a frame's checksum is not computed yet, which is
// TP_STATUS_CSUMNOTREADY in the struct tpacket_auxdata of the control message.
func unfinished(oob []byte) bool {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 || len(msgs[0].Data) < 4 {
		return false
	}
	const csumNotReady = 1 << 3
	return binary.NativeEndian.Uint32(msgs[0].Data)&csumNotReady != 0
}

// frameCheck checks the frames that a device receives.
type frameCheck struct {
	*capture
	mtu     int
	checked int // number of TCP and UDP checksums that were checked
	bad     int
	errs    []error // errors of the first bad frames
}

// checkFrames starts a check that the frames that dev receives are fit for a wire: not longer than
// the MTU, and with valid checksums.
func checkFrames(t testing.TB, ns, dev string, mtu int) *frameCheck {
	t.Helper()
	f := &frameCheck{mtu: mtu}
	f.capture = startCapture(t, ns, dev, f.see)
	return f
}

func (f *frameCheck) see(c captured) {
	if c.outgoing {
		return
	}
	checked, err := checkFrame(c.frame, f.mtu)
	if c.unfinished {
		err = errors.New("its checksum is not computed")
	}
	if checked {
		f.checked++
	}
	if err != nil {
		if f.bad++; f.bad <= 3 {
			f.errs = append(f.errs, fmt.Errorf("frame of %d bytes, % x…: %w", len(c.frame), c.frame[:min(54, len(c.frame))],
				err))
		}
	}
}

// finish ends the check. It fails the test if a frame was bad, or if fewer than least checksums
// were checked.
func (f *frameCheck) finish(least int) {
	f.t.Helper()
	f.close()
	if f.bad > 0 {
		f.t.Errorf("%d of %d frames are not fit for a wire: %v", f.bad, f.checked, errors.Join(f.errs...))
	}
	if f.checked < least {
		f.t.Errorf("only %d checksums were checked, expected %d or more", f.checked, least)
	}
}

// checkFrame checks the length and the checksums of an Ethernet frame. checked is whether the
// frame has a TCP or UDP checksum that was checked.
func checkFrame(frame []byte, mtu int) (checked bool, err error) {
	if len(frame) < 14 {
		return false, errors.New("no Ethernet header")
	}
	proto, b := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	if proto == unix.ETH_P_8021Q && len(b) >= 4 {
		proto, b = binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	if len(b) > mtu {
		return false, fmt.Errorf("longer than the MTU %d: not segmented", mtu)
	}
	switch {
	case proto == unix.ETH_P_IP && len(b) >= 20:
		header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || total < header || total > len(b) {
			return false, errors.New("IPv4 lengths do not fit the frame")
		}
		if onesSum(0, b[:header]) != 0xffff {
			return false, errors.New("IPv4 header checksum")
		}
		if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
			return false, nil // a fragment: the checksum is that of the whole datagram
		}
		return checkTransport(b[9], onesSum(0, b[12:20]), b[header:total])
	case proto == unix.ETH_P_IPV6 && len(b) >= 40:
		length := int(binary.BigEndian.Uint16(b[4:]))
		if length > len(b)-40 {
			return false, errors.New("IPv6 length does not fit the frame")
		}
		return checkTransport(b[6], onesSum(0, b[8:40]), b[40:40+length])
	}
	return false, nil
}

// checkTransport checks the checksum of a TCP segment or UDP datagram. pseudo is the sum over the
// IP addresses. It reports whether there was a checksum to check.
func checkTransport(proto byte, pseudo uint32, b []byte) (bool, error) {
	switch {
	case proto == unix.IPPROTO_TCP && len(b) >= 20:
	case proto == unix.IPPROTO_UDP && len(b) >= 8:
		if binary.BigEndian.Uint16(b[6:]) == 0 {
			return false, errors.New("UDP checksum is missing")
		}
	default:
		return false, nil
	}
	if onesSum(pseudo+uint32(proto)+uint32(len(b)), b) != 0xffff {
		return true, fmt.Errorf("checksum of protocol %d", proto)
	}
	return true, nil
}

// onesSum returns sum plus the one's complement sum of b, folded to 16 bits (RFC 1071).
func onesSum(sum uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return sum
}

func TestCheckFrame(t *testing.T) {
	// 10.0.0.1:1000 to 10.0.0.2:2000, UDP, "hello".
	good := []byte{
		0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 8, 0,
		0x45, 0, 0, 33, 0, 0, 0, 0, 64, 17, 0x66, 0xca, 10, 0, 0, 1, 10, 0, 0, 2,
		3, 0xe8, 7, 0xd0, 0, 13, 0x9c, 0x51, 'h', 'e', 'l', 'l', 'o',
	}
	header := onesSum(0, append(append([]byte{}, good[14:24]...), good[26:34]...))
	binary.BigEndian.PutUint16(good[24:], ^uint16(header))
	udp := append([]byte{}, good[34:]...)
	udp[6], udp[7] = 0, 0
	binary.BigEndian.PutUint16(good[40:], ^uint16(onesSum(onesSum(0, good[26:34])+17+13, udp)))
	if checked, err := checkFrame(good, 1500); !checked || err != nil {
		t.Errorf("a good frame: checked %t, %v", checked, err)
	}
	if _, err := checkFrame(good, 32); err == nil {
		t.Error("a frame over the MTU passes")
	}
	for i := 14; i < len(good); i++ {
		if i == 20 || i == 21 {
			continue // turns the frame into a fragment; the header's checksum detects that
		}
		bad := append([]byte{}, good...)
		bad[i] ^= 0x55
		if _, err := checkFrame(bad, 1500); err == nil {
			t.Errorf("a change of byte %d is not noticed", i)
		}
	}
}
