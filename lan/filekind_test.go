package lan

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// The kind of LAN interface in this file shows what a kind takes: this file, and its row in kinds,
// which TestAnotherKind adds. A port appends the frames of its host to a file, and receives none.

const toFile Kind = "file"

var fileRow = kind{
	Facts: Facts{
		Name: toFile, Argument: "PATH", Noun: "file", Example: "/tmp/frames",
		When: "frames are only to be seen", Outside: "the ports of a file",
	},
	at: func(arg, _ string) (site, error) { return fileSite(arg), nil },
}

// fileSite is the path of the file.
type fileSite string

// Info implements site.
func (s fileSite) Info() (Info, error) {
	return Info{Name: string(s), Type: string(toFile), LinkState: LinkState{Up: true, MTU: 1500}}, nil
}

// open implements site.
func (s fileSite) open(cfg Config) (Interface, error) {
	f, err := os.OpenFile(string(s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	p := &filePort{site: s, file: f, event: event, offloads: cfg.Offloads}
	p.mac.Store(&cfg.MAC)
	for range cfg.Queues {
		p.queues = append(p.queues, fileQueue{p})
	}
	return p, nil
}

// filePort is a port.
type filePort struct {
	site     fileSite
	file     *os.File
	event    int // eventfd(2): never readable, always writable
	queues   []Queue
	mac      atomic.Pointer[net.HardwareAddr]
	offloads vnet.Offloads
	down     atomic.Bool
	closed   atomic.Bool
}

var _ Interface = (*filePort)(nil)

func (p *filePort) Name() string              { return string(p.site) }
func (p *filePort) Queues() []Queue           { return p.queues }
func (p *filePort) MAC() net.HardwareAddr     { return slices.Clone(*p.mac.Load()) }
func (p *filePort) Offloads() vnet.Offloads   { return p.offloads }
func (p *filePort) Floods() bool              { return true }
func (p *filePort) SetPromisc(bool) error     { return nil }
func (p *filePort) SetAllMulti(bool) error    { return nil }
func (p *filePort) Stats() Stats              { return Stats{} }
func (p *filePort) State() (LinkState, error) { i, err := p.site.Info(); return i.LinkState, err }

func (p *filePort) SetMulticast(groups []net.HardwareAddr) error { return checkGroups(groups) }
func (p *filePort) SetUnicast(addrs []net.HardwareAddr) error    { return checkAddrs(addrs) }

func (p *filePort) SetMAC(mac net.HardwareAddr) error {
	mac = slices.Clone(mac)
	if err := checkMAC(mac); err != nil {
		return err
	}
	p.mac.Store(&mac)
	return nil
}

func (p *filePort) Watch(ctx context.Context, fn func(LinkState)) error {
	state, err := p.State()
	fn(state)
	<-ctx.Done()
	return err
}

func (p *filePort) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) { return o, nil }

func (p *filePort) SetUp(up bool) error {
	p.down.Store(!up)
	return nil
}

func (p *filePort) EarlyDiscard() discard.Status {
	return discard.Status{Reason: "a file has no queue of the kernel's"}
}

func (p *filePort) Announce(frame []byte) error { return fileQueue{p}.write(frame, nil) }

func (p *filePort) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	unix.Close(p.event)
	return p.file.Close()
}

// fileQueue is a queue of a filePort.
type fileQueue struct{ *filePort }

func (q fileQueue) FD() int      { return q.event }
func (q fileQueue) WriteFD() int { return q.event }
func (q fileQueue) Close() error { return nil } // the port does it

func (q fileQueue) ReadFrames(ops []vnet.ReadOp) int {
	if len(ops) == 0 {
		return 0
	}
	ops[0].Frame, ops[0].Err = nil, unix.EAGAIN
	return 1
}

func (q fileQueue) write(head, rest []byte) error {
	switch {
	case q.closed.Load():
		return net.ErrClosed
	case q.down.Load():
		return unix.ENETDOWN
	case len(head) < vnet.MinFrame:
		return unix.EINVAL
	}
	_, err := q.file.Write(slices.Concat(head[vnet.HdrLen:], rest)) // one call: other queues write too
	return err
}

func (q fileQueue) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = q.write(ops[i].Head, ops[i].Rest)
	}
	return len(ops)
}
