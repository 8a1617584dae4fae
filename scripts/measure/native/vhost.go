package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// The measurements of vhost-user ports, with frames of 64 bytes and one queue, and their
// subjects.
const (
	vhostPrefix = "vhost."
	vhostOut    = vhostPrefix + "out"  // from the netdevice into the messaging layer
	vhostIn     = vhostPrefix + "in"   // from the messaging layer to the netdevice
	vhostCard   = vhostPrefix + "card" // from netdevice to LAN, through both endpoints

	portSubject = "vhost-user" // DPDK's testpmd is at the netdevice, and at the LAN
	tapSubject  = "TAP"        // a packet socket sends, and the kernel receives
	readSubject = "TAP-socket" // a packet socket receives, as testpmd does
	vethSubject = "veth"       // a packet socket sends, without splitnic
)

const vhostTime = time.Second

// vhostRun is a measurement of a subject. begin starts the frames, and returns a function that
// counts the frames that have arrived.
type vhostRun struct {
	name, subject string
	begin         func(*vhostBed, context.Context) (count func() (uint64, error), err error)
}

var vhostRuns = []vhostRun{
	{vhostOut, portSubject, (*vhostBed).portOut},
	{vhostOut, tapSubject, (*vhostBed).tapOut},
	{vhostIn, portSubject, (*vhostBed).portIn},
	{vhostIn, tapSubject, (*vhostBed).tapIn},
	{vhostIn, readSubject, (*vhostBed).tapRead},
	{vhostCard, portSubject, (*vhostBed).card},
	{vhostCard, vethSubject, (*vhostBed).veth},
}

// wantsVhost reports whether any of these measurements is selected.
func (o *Options) wantsVhost() bool {
	for _, r := range vhostRuns {
		if o.sel.Has(r.subject, r.name, false) {
			return true
		}
	}
	return false
}

// vhost makes each selected measurement once.
func (o *Options) vhost(ctx context.Context, rec *results.Recorder) error {
	for _, r := range vhostRuns {
		if !o.sel.Has(r.subject, r.name, false) {
			continue
		}
		perSecond, cpu, err := r.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", r.name, r.subject, err)
		}
		sink := rec.Of(r.name, r.subject, vhostFrame)
		sink.Add(rate, "1000 frames/s", perSecond/1000)
		if r.subject == portSubject { // with other subjects the sender is in this process, too
			sink.Add(cpuProcess, "µs/frame", 1e6*cpu/perSecond)
		}
	}
	return nil
}

