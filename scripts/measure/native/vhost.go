package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/netns"
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

const (
	vhostFrame = 64 // bytes
	vhostTime  = time.Second
	// polled is the processor of testpmd's polling thread.
	polled = 1
)

// vhostBed is a Bed of these measurements.
type vhostBed struct{ *testbed.Bed }

// counter returns how many frames have arrived.
type counter func() (uint64, error)

// vhostRun is a measurement of a subject. begin starts the frames. The subject veth has frames of a
// packet socket through a veth pair, without splitnic.
type vhostRun struct {
	name, subject string
	begin         func(vhostBed, context.Context) (counter, error)
}

var vhostRuns = []vhostRun{
	{vhostOut, portSubject, func(v vhostBed, ctx context.Context) (counter, error) { return v.port(ctx, "txonly") }},
	{vhostOut, tapSubject, func(v vhostBed, ctx context.Context) (counter, error) { return v.tap(ctx, false) }},
	{vhostIn, portSubject, func(v vhostBed, ctx context.Context) (counter, error) { return v.port(ctx, "rxonly") }},
	{vhostIn, tapSubject, func(v vhostBed, ctx context.Context) (counter, error) { return v.tap(ctx, true) }},
	{vhostCard, portSubject, vhostBed.card},
	{vhostCard, veth, vhostBed.veth},
}

// measure makes the measurement once.
func (r *vhostRun) measure(ctx context.Context, rec *results.Recorder) (err error) {
	b, ctx, err := testbed.New(ctx, "vhost")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	count, err := r.begin(vhostBed{b}, ctx)
	if err != nil {
		return err
	}
	err = testbed.Until(ctx, "frames", func() error {
		n, err := count()
		if err == nil && n < 1000 {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
	if err := errors.Join(err, results.Pause(ctx, vhostTime/4)); err != nil {
		return err
	}
	before, err := count()
	begin, used := time.Now(), bench.CPU()
	err = errors.Join(err, results.Pause(ctx, vhostTime))
	after, err2 := count()
	seconds, cpu := time.Since(begin).Seconds(), (bench.CPU() - used).Seconds()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if after == before {
		return errors.New("no frames arrive any more")
	}
	sink := rec.Of(r.name, r.subject, vhostFrame)
	sink.Add(rate, "1000 frames/s", float64(after-before)/seconds/1000)
	if r.subject == portSubject { // with other subjects the sender is in this process, too
		sink.Add("processor time, process", "µs/frame", 1e6*cpu/float64(after-before))
	}
	return nil
}

// port has testpmd at a vhost-user port, which transmits or receives only.
func (v vhostBed) port(ctx context.Context, mode string) (counter, error) {
	a := vhostuser.Address{Path: filepath.Join(v.Dir, "port")}
	d, err := vhostuser.Open(vhostuser.Config{Address: a, Pairs: 1, Log: testbed.Log})
	if err != nil {
		return nil, err
	}
	v.Later(d.Close)
	if _, err := v.testpmd(ctx, []string{"path=" + a.Path}, "--forward-mode="+mode, "--port-topology=loop",
		"--auto-start"); err != nil {
		return nil, err
	}
	arrived, err := v.layer(d.Queues()[0], mode == "rxonly")
	if err != nil || mode == "txonly" {
		return arrived, err
	}
	return func() (uint64, error) { return d.Status().WrittenFrames, nil }, nil
}

// tap has a TAP device, to which the far end sends, or a packet socket.
func (v vhostBed) tap(ctx context.Context, in bool) (counter, error) {
	ns, err := v.NetNS("tap")
	if err != nil {
		return nil, err
	}
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Offloads: vnet.AllOffloads})
	if err != nil {
		return nil, err
	}
	v.Later(d.Close)
	arrived, err := v.layer(d.Queues()[0], in)
	if err := errors.Join(err, d.Up(), d.SetCarrier(true)); err != nil {
		return nil, err
	}
	if in {
		return received(ns, "sn0"), nil
	}
	return arrived, v.send(ctx, ns, "sn0")
}

func (v vhostBed) veth(ctx context.Context) (counter, error) {
	from, err := v.NetNS("from")
	to, err2 := v.NetNS("to")
	err = errors.Join(err, err2, testbed.Pair(from, "veth0", to, "veth1"), v.send(ctx, from, "veth0"))
	return received(to, "veth1"), err
}

// received counts the frames that a netdevice has received.
func received(ns, name string) counter {
	return func() (uint64, error) {
		l, err := testbed.Link(ns, name)
		if err != nil {
			return 0, err
		}
		return l.Attrs().Statistics.RxPackets, nil
	}
}

// frame is what is sent.
var frame = testbed.Frame(net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}, vhostFrame)

// send starts to send frames by a packet socket on a netdevice, as fast as the netdevice accepts
// them.
func (v vhostBed) send(ctx context.Context, ns, name string) error {
	var fd int
	if err := netns.Do(ns, func() error {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index}),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
	}); err != nil {
		return err
	}
	frames := newVector(vhostFrame, 64)
	for i := range frames.iovs {
		copy(frames.data(i), frame[vnet.HdrLen:])
	}
	v.Go(func() error {
		for ctx.Err() == nil {
			_, _ = frames.call(unix.SYS_SENDMMSG, fd, 0) // frames that a full queue does not take are lost
		}
		return unix.Close(fd)
	})
	return nil
}

