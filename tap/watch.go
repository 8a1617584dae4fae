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
	"github.com/splitnic/splitnic/internal/ticker"
)

const (
	// pollInterval is how often Watch looks at what the kernel does not
	// announce, groups joined on the link layer and further unicast addresses, if a
	// frame to a group was sent meanwhile: whoever joins or leaves a group of IP
	// reports it (RFC 3376, RFC 3810).
	pollInterval = 250 * time.Millisecond
	// quietPolls is how many of these pass between two looks without such a
	// frame; and between two looks at everything where the process may not hear of
	// changes in other namespaces.
	quietPolls = 8
)

// looks is what the devices of this process have in common: a look whether one of them is
// to be looked at wakes up nobody else.
var looks ticker.Ticker

// Watch calls fn with the state of the device, and then at each change, until
// ctx is done, when it returns nil, or something fails. When the device was
// deleted, the error wraps ErrGone. The device may be renamed, and moved to
// another network namespace, meanwhile. fn is never called concurrently; while
// it runs no changes are lost, but several may become one. What is changed and
// changed back at once may be none, unless State has returned it in between: then
// fn is called with the old state, so that whoever acts on State acts again. One
// Watch runs at a time.
func (d *Device) Watch(ctx context.Context, fn func(State)) error {
	fail := func(err error) error { return fmt.Errorf("watching %s: %w", d.name, err) }
	var e *ears
	defer func() {
		if e != nil {
			e.close()
		}
	}()
	defer looks.Every(pollInterval, d.remind).Stop()
	due := true // fn is to be called
	for {
		// Subscribed first, read then: no change can be missed.
		if err := d.tun.listen(&e); err != nil {
			return fail(err)
		}
		d.ears.Store(e)
		var now State
		var seen digest
		err := d.do("reading the state", func() (err error) {
			if seen, err = d.read(&now); err != nil || seen.namespace != e.at {
				return err
			}
			d.seen = seen
			due = due || d.strayed.Load() || !now.Equal(d.reported)
			d.reported = now
			d.strayed.Store(false)
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fail(err)
		}
		if seen.namespace != e.at {
			continue // moved in between
		}
		if due {
			due = false
			fn(now)
		}
		for changed := false; !changed; {
			if changed, err = e.wait(ctx, seen.index); err != nil {
				return fail(err)
			}
			if ctx.Err() != nil {
				return nil
			}
			turn := d.turn.Swap(false)
			changed = changed || e.blind && turn
			if hinted := d.hinted(); !changed && (hinted || turn) {
				if changed, err = d.silent(seen); err != nil {
					return fail(err)
				}
			}
		}
	}
}

// State reads the device's state from the kernel. When the device was deleted
// the error wraps ErrGone.
func (d *Device) State() (State, error) {
	var s State
	err := d.do("reading the state", func() error {
		_, err := d.read(&s)
		if err == nil && !s.Equal(d.reported) {
			d.strayed.Store(true)
		}
		return err
	})
	if err != nil {
		return State{}, err
	}
	return s, nil
}

// hinted reports whether, since it was asked last, a frame was sent that may be about a
// change that the kernel does not announce, or State has returned something else than
// Watch has told.
func (d *Device) hinted() bool {
	hint := d.strayed.Load()
	for _, q := range d.queues {
		hint = q.toGroup.Swap(false) || hint
	}
	return hint
}

// remind has Watch look if there is a hint, or a glance finds something. It waits for nothing
// but the kernel, because other devices do. What Watch has not come to is said again.
func (d *Device) remind(t ticker.Tick) (rest int) {
	e := d.ears.Load()
	if e == nil {
		return 0
	}
	d.unglanced = d.unglanced || t.N%quietPolls == 0
	if d.unglanced && (e.blind || d.glance()) {
		d.unglanced = false
		d.turn.Store(true)
	}
	hint := d.turn.Load() || d.strayed.Load()
	for _, q := range d.queues {
		hint = hint || q.toGroup.Load()
	}
	if hint {
		e.interrupt()
	}
	return 0
}

// glance reports whether Watch is to look because something seems to be different from what it
// has seen: it wakes up nobody where nothing is. While somebody else asks the kernel about the
// device it leaves that for later.
func (d *Device) glance() (changed bool) {
	if !d.mu.TryLock() {
		return false
	}
	defer d.mu.Unlock()
	d.unglanced = false
	return d.closed || d.location.file == nil || d.location.id != d.seen.namespace || !d.location.unchanged(&d.seen)
}

// silent reports whether anything that the kernel does not announce is
// different from old, or State has returned something else than Watch has told.
func (d *Device) silent(old digest) (changed bool, err error) {
	err = d.do("looking for changes", func() error {
		name, err := d.locate()
		if err != nil {
			return err
		}
		l, err := d.location.link(name)
		if d.location.id != old.namespace || errors.Is(err, unix.ENODEV) {
			changed = true
			return nil
		}
		if err != nil {
			return err
		}
		lists, err := d.location.lists(&l, false)
		if l.master != 0 {
			lists.unicast = old.lists.unicast
		}
		changed = d.strayed.Load() || l.promisc != old.promisc || l.allmulti != old.allmulti || !lists.equal(old.lists)
		return err
	})
	return changed, err
}

// ears receive what the kernel announces about the devices of a namespace.
type ears struct {
	at    namespace
	file  *os.File
	conn  syscall.RawConn
	blind bool // may not hear of other namespaces
	buf   []byte
}

// listen makes *e those in the namespace that the device is in.
func (t *tun) listen(e **ears) error {
	return t.do("subscribing to changes", func() error {
		if _, err := t.locate(); err != nil {
			return err
		}
		if *e != nil && (*e).at == t.location.id {
			return nil
		}
		if *e != nil {
			(*e).close()
			*e = nil
		}
		fresh := &ears{at: t.location.id, buf: make([]byte, 64<<10)}
		err := netns.Do(fmt.Sprintf("/proc/self/fd/%d", t.location.file.Fd()), fresh.open)
		if err == nil {
			*e = fresh
		}
		return err
	})
}

// open subscribes in the calling thread's namespace.
func (e *ears) open() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	err = unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1<<(unix.RTNLGRP_LINK-1) |
		1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1)})
	if err != nil {
		return errors.Join(os.NewSyscallError("bind", err), unix.Close(s))
	}
	// What is stacked on the device may be in other namespaces. To hear of them
	// takes CAP_NET_BROADCAST.
	e.blind = unix.SetsockoptInt(s, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1) != nil
	e.file = os.NewFile(uintptr(s), "netlink")
	e.conn, err = e.file.SyscallConn()
	return err
}

