package tap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// subscription receives the kernel's announcements about the devices of a network namespace.
type subscription struct {
	at    namespace
	file  *os.File
	conn  syscall.RawConn
	blind bool // no permission to receive announcements from other namespaces
	buf   []byte
}

// subscribe makes *s a subscription in the namespace of the device, unless it is one already.
func (t *tun) subscribe(s **subscription) error {
	return t.do("subscribing to changes", func() error {
		if _, err := t.locate(); err != nil {
			return err
		}
		if *s != nil && (*s).at == t.location.id {
			return nil
		}
		if *s != nil {
			(*s).close()
			*s = nil
		}
		fresh := &subscription{at: t.location.id, buf: make([]byte, 64<<10)}
		err := netns.Do(fmt.Sprintf("/proc/self/fd/%d", t.location.file.Fd()), fresh.open)
		if err == nil {
			*s = fresh
		}
		return err
	})
}

// open subscribes in the calling thread's namespace.
func (s *subscription) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1<<(unix.RTNLGRP_LINK-1) |
		1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1)})
	if err != nil {
		return errors.Join(os.NewSyscallError("bind", err), unix.Close(fd))
	}
	// Devices stacked on the device may be in other namespaces. Announcements from there
	// require CAP_NET_BROADCAST.
	s.blind = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1) != nil
	s.file = os.NewFile(uintptr(fd), "netlink")
	s.conn, err = s.file.SyscallConn()
	return err
}

func (s *subscription) close() { _ = s.file.Close() } // nothing was written

// interrupt ends a wait in progress, or the next one. It does nothing if s is closed.
func (s *subscription) interrupt() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) }

// wait returns when it is interrupted or ctx is done. When an announcement concerns the device
// with this index, it reads those that have arrived by then too, and returns true at once.
func (s *subscription) wait(ctx context.Context, index int) (concerned bool, err error) {
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	for {
		n, announced := 0, error(nil)
		err := s.conn.Read(func(fd uintptr) bool {
			n, announced = recv(int(fd), s.buf)
			return !errors.Is(announced, unix.EAGAIN) || concerned
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The deadline is removed before the caller looks for the reason of the interrupt.
			return concerned, s.file.SetReadDeadline(time.Time{})
		case err != nil:
			return false, err
		case errors.Is(announced, unix.EAGAIN):
			return true, nil
		case errors.Is(announced, unix.ENOBUFS):
			concerned = true // messages were lost, perhaps one about the device
		case announced != nil:
			return false, os.NewSyscallError("recvmsg", announced)
		default:
			concerned = concerned || concerns(s.buf[:n], index)
		}
	}
}

// recv receives one datagram from the kernel without waiting.
func recv(fd int, buf []byte) (int, error) {
	for {
		n, from, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if err == unix.EINTR {
			continue
		}
		if a, ok := from.(*unix.SockaddrNetlink); err == nil && (!ok || a.Pid != nl.PidKernel) {
			continue
		}
		return n, err
	}
}

// concerns reports whether one of the messages is about the device with this index, or about
// a device stacked on it. Messages from other namespaces use the same indexes for other
// devices. The result may then be wrong, and the device is checked in vain.
func concerns(datagram []byte, index int) bool {
	msgs, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return true
	}
	for _, m := range msgs {
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			l, err := parseLink(m.Data)
			if err != nil || l.index == index || int(l.lower) == index {
				return true
			}
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			// The last field of struct ifaddrmsg is the index.
			if len(m.Data) < unix.SizeofIfAddrmsg || int(binary.NativeEndian.Uint32(m.Data[4:])) == index {
				return true
			}
		}
	}
	return false
}
