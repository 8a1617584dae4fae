package testenv

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// Relay moves frames between ports within the process, in place of a fabric.
type Relay struct {
	t    testing.TB
	stop int // an eventfd: readable means stop
	wg   sync.WaitGroup
	once sync.Once
}

// Traffic counts one direction of a relay.
type Traffic struct {
	Frames  atomic.Int64 // frames moved
	Super   atomic.Int64 // super-frames among Frames
	TCP     atomic.Int64 // TCP super-frames
	UDP     atomic.Int64 // UDP super-frames
	Tagged  atomic.Int64 // frames with a VLAN tag among Frames
	Longest atomic.Int64 // size of the longest frame in bytes, with its virtio_net_hdr
	Refused atomic.Int64 // frames that the port has refused for any reason
}

// NewRelay returns a relay without ports. It ends with the test, before the
// cleanups registered earlier.
func NewRelay(t testing.TB) *Relay {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{t: t, stop: fd}
	t.Cleanup(r.Stop)
	return r
}

// Stop ends the relay and returns when its goroutines have ended.
func (r *Relay) Stop() {
	r.once.Do(func() {
		if _, err := unix.Write(r.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			r.t.Error(err)
		}
		r.wg.Wait()
		unix.Close(r.stop)
	})
}

// Join relays between a and b, both ways. Every frame has to pass vnet.Check
// with the MTU. It returns the traffic from a to b, and from b to a.
func (r *Relay) Join(a, b Port, mtu int) (ab, ba *Traffic) {
	return r.Pipe(a, b, mtu), r.Pipe(b, a, mtu)
}

// Pipe relays from one port to another only.
func (r *Relay) Pipe(from, to Port, mtu int) *Traffic {
	tr := new(Traffic)
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		if err := r.run(from, to, mtu, tr); err != nil {
			r.t.Errorf("relay: %v", err)
		}
	}()
	return tr
}

func (r *Relay) run(from, to Port, mtu int, tr *Traffic) error {
	slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
	for {
		frame, err := ReadFrame(from, slot)
		switch {
		case errors.Is(err, unix.EAGAIN):
			stop, err := r.wait(from.FD(), unix.POLLIN)
			if stop || err != nil {
				return err
			}
			continue
		case errors.Is(err, vnet.ErrTooLong):
			continue
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("reading: %w", err)
		}
		if err := vnet.Check(frame, mtu); err != nil {
			return fmt.Errorf("a frame of %d bytes from the kernel, % x...: %w", len(frame), frame[:vnet.MinFrame], err)
		}
		tr.count(frame)
		for {
			err = WriteFrame(to, frame)
			if !errors.Is(err, unix.EAGAIN) {
				break
			}
			stop, err := r.wait(writeFD(to), unix.POLLOUT)
			if stop || err != nil {
				return err
			}
		}
		if err != nil {
			tr.Refused.Add(1)
		}
	}
}

// writeFD returns the descriptor to poll before writing.
func writeFD(p Port) int {
	if w, ok := p.(interface{ WriteFD() int }); ok {
		return w.WriteFD()
	}
	return p.FD()
}

// wait sleeps until fd is ready and reports whether to stop instead.
func (r *Relay) wait(fd int, events int16) (stop bool, err error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(r.stop), Events: unix.POLLIN}}
	for {
		_, err = unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return fds[1].Revents != 0, err
		}
	}
}

func (tr *Traffic) count(frame []byte) {
	tr.Frames.Add(1)
	if n := int64(len(frame)); n > tr.Longest.Load() {
		tr.Longest.Store(n)
	}
	if frame[vnet.HdrLen+12] == 0x81 && frame[vnet.HdrLen+13] == 0 {
		tr.Tagged.Add(1)
	}
	switch frame[1] &^ vnet.GSOECN {
	case vnet.GSONone:
		return
	case vnet.GSOUDPL4:
		tr.UDP.Add(1)
	default:
		tr.TCP.Add(1)
	}
	tr.Super.Add(1)
}

// String implements fmt.Stringer.
func (tr *Traffic) String() string {
	return fmt.Sprintf("%d frames, %d super-frames (%d TCP, %d UDP), %d tagged, longest %d bytes, %d refused",
		tr.Frames.Load(), tr.Super.Load(), tr.TCP.Load(), tr.UDP.Load(), tr.Tagged.Load(), tr.Longest.Load(),
		tr.Refused.Load())
}
