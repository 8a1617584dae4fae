package native

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	udpPayload = 64 // bytes
	udpPort    = 9000
	// burst is the greatest number of datagrams that one system call sends or receives. It is
	// so large that neither end limits the rate.
	burst = 64
	// receiveBuffer is the size of a receive buffer in bytes. The buffer holds what arrives
	// while the receiver waits for a processor.
	receiveBuffer = 16 << 20
	// inFlight is the greatest number of frames in flight if none may be lost. The queue of a
	// TAP device has room for more.
	inFlight = 384
	// overdue is the time after which frames that have not arrived are counted as lost.
	overdue = 5 * time.Millisecond
)

// mmsg is struct mmsghdr of <sys/socket.h>.
type mmsg struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

// vector is the argument of sendmmsg(2) and recvmmsg(2).
type vector struct {
	msgs [burst]mmsg
	iovs [burst]unix.Iovec
	to   [burst]unix.RawSockaddrInet4
}

func newVector(size int) *vector {
	v := &vector{}
	data := make([]byte, burst*size)
	for i := range v.msgs {
		v.iovs[i].Base = &data[i*size]
		v.iovs[i].SetLen(size)
		v.msgs[i].hdr.Iov = &v.iovs[i]
		v.msgs[i].hdr.SetIovlen(1)
	}
	return v
}

// each calls fn with the bytes of each message.
func (v *vector) each(fn func(b []byte)) {
	for i := range v.iovs {
		fn(unsafe.Slice(v.iovs[i].Base, v.iovs[i].Len))
	}
}

// address distributes the messages over n destination addresses, from first on.
func (v *vector) address(first netip.Addr, n int) {
	for i := range v.msgs {
		a := first.As4()
		a[3] += byte(i % n)
		v.to[i] = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: udpPort>>8&0xff | udpPort<<8&0xff00, Addr: a}
		v.msgs[i].hdr.Name = (*byte)(unsafe.Pointer(&v.to[i]))
		v.msgs[i].hdr.Namelen = unix.SizeofSockaddrInet4
	}
}

func (v *vector) call(trap uintptr, fd, flags int) (int, error) {
	n, _, errno := unix.Syscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(&v.msgs)), burst, uintptr(flags), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// ends has the sockets of a sender and a receiver of datagrams. Each has its own thread.
type ends struct {
	in, out  int
	wg       sync.WaitGroup
	stopping atomic.Bool
	errs     [2]error
}

// open opens the sockets. That of the receiver is in namespace to, and bound to addr.
func (e *ends) open(from, to, addr string) (err error) {
	e.in, e.out = -1, -1
	if e.in, err = socket(to, unix.SOCK_DGRAM); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(e.in, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(e.in, sockaddr(addr, udpPort)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	e.out, err = socket(from, unix.SOCK_DGRAM)
	return err
}

// run starts both threads.
func (e *ends) run(receive, send func() error) {
	for i, end := range []func() error{receive, send} {
		e.wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := end(); err != nil && !e.stopping.Load() {
				e.errs[i] = err
			}
		})
	}
}

// stop ends both threads, closes the sockets, and returns the errors that occurred before.
func (e *ends) stop() error {
	e.stopping.Store(true)
	for _, fd := range []int{e.in, e.out} {
		if fd >= 0 {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR) // wakes the thread; fails because the socket is not connected
		}
	}
	e.wg.Wait()
	err := errors.Join(e.errs[:]...)
	for _, fd := range []int{e.in, e.out} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// blast sends small datagrams as fast as it can, or as fast as they arrive, and counts the
// datagrams that arrive.
type blast struct {
	ends
	wake           int  // eventfd(2) that wakes the sender
	flood          bool // send as fast as it can
	waiting        atomic.Bool
	sent, received atomic.Uint64
	lost           atomic.Uint64 // sent datagrams that are lost, as far as is known
}

// newBlast starts to send from one namespace to another. The destinations are as many addresses
// as flows, from first on; the receiver has all of them.
func newBlast(from, to string, first netip.Addr, flows int, flood bool) (*blast, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	b := &blast{wake: wake, flood: flood}
	if err := b.open(from, to, "0.0.0.0"); err != nil {
		return nil, errors.Join(fmt.Errorf("datagrams to %v: %w", first, err), b.stop())
	}
	b.run(b.receive, func() error { return b.send(first, flows) })
	return b, nil
}

