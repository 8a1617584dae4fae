package native

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// experimental is the EtherType of frames between packet sockets (IEEE Std 802, local
// experimental).
const experimental = 0x88b5

// header is the Ethernet header of the frames.
var header = []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, experimental >> 8, experimental & 0xff}

// packetSocket opens a packet socket on a netdevice. The socket receives frames of etherType, or
// none if etherType is 0.
func packetSocket(ns, name string, etherType uint16) (fd int, err error) {
	fd = -1
	err = netns.Do(ns, func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{
			Ifindex: i.Index, Protocol: etherType>>8 | etherType<<8, // in network byte order
		}); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
	return fd, err
}

// send starts to send frames by a packet socket on a netdevice, as fast as the netdevice accepts
// them.
func (v *vhostBed) send(ctx context.Context, ns, name string) error {
	fd, err := packetSocket(ns, name, 0)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	frames := newVector(vhostFrame)
	frames.each(func(b []byte) { copy(b, header) })
	v.tasks.Go(func() error {
		for ctx.Err() == nil {
			_, _ = frames.call(unix.SYS_SENDMMSG, fd, 0) // frames that a full queue does not take are lost
		}
		return unix.Close(fd)
	})
	return nil
}

// receive starts to receive frames of a netdevice by a packet socket. count returns their number.
func (v *vhostBed) receive(ctx context.Context, ns, name string) (count func() (uint64, error), err error) {
	fd, err := packetSocket(ns, name, experimental)
	if err != nil {
		return nil, err
	}
	wake := unix.NsecToTimeval(int64(100 * time.Millisecond)) // to see that ctx has ended
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wake),
	); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	frames := newVector(vhostFrame)
	got := new(atomic.Uint64)
	v.tasks.Go(func() error {
		for ctx.Err() == nil {
			// Errors are normal: no frame for a while, or no netdevice, which is removed before
			// the socket is closed.
			n, _ := frames.call(unix.SYS_RECVMMSG, fd, unix.MSG_WAITFORONE)
			got.Add(uint64(n))
		}
		return unix.Close(fd)
	})
	return func() (uint64, error) { return got.Load(), nil }, nil
}