// measure returns frames per second, and the processor time of this process in seconds per
// second.
func (r *vhostRun) measure(ctx context.Context) (perSecond, cpu float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	v := &vhostBed{}
	if v.dir, err = os.MkdirTemp("", prefix); err != nil {
		cancel()
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	v.later(func() error { cancel(); return nil })
	count, err := r.begin(v, ctx)
	if err != nil {
		return 0, 0, err
	}
	for late := time.Now().Add(bootTime); ; {
		n, err := count()
		if err != nil {
			return 0, 0, err
		}
		if n > 1000 {
			break
		}
		if time.Now().After(late) {
			return 0, 0, errors.New("no frames arrive")
		}
		if err := results.Pause(ctx, 10*time.Millisecond); err != nil {
			return 0, 0, err
		}
	}
	if err := results.Pause(ctx, vhostTime/4); err != nil {
		return 0, 0, err
	}
	before, err := count()
	begin, used := time.Now(), ownCPU()
	err = errors.Join(err, results.Pause(ctx, vhostTime))
	after, err2 := count()
	seconds := time.Since(begin).Seconds()
	if after == before {
		err = errors.Join(err, errors.New("no frames arrive any more"))
	}
	return float64(after-before) / seconds, (ownCPU() - used).Seconds() / seconds, errors.Join(err, err2)
}

// far is the port at the far end of a data channel. If it sends, it always has the same frame.
// It accepts and counts all frames that it gets.
type far struct {
	event *epoll.Event
	frame []byte
	sends bool
	got   atomic.Uint64
}

func (p *far) FD() int { return p.event.FD() }

func (p *far) ReadFrames(ops []vnet.ReadOp) int {
	if !p.sends {
		ops[0].Frame, ops[0].Err = nil, unix.EAGAIN
		return 1
	}
	for i := range ops {
		ops[i].Frame, ops[i].Err = ops[i].Slot[:copy(ops[i].Slot, p.frame)], nil
	}
	return len(ops)
}

func (p *far) WriteFrames(ops []vnet.WriteOp) int {
	for i := range ops {
		ops[i].Err = nil
	}
	p.got.Add(uint64(len(ops)))
	return len(ops)
}

// layer connects a port with a far end by a data channel over the fabric in memory.
func (v *vhostBed) layer(port messaging.Port, sends bool) (*far, error) {
	event, err := epoll.NewEvent()
	if err != nil {
		return nil, err
	}
	v.later(event.Close)
	f := &far{event: event, frame: make([]byte, vnet.HdrLen+vhostFrame), sends: sends}
	copy(f.frame[vnet.HdrLen:], header)
	if sends {
		event.Set()
	}
	n := fabrictest.New()
	var conns []*messaging.Conn
	for _, name := range []string{"near", "far"} {
		d := n.Device(name)
		v.later(d.Close)
		c, err := messaging.New(messaging.Config{
			Device: d, Mode: protocol.ModeImm, MTU: 1500, PeerTimeout: time.Minute,
			Pools: messaging.DefaultPools(protocol.ModeImm, 1500),
		})
		if err != nil {
			return nil, err
		}
		v.later(func() error { c.Close(); return nil })
		conns = append(conns, c)
	}
	for i, c := range conns {
		if err := c.Connect(conns[1-i].Addresses(), conns[1-i].ControlReceives()); err != nil {
			return nil, err
		}
	}
	for i, c := range conns {
		if err := c.Start([]messaging.Port{[]messaging.Port{port, f}[i]}); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (v *vhostBed) portOut(ctx context.Context) (func() (uint64, error), error) {
	d, err := v.port(ctx, transmits...)
	if err != nil {
		return nil, err
	}
	f, err := v.layer(d.Queues()[0], false)
	if err != nil {
		return nil, err
	}
	return func() (uint64, error) { return f.got.Load(), nil }, nil
}

func (v *vhostBed) portIn(ctx context.Context) (func() (uint64, error), error) {
	d, err := v.port(ctx, receives...)
	if err != nil {
		return nil, err
	}
	_, err = v.layer(d.Queues()[0], true)
	return func() (uint64, error) { return d.Status().WrittenFrames, nil }, err
}

func (v *vhostBed) tapOut(ctx context.Context) (func() (uint64, error), error) {
	d, ns, err := v.tap()
	if err != nil {
		return nil, err
	}
	f, err := v.layer(d.Queues()[0], false)
	if err != nil {
		return nil, err
	}
	return func() (uint64, error) { return f.got.Load(), nil }, v.send(ctx, ns, "sn0")
}

func (v *vhostBed) tapIn(context.Context) (func() (uint64, error), error) {
	d, ns, err := v.tap()
	if err != nil {
		return nil, err
	}
	_, err = v.layer(d.Queues()[0], true)
	return received(ns, "sn0"), err
}

// tapRead is like tapIn, but a program receives the frames by a packet socket, and each frame is
// counted when the program has it. Without a receiver, the kernel drops a frame before it has
// cost much.
func (v *vhostBed) tapRead(ctx context.Context) (func() (uint64, error), error) {
	d, ns, err := v.tap()
	if err != nil {
		return nil, err
	}
	if _, err = v.layer(d.Queues()[0], true); err != nil {
		return nil, err
	}
	return v.receive(ctx, ns, "sn0")
}

// received returns a function that returns how many frames a netdevice has received.
func received(ns, name string) func() (uint64, error) {
	return func() (n uint64, err error) {
		err = testbed.In(ns, func(h *netlink.Handle) error {
			l, err := h.LinkByName(name)
			if err == nil {
				n = l.Attrs().Statistics.RxPackets
			}
			return err
		})
		return n, err
	}
}

func (v *vhostBed) veth(ctx context.Context) (func() (uint64, error), error) {
	from, err := v.namespace("from")
	if err != nil {
		return nil, err
	}
	to, err := v.namespace("to")
	if err != nil {
		return nil, err
	}
	if err := testbed.Pair(from, "veth0", to, "veth1"); err != nil {
		return nil, err
	}
	return received(to, "veth1"), errors.Join(testbed.Up(from, "veth0"), testbed.Up(to, "veth1"),
		v.send(ctx, from, "veth0"))
}

// card starts both endpoints. One process of testpmd is at the host's netdevice, and is also the
// switch of the LAN. One of its threads polls both ports, and sends by the host's port what it
// receives by the LAN's port. Two polling threads would take both processors of a machine that
// has only two, or take turns on one.
func (v *vhostBed) card(ctx context.Context) (func() (uint64, error), error) {
	security, err := session.Insecure() // for the bootstrap connection, which carries no frames
	if err != nil {
		return nil, err
	}
	n := fabrictest.New()
	card, err := lan.NewCard("vhost-user:"+v.dir, "")
	if err != nil {
		return nil, err
	}
	unit, address, err := testbed.Serve(ctx, &v.tasks, iounit.Config{
		Name: "unit", Software: "measure", Device: n.Device("unit"), Log: quiet,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		LinkState: func() (lan.LinkState, error) {
			info, err := card.Info()
			return info.LinkState, err
		},
	}, security, testbed.Loopback)
	if err != nil {
		return nil, err
	}
	port := vhostuser.Address{Path: filepath.Join(v.dir, "port")}
	d, err := vhostuser.Open(vhostuser.Config{Address: port, Pairs: 1, Offloads: vnet.AllOffloads, Log: quiet})
	if err != nil {
		return nil, err
	}
	adapter := n.Device("host")
	h, err := host.New(host.Config{
		Name: "host", Software: "measure", IOUnits: []string{address}, Security: security,
		Device: adapter, Netdev: host.VhostUser("vm0", d), Offloads: vnet.AllOffloads, Log: quiet,
	})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	v.tasks.Go(func() error { return errors.Join(h.Run(ctx), adapter.Close(), d.Close()) })
	for late := time.Now().Add(bootTime); len(unit.Status().Hosts) == 0; {
		if time.Now().After(late) {
			return nil, errors.New("no session: " + h.Status().LastError)
		}
		if err := results.Pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	mac := h.Status().Netdevice.MAC
	socket := filepath.Join(v.dir, strings.ReplaceAll(mac, ":", "-"))
	count := func() (frames uint64, err error) {
		for _, host := range unit.Status().Hosts {
			if host.Traffic != nil {
				frames += host.Traffic.Channels[0].RxFrames
			}
		}
		return frames, nil
	}
	tell, err := v.testpmd(ctx, []string{"mac=" + mac + ",path=" + port.Path, "path=" + socket}, circulates...)
	if err != nil {
		return nil, err
	}
	// First send as many frames as there is room for, in one direction. Only then are there
	// frames everywhere on the path.
	if err := tell("set portlist 0", "set fwd txonly", "start"); err != nil {
		return nil, err
	}
	first, err := full(ctx, count)
	if err != nil {
		return nil, err
	}
	return func() (uint64, error) {
		n, err := count()
		return n - first, err
	}, tell("stop", "set portlist 0,1", "set fwd io", "start")
}

// ownCPU returns the processor time of this process so far.
func ownCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // fails only for a bad argument
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// full waits until frames have arrived and no more arrive, and returns how many have arrived.
func full(ctx context.Context, count func() (uint64, error)) (frames uint64, err error) {
	for late := time.Now().Add(bootTime); ; {
		n, err := count()
		if err != nil {
			return 0, err
		}
		if n > 0 && n == frames {
			return n, nil
		}
		if time.Now().After(late) {
			return 0, errors.New("frames do not come to an end")
		}
		frames = n
		if err := results.Pause(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// tap opens a TAP device in a new namespace.
func (v *vhostBed) tap() (*tap.Device, string, error) {
	ns, err := v.namespace("tap")
	if err != nil {
		return nil, "", err
	}
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Offloads: vnet.AllOffloads})
	if err != nil {
		return nil, "", err
	}
	v.later(d.Close)
	return d, ns, errors.Join(d.Up(), d.SetCarrier(true))
}
