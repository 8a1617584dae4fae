package native

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

const (
	udpPort = 9000
	// receiveBuffer is the size of a receive buffer in bytes. The buffer holds what arrives
	// while the receiver waits for a processor.
	receiveBuffer = 16 << 20
	// overdue is the time after which bytes that have not arrived are counted as lost.
	overdue = 5 * time.Millisecond
	// burstTime limits the backlog of a paced sender that had no processor for a time: it sends
	// at once what was due in burstTime at most.
	burstTime = 5 * time.Millisecond
)

// datagrams is a kind of datagrams.
type datagrams struct {
	name    string
	size    int // bytes of each message that the kernel gets
	segment int // bytes of each datagram, if the kernel is to cut the messages (UDP_SEGMENT)
	burst   int // messages of a system call
	window  int // bytes in flight if none may be lost: less than any queue has room for
}

// small has one frame for each message. The burst is so large that neither end limits the rate.
var small = datagrams{name: "small", size: 64, burst: 64, window: 384 * 64}

// Rates of a torrent that are not numbers of bytes per second.
const (
	asArrives  = 0  // as fast as they arrive
	asPossible = -1 // as fast as possible
)

// torrent sends datagrams, and counts those that arrive. Each end has its own thread.
type torrent struct {
	datagrams
	rate           float64 // bytes per second, or one of the above
	in, out        *os.File
	movers         errgroup.Group
	stopping       atomic.Bool
	sent, received atomic.Uint64 // bytes; a window that is lost is taken from sent
}

// newTorrent starts to send from one namespace to another. The destinations are as many addresses
// as flows, from first on; the receiver has all of them.
func newTorrent(from, to, first string, flows int, d datagrams, rate float64) (_ *torrent, err error) {
	t := &torrent{datagrams: d, rate: rate}
	if t.in, _, err = socket(to, "0.0.0.0", ""); err == nil {
		err = unix.SetsockoptInt(int(t.in.Fd()), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	}
	if err == nil {
		t.out, _, err = socket(from, "", first)
	}
	if err == nil && d.segment > 0 {
		err = unix.SetsockoptInt(int(t.out.Fd()), unix.SOL_UDP, unix.UDP_SEGMENT, d.segment)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("datagrams to %s: %w", first, err), t.stop())
	}
	for _, end := range []func() error{t.receive, func() error { return t.send(netip.MustParseAddr(first), flows) }} {
		t.movers.Go(func() error {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			err := end()
			if t.stopping.Load() {
				return nil
			}
			return err
		})
	}
	return t, nil
}

func (t *torrent) send(first netip.Addr, flows int) error {
	v := newVector(t.size, t.burst)
	v.address(first, flows)
	begin, due := time.Now(), 0. // position in the schedule, in bytes
	for !t.stopping.Load() {
		switch {
		case t.rate > 0:
			now := time.Since(begin).Seconds() * t.rate
			if due > now {
				time.Sleep(min(time.Duration((due-now)/t.rate*1e9), burstTime/5))
				continue
			}
			due = max(due, now-burstTime.Seconds()*t.rate) + float64(t.size*t.burst)
		case t.rate == asArrives:
			t.room()
		}
		n, err := v.call(unix.SYS_SENDMMSG, int(t.out.Fd()), 0)
		// A full queue on the way, or nobody at the other end, is not an error of the sender.
		if err != nil && !slices.Contains([]error{unix.EINTR, unix.ENOBUFS, unix.EAGAIN, unix.ECONNREFUSED}, err) {
			return os.NewSyscallError("sendmmsg", err)
		}
		t.sent.Add(uint64(n * t.size))
	}
	return nil
}

// room waits until the window has room for another call, if it is full until half of it has room.
// If nothing arrives for a while, the bytes in flight are lost.
func (t *torrent) room() {
	flying := func() int { return int(t.sent.Load() - t.received.Load()) }
	if flying() <= t.window-t.size*t.burst {
		return
	}
	last, since := t.received.Load(), time.Now()
	for flying() > max(t.window/2-t.size, 0) && !t.stopping.Load() {
		if r := t.received.Load(); r != last {
			last, since = r, time.Now()
		} else if time.Since(since) > overdue {
			t.sent.Store(r)
		}
		time.Sleep(20 * time.Microsecond)
	}
}