func (b *blast) send(first netip.Addr, flows int) error {
	v := newVector(udpPayload)
	v.address(first, flows)
	for !b.stopping.Load() {
		if !b.flood {
			if err := b.room(); err != nil {
				return err
			}
		}
		n, err := v.call(unix.SYS_SENDMMSG, b.out, 0)
		// A full queue on the way is not an error of the sender.
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			return os.NewSyscallError("sendmmsg", err)
		}
		b.sent.Add(uint64(n))
	}
	return nil
}

// onTheWay returns how many frames have been sent, and have neither arrived nor been counted as
// lost. The result is negative if frames were counted as lost too early.
func (b *blast) onTheWay() int {
	return int(int64(b.sent.Load() - b.received.Load() - b.lost.Load()))
}

// room waits until a burst may be sent.
func (b *blast) room() error {
	fds := []unix.PollFd{{Fd: int32(b.wake), Events: unix.POLLIN}}
	for !b.stopping.Load() {
		switch n := b.onTheWay(); {
		case n < 0:
			b.lost.Add(uint64(int64(n)))
			return nil
		case n <= inFlight-burst:
			return nil
		}
		b.waiting.Store(true)
		if b.onTheWay() <= inFlight/2 {
			continue // the receiver may not have seen that b.waiting is set
		}
		n, err := unix.Poll(fds, int(overdue/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			b.lost.Add(uint64(max(b.onTheWay(), 0)))
		default:
			var got [8]byte
			_, _ = unix.Read(b.wake, got[:])
		}
	}
	return nil
}

func (b *blast) receive() error {
	v := newVector(2 * udpPayload)
	for !b.stopping.Load() {
		n, err := v.call(unix.SYS_RECVMMSG, b.in, unix.MSG_WAITFORONE)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvmmsg", err)
		}
		for i := range n {
			if v.msgs[i].n != udpPayload {
				return fmt.Errorf("received %d bytes instead of %d", v.msgs[i].n, udpPayload)
			}
		}
		b.received.Add(uint64(n))
		if b.waiting.Load() && b.onTheWay() <= inFlight/2 {
			b.waiting.Store(false)
			_, _ = unix.Write(b.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // the counter cannot overflow
		}
	}
	return nil
}

func (b *blast) count() uint64 { return b.received.Load() }

func (b *blast) stop() error { return errors.Join(b.ends.stop(), unix.Close(b.wake)) }

// roundTrips repeatedly sends a datagram and waits for its answer, for about d. It returns the
// round-trip times in ascending order.
func roundTrips(from, to, addr string, d time.Duration) (times []time.Duration, err error) {
	server, err := socket(to, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(server)
	client, err := socket(from, unix.SOCK_DGRAM)
	if err != nil {
		return nil, err
	}
	defer unix.Close(client)
	if err := unix.Bind(server, sockaddr(addr, udpPort)); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Connect(client, sockaddr(addr, udpPort)); err != nil {
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
	msg := make([]byte, udpPayload)
	ask := func() error {
		if _, err := whole(func() (int, error) { return unix.Write(client, msg) }); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		n, err := whole(func() (int, error) { return unix.Read(client, msg) })
		if err == nil && n != len(msg) {
			err = fmt.Errorf("%d bytes", n)
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		return nil
	}
	times = make([]time.Duration, 0, 1<<18)
	for begin := time.Now(); err == nil && len(times) < cap(times); {
		sent := time.Now()
		err = ask()
		now := time.Now()
		times = append(times, now.Sub(sent))
		if now.Sub(begin) > d {
			break
		}
	}
	_ = unix.Shutdown(server, unix.SHUT_RDWR) // wakes echo; fails because the socket is not connected
	slices.Sort(times)
	return times, errors.Join(err, <-served)
}

// echo answers requests until the socket is shut down.
func echo(fd int) error {
	buf := make([]byte, 2*udpPayload)
	var from unix.Sockaddr
	for {
		n, err := whole(func() (n int, err error) {
			n, from, err = unix.Recvfrom(fd, buf, 0)
			return n, err
		})
		if err == nil && n < udpPayload {
			return nil
		}
		if err == nil {
			_, err = whole(func() (int, error) { return 0, unix.Sendto(fd, buf[:n], 0, from) })
		}
		if err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
}
