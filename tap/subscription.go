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

// subscription is to what the kernel announces about the devices of a namespace.
type subscription struct {
	at    namespace
	file  *os.File
	conn  syscall.RawConn
	blind bool // may not hear of other namespaces
	buf   []byte
}

// subscribe makes *s the subscription in the namespace that the device is in.
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
	// What is stacked on the device may be in other namespaces. To hear of them
	// takes CAP_NET_BROADCAST.
	s.blind = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1) != nil
	s.file = os.NewFile(uintptr(fd), "netlink")
	s.conn, err = s.file.SyscallConn()
	return err
}

func (s *subscription) close() { _ = s.file.Close() } // nothing was written

// interrupt ends a wait, or the next one. A subscription that is closed does not wait.
func (s *subscription) interrupt() { _ = s.file.SetReadDeadline(time.Unix(1, 0)) }

// wait returns when it is interrupted, or ctx is done, or at once with true when
// something is announced that concerns the device with that index. What is announced
// meanwhile is taken with it.
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
			// Before the caller looks what it is interrupted for.
			return concerned, s.file.SetReadDeadline(time.Time{})
		case err != nil:
			return false, err
		case errors.Is(announced, unix.EAGAIN):
			return true, nil
		case errors.Is(announced, unix.ENOBUFS):
			concerned = true // messages were lost: one of them may have been ours
		case announced != nil:
			return false, os.NewSyscallError("recvmsg", announced)
		default:
			concerned = concerned || concerns(s.buf[:n], index)
		}
	}
}

// recv receives one datagram of the kernel's without waiting.
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

// concerns reports whether one of the messages is about the device with that
// index, or about one that is stacked on it. Messages of other namespaces use
// the same numbers for other devices: then it may be wrong, and the device is
// looked at in vain.
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
			// struct ifaddrmsg, whose last field is the index
			if len(m.Data) < unix.SizeofIfAddrmsg || int(binary.NativeEndian.Uint32(m.Data[4:])) == index {
				return true
			}
		}
	}
	return false
}