func (t *torrent) receive() error {
	want := t.size
	if t.segment > 0 {
		want = t.segment
	}
	v := newVector(want+1, 64)
	for !t.stopping.Load() {
		n, err := v.call(unix.SYS_RECVMMSG, int(t.in.Fd()), unix.MSG_WAITFORONE)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvmmsg", err)
		}
		for i := range n {
			if got := int(v.msgs[i].Len); got != want {
				return fmt.Errorf("received %d bytes instead of %d", got, want)
			}
		}
		t.received.Add(uint64(n * want))
	}
	return nil
}

func (t *torrent) count() uint64 { return t.received.Load() }

// stop ends both threads, closes the sockets, and returns the first error that occurred before.
func (t *torrent) stop() error {
	t.stopping.Store(true)
	if t.in != nil {
		_ = unix.Shutdown(int(t.in.Fd()), unix.SHUT_RDWR) // wakes the receiver; fails: the socket is not connected
	}
	err := t.movers.Wait()
	for _, f := range []*os.File{t.in, t.out} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// vector is the argument of sendmmsg(2) and recvmmsg(2).
type vector struct {
	msgs []unix.Mmsghdr
	iovs []unix.Iovec
	to   []unix.RawSockaddrInet4
}

func newVector(size, n int) *vector {
	v := &vector{make([]unix.Mmsghdr, n), make([]unix.Iovec, n), make([]unix.RawSockaddrInet4, n)}
	data := make([]byte, n*size)
	for i := range v.msgs {
		v.iovs[i].Base = &data[i*size]
		v.iovs[i].SetLen(size)
		v.msgs[i].Hdr.Iov = &v.iovs[i]
		v.msgs[i].Hdr.SetIovlen(1)
	}
	return v
}

// data returns the bytes of a message.
func (v *vector) data(i int) []byte { return unsafe.Slice(v.iovs[i].Base, v.iovs[i].Len) }

// address distributes the messages over n destination addresses, from first on.
func (v *vector) address(first netip.Addr, n int) {
	for i := range v.msgs {
		a := first.As4()
		a[3] += byte(i % n)
		v.to[i] = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: udpPort>>8&0xff | udpPort<<8&0xff00, Addr: a}
		v.msgs[i].Hdr.Name = (*byte)(unsafe.Pointer(&v.to[i]))
		v.msgs[i].Hdr.Namelen = unix.SizeofSockaddrInet4
	}
}

func (v *vector) call(trap uintptr, fd, flags int) (int, error) {
	n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&v.msgs[0])), uintptr(len(v.msgs)),
		uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// roundTrips repeatedly sends a datagram and waits for its answer, for about d. It returns the
// round-trip times in µs, sorted.
func roundTrips(from, to, addr string, d time.Duration) (times []float64, err error) {
	server, _, err := socket(to, addr, "")
	if err != nil {
		return nil, err
	}
	defer server.Close()
	client, own, err := socket(from, "", addr)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	at := &unix.SockaddrInet4{Port: int(own.Port()), Addr: own.Addr().As4()}
	if err := unix.Connect(int(server.Fd()), at); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	served := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		served <- echo(server)
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	msg := make([]byte, small.size)
	for begin := time.Now(); err == nil && (len(times) == 0 || time.Since(begin) < d); {
		sent := time.Now()
		if _, err = client.Write(msg); err == nil {
			_, err = client.Read(msg)
		}
		times = append(times, time.Since(sent).Seconds()*1e6)
	}
	_, err2 := client.Write(msg[:1]) // ends echo
	slices.Sort(times)
	return times, errors.Join(err, err2, <-served)
}

// echo answers requests until one has a single byte.
func echo(f *os.File) error {
	buf := make([]byte, small.size)
	for {
		n, err := f.Read(buf)
		if err == nil && n > 1 {
			_, err = f.Write(buf[:n])
		}
		if err != nil || n == 1 {
			return err
		}
	}
}

// socket opens a UDP socket in a namespace, at local or connected to remote, and returns its address.
// Its calls block, for patience at most, without Go's poller.
func socket(ns, local, remote string) (f *os.File, at netip.AddrPort, err error) {
	var c *net.UDPConn
	err = netns.Do(ns, func() (err error) {
		if remote != "" {
			c, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(remote), Port: udpPort})
		} else {
			c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(local), Port: udpPort})
		}
		return err
	})
	if err != nil {
		return nil, at, err
	}
	defer c.Close()
	if f, err = c.File(); err != nil {
		return nil, at, err
	}
	fd, tv := int(f.Fd()), unix.NsecToTimeval(int64(patience)) // Fd makes it block
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv))
	return f, c.LocalAddr().(*net.UDPAddr).AddrPort(), err
}