// layer connects a port by a data channel over the fabric in memory with a far end that counts what it
// gets. If it sends, it always has the same frame.
func (v vhostBed) layer(port messaging.Port, sends bool) (counter, error) {
	far, err := testbed.NewNull()
	if err != nil {
		return nil, err
	}
	v.Later(far.Close)
	if sends {
		far.Flood(frame)
	}
	var conns [2]*messaging.Conn
	for i, name := range []string{"near", "far"} {
		d := v.Network.Device(name)
		v.Later(d.Close)
		if conns[i], err = messaging.New(messaging.Config{
			Device: d, Mode: protocol.ModeImm, MTU: 1500, PeerTimeout: time.Minute,
			Pools: messaging.DefaultPools(protocol.ModeImm, 1500),
		}); err != nil {
			return nil, err
		}
		v.Later(conns[i].Close)
	}
	for i, c := range conns {
		err = errors.Join(err, c.Connect(conns[1-i].Addresses(), conns[1-i].ControlReceives()))
	}
	for i, c := range conns {
		err = errors.Join(err, c.Start([]messaging.Port{[]messaging.Port{port, far}[i]}))
	}
	return func() (uint64, error) { return far.Taken(), nil }, err
}

// card starts both endpoints. One process of testpmd is at the host's netdevice, and is also the
// switch of the LAN. One of its threads polls both ports, and sends by the host's port what it
// receives by the LAN's port. Two polling threads would take both processors of a machine that
// has only two, or take turns on one.
func (v vhostBed) card(ctx context.Context) (counter, error) {
	security, err := session.Insecure() // for the bootstrap connection, which carries no frames
	if err != nil {
		return nil, err
	}
	unit, address, err := v.Unit(ctx, iounit.Config{Name: "unit"}, "vhost-user:"+v.Dir, "", security, testbed.Loopback)
	if err != nil {
		return nil, err
	}
	port := vhostuser.Address{Path: filepath.Join(v.Dir, "port")}
	d, err := vhostuser.Open(vhostuser.Config{Address: port, Pairs: 1, Offloads: vnet.AllOffloads, Log: testbed.Log})
	if err != nil {
		return nil, err
	}
	v.Later(d.Close)
	h, err := v.Host(ctx, host.Config{
		Name: "host", IOUnits: []string{address}, Security: security, Netdev: host.VhostUser("vm0", d),
		Offloads: vnet.AllOffloads,
	})
	if err != nil {
		return nil, err
	}
	if err := testbed.Until(ctx, "a session", func() error {
		if len(unit.Status().Hosts) == 0 {
			return errors.New(h.Status().LastError)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	count := func() (frames uint64, err error) {
		for _, host := range unit.Status().Hosts {
			if host.Traffic != nil {
				frames += host.Traffic.Channels[0].RxFrames
			}
		}
		return frames, nil
	}
	mac := h.Status().Netdevice.MAC
	socket := filepath.Join(v.Dir, strings.ReplaceAll(mac, ":", "-"))
	tell, err := v.testpmd(ctx, []string{"mac=" + mac + ",path=" + port.Path, "path=" + socket}, "--port-topology=paired",
		"--burst=64")
	if err != nil {
		return nil, err
	}
	// First send as many frames as there is room for, in one direction. Only then are there
	// frames everywhere on the path.
	if err := tell("set portlist 0", "set fwd txonly", "start"); err != nil {
		return nil, err
	}
	first := uint64(0)
	if err := testbed.Until(ctx, "the path to be full", func() error {
		last := first
		first, _ = count()
		if first > 0 && first == last {
			return nil
		}
		return errors.Join(errors.New("frames go on"), results.Pause(ctx, 50*time.Millisecond))
	}); err != nil {
		return nil, err
	}
	return func() (uint64, error) {
		n, err := count()
		return n - first, err
	}, tell("stop", "set portlist 0,1", "set fwd io", "start")
}

// testpmd starts DPDK's testpmd with virtio-user devices. testpmd executes commands on
// processor 0. One thread, on processor polled, polls all devices, and the threads of this process
// keep off it, if there is another one: otherwise the kernel runs a worker on the processor on which
// testpmd has woken the worker, and the two take turns. tell sends commands.
func (v vhostBed) testpmd(
	ctx context.Context, devices []string, options ...string,
) (tell func(commands ...string) error, err error) {
	all := cpus.Allowed()
	if rest := all.Without(cpus.List{polled}); len(rest) > 0 {
		if err := confine(rest); err != nil {
			return nil, err
		}
		v.Later(func() error { return confine(all) })
	}
	args := []string{"--no-huge", "-m", "256", "--no-pci", "--no-shconf", "--no-telemetry", "-l", fmt.Sprint("0,", polled)}
	for i, d := range devices {
		args = append(args, fmt.Sprintf("--vdev=net_virtio_user%d,queue_size=1024,%s", i, d))
	}
	args = append(args, "--", "--no-mlockall", "--total-num-mbufs=8192", "--nb-cores=1", "--no-flush-rx", "--interactive",
		fmt.Sprint("--txpkts=", vhostFrame))
	c := exec.CommandContext(ctx, "dpdk-testpmd", append(args, options...)...)
	c.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+v.Dir)
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	v.Go(func() error { _ = c.Wait(); return nil }) // killed at the end
	return func(commands ...string) error {
		_, err := io.WriteString(in, strings.Join(commands, "\n")+"\n")
		return err
	}, nil
}

// confine restricts the threads of this process, and the threads that they start, to these
// processors.
func confine(to cpus.List) error {
	c := exec.Command("taskset", "-acp", to.String(), strconv.Itoa(os.Getpid()))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("taskset: %w: %s", err, out)
	}
	return nil
}
