package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/vm"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// The measurements of TCP between a virtual machine and the LAN, through both endpoints. Their
// subjects are portSubject and bridgeSubject, which a virtual machine has without vhost-user.
const (
	guestPrefix = "guest."
	guestOut    = guestPrefix + "tcp.out" // from the machine
	guestIn     = guestPrefix + "tcp.in"  // to the machine

	bridgeSubject = "TAP in a bridge" // QEMU's TAP device is in a bridge with the host's netdevice
)

const (
	guestMTU     = 1500
	guestAddress = "10.78.0.2"
	guestWarm    = time.Second
	guestTime    = 3 * time.Second
	// guestMAC is the address of a machine behind a bridge.
	guestMAC = "52:54:00:12:34:56"
)

// guestRun has both measurements of a subject.
type guestRun struct {
	subject string
	// card starts a host with configuration c. It returns the namespace for QEMU, and the
	// arguments of QEMU for the machine's card.
	card func(v *vhostBed, ctx context.Context, c host.Config) (ns string, device []string, err error)
	// behind does the rest of the set-up after QEMU has come up.
	behind func(ns string) error
}

var guestRuns = []guestRun{
	{portSubject, (*vhostBed).guestPort, func(string) error { return nil }},
	{bridgeSubject, (*vhostBed).guestBridge, func(ns string) error {
		return errors.Join(testbed.Bridge(ns, "br0", "sn0", "vm1"), testbed.Up(ns, "vm1"))
	}},
}

// wantsGuests reports whether these measurements are selected. They are made only on request,
// because machines take a while to boot, and need a kernel that has to be fetched first.
func (o *Options) wantsGuests() bool {
	return o.sel.Has("", guestOut, true) || o.sel.Has("", guestIn, true)
}

// guests makes each of these measurements once.
func (o *Options) guests(ctx context.Context, rec *results.Recorder) error {
	for _, r := range guestRuns {
		if err := r.measure(ctx, rec); err != nil {
			return fmt.Errorf("a virtual machine, %s: %w", r.subject, err)
		}
	}
	return nil
}

func (r *guestRun) measure(ctx context.Context, rec *results.Recorder) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	v := &vhostBed{}
	if v.dir, err = os.MkdirTemp("", prefix); err != nil {
		cancel()
		return err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	v.later(func() error { cancel(); return nil })
	lanNS, c, err := v.guestUnit(ctx)
	if err != nil {
		return err
	}
	ns, device, err := r.card(v, ctx, c)
	if err != nil {
		return err
	}
	machine, err := v.boot(ns, device)
	if err != nil {
		return err
	}
	if err := r.behind(ns); err != nil {
		return err
	}
	if err := machine.Tell(fmt.Sprintf("up %s/24 %d", guestAddress, guestMTU)); err != nil {
		return err
	}
	for _, way := range []struct {
		name, port string
		move       func(c net.Conn, b []byte) (int, error)
	}{{guestOut, "7002", net.Conn.Read}, {guestIn, "7001", net.Conn.Write}} {
		perSecond, err := moved(lanNS, net.JoinHostPort(guestAddress, way.port), way.move)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		rec.Of(way.name, r.subject, guestMTU).Add(throughput, "Gbit/s", perSecond*8/1e9)
	}
	return nil
}