func (e *ears) close() { _ = e.file.Close() } // nothing was written

// interrupt ends a wait, or the next one. Ears that are closed do not wait.
func (e *ears) interrupt() { _ = e.file.SetReadDeadline(time.Unix(1, 0)) }

// wait returns when it is interrupted, or ctx is done, or at once with true when
// something is announced that concerns the device with that index. What is announced
// meanwhile is taken with it.
func (e *ears) wait(ctx context.Context, index int) (concerned bool, err error) {
	stop := context.AfterFunc(ctx, e.interrupt)
	defer stop()
	for {
		n, announced := 0, error(nil)
		err := e.conn.Read(func(fd uintptr) bool {
			n, announced = recv(int(fd), e.buf)
			return !errors.Is(announced, unix.EAGAIN) || concerned
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			// Before the caller looks what it is interrupted for.
			return concerned, e.file.SetReadDeadline(time.Time{})
		case err != nil:
			return false, err
		case errors.Is(announced, unix.EAGAIN):
			return true, nil
		case errors.Is(announced, unix.ENOBUFS):
			concerned = true // messages were lost: one of them may have been ours
		case announced != nil:
			return false, os.NewSyscallError("recvmsg", announced)
		default:
			concerned = concerned || concerns(e.buf[:n], index)
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
