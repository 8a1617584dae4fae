package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// relay starts the reference: it reads from the host's netdevice and writes to the port on the LAN,
// and the other way round. It has the same offloads as splitnic, and nothing else: read(2),
// write(2), poll(2), one thread for each direction, no checks.
func (s subject) relay(ctx context.Context, b *testbed.Bed, st *topology) error {
	stop, err := epoll.NewEvent()
	if err != nil {
		return err
	}
	b.Later(stop.Close)
	d, err := tap.Open(tap.Config{Name: st.hostDev, NetNS: st.host, Offloads: vnet.AllOffloads, NoDiscard: true})
	if err != nil {
		return err
	}
	b.Later(d.Close)
	mac, err := d.MAC()
	if err != nil {
		return err
	}
	port, err := lan.Open(s.port+":"+st.nic,
		lan.Config{NetNS: st.middle, MAC: mac, Offloads: vnet.AllOffloads, NoDiscard: true})
	if err != nil {
		return err
	}
	b.Later(port.Close)
	if err := errors.Join(d.Up(), d.SetCarrier(true)); err != nil {
		return err
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	tapFD, portFD := d.Queues()[0].FD(), port.Queues()[0].WriteFD()
	b.Go(func() error { return forward(tapFD, portFD, stop.FD()) })
	b.Go(func() error { return forward(portFD, tapFD, stop.FD()) })
	b.Go(func() error { <-ctx.Done(); stop.Set(); return nil })
	return nil
}

// forward moves frames from one descriptor to another until stop is readable.
func forward(from, to, stop int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slot := make([]byte, vnet.MaxFrame)
	base := uintptr(unsafe.Pointer(unsafe.SliceData(slot)))
	defer runtime.KeepAlive(slot)
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(from), base, uintptr(len(slot)))
		if errno != 0 && errno != unix.EAGAIN {
			return fmt.Errorf("reading a frame: %w", errno)
		}
		if errno != 0 {
			if stopped, err := ready(from, unix.POLLIN, stop); stopped || err != nil {
				return err
			}
			continue
		}
		for { // a frame that the device refuses is lost
			_, _, errno = unix.RawSyscall(unix.SYS_WRITE, uintptr(to), base, n)
			if errno != unix.EAGAIN {
				break
			}
			if stopped, err := ready(to, unix.POLLOUT, stop); stopped || err != nil {
				return err
			}
		}
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
