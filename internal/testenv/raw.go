package testenv

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// etherAll is ETH_P_ALL in network byte order.
const etherAll = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8

// rawSocket opens a packet socket with virtio_net_hdr on a device.
func rawSocket(t testing.TB, ns, dev string, protocol uint16) int {
	t.Helper()
	fd := -1
	within(t, ns, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return os.NewSyscallError("socket", err)
	})
	link := Link(t, ns, dev)
	if link == nil {
		t.Fatalf("no device %s in %s", dev, ns)
	}
	// Frames count against the sender's buffer until they have been read.
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Attrs().Index}),
	); err != nil {
		t.Fatal(err)
	}
	return fd
}

// SendRaw sends frames, each [virtio_net_hdr | Ethernet frame], through a device
// of the network stack in ns.
func SendRaw(t testing.TB, ns, dev string, frames ...[]byte) {
	t.Helper()
	fd := rawSocket(t, ns, dev, 0)
	defer unix.Close(fd)
	sendAll(t, fd, dev, frames)
}

// SenderRaw returns a function that sends frames like SendRaw, through a socket that is open until
// the test ends.
func SenderRaw(t testing.TB, ns, dev string) func(frames ...[]byte) {
	t.Helper()
	fd := rawSocket(t, ns, dev, 0)
	t.Cleanup(func() { unix.Close(fd) })
	return func(frames ...[]byte) {
		t.Helper()
		sendAll(t, fd, dev, frames)
	}
}

// offerRaw is SenderRaw for frames that the kernel may refuse. The function returns how many frames
// the kernel has accepted.
func offerRaw(t testing.TB, ns, dev string) func(frames ...[]byte) (taken int) {
	t.Helper()
	fd := rawSocket(t, ns, dev, 0)
	t.Cleanup(func() { unix.Close(fd) })
	return func(frames ...[]byte) (taken int) {
		for _, f := range frames {
			if unix.Send(fd, f, unix.MSG_DONTWAIT) == nil {
				taken++
			}
		}
		return taken
	}
}

func sendAll(t testing.TB, fd int, dev string, frames [][]byte) {
	t.Helper()
	for _, f := range frames {
		if err := unix.Send(fd, f, unix.MSG_DONTWAIT); err != nil {
			t.Fatalf("sending %d bytes through %s: %v", len(f), dev, err)
		}
	}
}

// Listener receives the frames that arrive at a device of the network stack.
type Listener struct {
	t  testing.TB
	fd int
}

// ListenRaw receives from dev in ns until the test ends. The device becomes
// promiscuous.
func ListenRaw(t testing.TB, ns, dev string) *Listener {
	t.Helper()
	l := ListenAsIs(t, ns, dev)
	link := Link(t, ns, dev)
	mr := unix.PacketMreq{Ifindex: int32(link.Attrs().Index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(l.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &mr); err != nil {
		t.Fatal(err)
	}
	return l
}

// ListenAsIs is ListenRaw for a device that must not become promiscuous.
func ListenAsIs(t testing.TB, ns, dev string) *Listener {
	t.Helper()
	fd := rawSocket(t, ns, dev, etherAll)
	t.Cleanup(func() { unix.Close(fd) })
	tv := unix.NsecToTimeval(int64(Patience / time.Nanosecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		t.Fatal(err)
	}
	return &Listener{t, fd}
}

// Next returns the next received frame that match accepts, without tags that
// the kernel took out; it fails the test if none comes.
func (l *Listener) Next(match func(frame []byte) bool) (frame []byte, tci int) {
	l.t.Helper()
	buf, oob := make([]byte, vnet.MaxFrame+1), make([]byte, 256)
	for {
		n, m, _, _, err := unix.Recvmsg(l.fd, buf, oob, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			l.t.Fatalf("waiting for a frame: %v", err)
		}
		if !match(buf[:n]) {
			continue
		}
		return buf[:n], auxTag(oob[:m])
	}
}

// auxTag returns the tag control information in a packet socket's control
// message, or -1.
func auxTag(oob []byte) int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 || len(msgs[0].Data) < 20 {
		return -1
	}
	d := msgs[0].Data
	if d[0]&0x10 == 0 { // TP_STATUS_VLAN_VALID
		return -1
	}
	return int(d[17])<<8 | int(d[16])
}
