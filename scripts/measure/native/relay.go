package native

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// bare is the reference: a process that reads from the host's netdevice and writes to the port
// on the LAN, and the other way round. It has the same offloads as splitnic, and nothing else:
// read(2), write(2), poll(2), one thread for each direction, no checks.
type bare struct {
	dev  *tap.Device
	port lan.Interface
	stop int // eventfd(2)
	wg   sync.WaitGroup
	ways [2]way
}

// way is one direction. Only its own thread writes it.
type way struct {
	from, to               int
	frames, bytes, refused atomic.Uint64
	_                      [64]byte // keeps the directions' counters in different cache lines
	err                    error
}

func newRelay(s subject, st *topology) (mover, error) {
	b := &bare{}
	err := b.open(s, st)
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bare) open(s subject, st *topology) error {
	var err error
	if b.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	if b.dev, err = tap.Open(tap.Config{Name: st.hostDev, NetNS: st.host, Offloads: vnet.AllOffloads,
		NoDiscard: true}); err != nil {
		return err
	}
	mac, err := b.dev.MAC()
	if err != nil {
		return err
	}
	if b.port, err = lan.Open(s.port+":"+st.nic,
		lan.Config{NetNS: st.middle, MAC: mac, Offloads: vnet.AllOffloads, NoDiscard: true}); err != nil {
		return err
	}
	if err := errors.Join(b.dev.Up(), b.dev.SetCarrier(true)); err != nil {
		return err
	}
	host, port := b.dev.Queues()[0].FD(), b.port.Queues()[0].WriteFD()
	runtime.GOMAXPROCS(runtime.NumCPU() + len(b.ways))
	for i, ends := range [2][2]int{{host, port}, {port, host}} {
		w := &b.ways[i]
		w.from, w.to = ends[0], ends[1]
		b.wg.Go(func() { w.err = w.run(b.stop) })
	}
	return nil
}

func (w *way) run(stop int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slot := make([]byte, vnet.MaxFrame)
	base := uintptr(unsafe.Pointer(unsafe.SliceData(slot)))
	defer runtime.KeepAlive(slot)
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(w.from), base, uintptr(len(slot)))
		if errno != 0 {
			if errno != unix.EAGAIN {
				return fmt.Errorf("reading a frame: %w", errno)
			}
			if stopped, err := ready(w.from, unix.POLLIN, stop); stopped || err != nil {
				return err
			}
			continue
		}
		for {
			_, _, errno = unix.RawSyscall(unix.SYS_WRITE, uintptr(w.to), base, n)
			if errno != unix.EAGAIN {
				break
			}
			if stopped, err := ready(w.to, unix.POLLOUT, stop); stopped || err != nil {
				return err
			}
		}
		if errno != 0 {
			w.refused.Add(1)
			continue
		}
		w.frames.Add(1)
		w.bytes.Add(uint64(n))
	}
}

// ready waits until fd is ready or the relay is stopped, and reports which.
func ready(fd int, events int16, stop int) (stopped bool, err error) {
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(stop), Events: unix.POLLIN}}
	for {
		_, err = unix.Poll(fds[:], -1)
		if !errors.Is(err, unix.EINTR) {
			return fds[1].Revents != 0, os.NewSyscallError("poll", err)
		}
	}
}

func (b *bare) counters() (counters, error) {
	var c counters
	for i := range b.ways {
		w := &b.ways[i]
		c.Frames[i], c.Bytes[i] = w.frames.Load(), w.bytes.Load()
		c.Refused += w.refused.Load()
	}
	return c, nil
}

func (b *bare) close() error {
	_, err := unix.Write(b.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	b.wg.Wait()
	err = errors.Join(err, b.ways[0].err, b.ways[1].err, unix.Close(b.stop))
	if b.port != nil {
		err = errors.Join(err, b.port.Close())
	}
	if b.dev != nil {
		err = errors.Join(err, b.dev.Close())
	}
	return err
}