// guestUnit starts an I/O unit whose LAN is a veth pair. It returns the namespace of the pair's
// other end, and the configuration of a host.
func (v *vhostBed) guestUnit(ctx context.Context) (lanNS string, c host.Config, err error) {
	unitNS, err := v.namespace("unit")
	if err != nil {
		return "", c, err
	}
	if lanNS, err = v.namespace("lan"); err != nil {
		return "", c, err
	}
	err = errors.Join(testbed.Pair(unitNS, "eth1", lanNS, "lan0"), testbed.Address(lanNS, "lan0", "10.78.0.1/24"))
	if err != nil {
		return "", c, err
	}
	security, err := session.Insecure() // for the bootstrap connection, which carries no frames
	if err != nil {
		return "", c, err
	}
	// A machine behind a bridge has a different address than the host.
	rules, err := policy.Parse("policy", []byte("default: {macs: [own, '"+guestMAC+"'], promiscuous: yes}"))
	if err != nil {
		return "", c, err
	}
	n := fabrictest.New()
	_, address, err := testbed.Serve(ctx, &v.tasks, iounit.Config{
		Name: "unit", Software: "measure", Device: n.Device("unit"), Log: quiet, Policy: rules,
		OpenLAN: func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return lan.Open("macvtap:eth1", lan.Config{NetNS: unitNS, MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		},
		LinkState: func() (lan.LinkState, error) {
			info, err := lan.LinkInfo("eth1", unitNS)
			return info.LinkState, err
		},
	}, security, testbed.Loopback)
	return lanNS, host.Config{
		Name: "host", Software: "measure", IOUnits: []string{address}, Security: security,
		Device: n.Device("host"), Offloads: vnet.AllOffloads, Log: quiet,
	}, err
}

// run runs a host, and waits for its session.
func (v *vhostBed) run(ctx context.Context, c host.Config, closeNetdev func() error) (*host.Host, error) {
	h, err := host.New(c)
	if err != nil {
		return nil, errors.Join(err, closeNetdev())
	}
	v.tasks.Go(func() error { return errors.Join(h.Run(ctx), c.Device.Close(), closeNetdev()) })
	for late := time.Now().Add(bootTime); !h.Status().Netdevice.Carrier; {
		if time.Now().After(late) {
			return nil, errors.New("no session: " + h.Status().LastError)
		}
		if err := results.Pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (v *vhostBed) guestPort(ctx context.Context, c host.Config) (string, []string, error) {
	port := vhostuser.Address{Path: filepath.Join(v.dir, "port")}
	d, err := vhostuser.Open(vhostuser.Config{Address: port, Pairs: 1, Offloads: vnet.AllOffloads, Log: quiet})
	if err != nil {
		return "", nil, err
	}
	c.Netdev = host.VhostUser("vm0", d)
	h, err := v.run(ctx, c, d.Close)
	if err != nil {
		return "", nil, err
	}
	ns, err := v.namespace("vm")
	return ns, []string{
		"-chardev", "socket,id=c,path=" + port.Path, "-netdev", "vhost-user,id=n,chardev=c",
		// QEMU 7.2 without KVM ends with a segmentation fault if MSI-X is used.
		"-device", "virtio-net-pci,netdev=n,vectors=0,mac=" + h.Status().Netdevice.MAC,
	}, err
}

func (v *vhostBed) guestBridge(ctx context.Context, c host.Config) (string, []string, error) {
	ns, err := v.namespace("vm")
	if err != nil {
		return "", nil, err
	}
	d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Offloads: vnet.AllOffloads})
	if err != nil {
		return "", nil, err
	}
	c.Netdev = host.TAP(d)
	if _, err := v.run(ctx, c, d.Close); err != nil {
		return "", nil, err
	}
	return ns, []string{
		"-netdev", "tap,id=n,ifname=vm1,script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=n,vectors=0,mac=" + guestMAC,
	}, testbed.Up(ns, "sn0")
}

// boot boots a virtual machine with a card.
func (v *vhostBed) boot(ns string, device []string) (*vm.Machine, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, err
	}
	f, err := vm.Prepare(string(root[:len(root)-1]), v.dir)
	if err != nil {
		return nil, err
	}
	v.later(f.Close)
	e, err := f.Start(ns, os.DevNull, device...)
	if err != nil {
		return nil, err
	}
	v.later(func() error { e.Kill(); return nil })
	m, err := f.Up()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, e.Kill())
	}
	v.later(m.Close)
	return m, nil
}

// moved opens a TCP connection from a namespace, and returns how many bytes per second move
// reads or writes.
func moved(ns, address string, move func(c net.Conn, b []byte) (int, error)) (perSecond float64, err error) {
	var c net.Conn
	if err := netns.Do(ns, func() (err error) {
		c, err = net.DialTimeout("tcp", address, bootTime)
		return err
	}); err != nil {
		return 0, err
	}
	defer c.Close()
	b := make([]byte, chunk)
	during := func(d time.Duration) (perSecond float64, err error) {
		began, n := time.Now(), 0
		for time.Since(began) < d {
			if err := c.SetDeadline(time.Now().Add(bootTime)); err != nil {
				return 0, err
			}
			m, err := move(c, b)
			if err != nil {
				return 0, err
			}
			n += m
		}
		return float64(n) / time.Since(began).Seconds(), nil
	}
	if _, err := during(guestWarm); err != nil {
		return 0, err
	}
	return during(guestTime)
}
