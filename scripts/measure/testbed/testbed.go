// Package testbed makes what measurements of both endpoints need: network namespaces, devices in
// them, and an I/O unit and hosts with a fabric in memory between them.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// prefix begins the names of all network namespaces that are made here.
const prefix = "snbench-"

// Log has the errors of the endpoints.
var Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

// Bed has what a measurement uses, until Close.
type Bed struct {
	Network *fabrictest.Network // with the devices of the endpoints
	Dir     string              // for sockets and keys

	name   string // begins the names of its namespaces
	cancel context.CancelFunc
	tasks  errgroup.Group
	ends   []func() error // what Close calls, the last one first
}

// New makes a Bed. name tells it from others of this process. The tasks of the Bed have the context.
func New(ctx context.Context, name string) (*Bed, context.Context, error) {
	ctx, cancel := context.WithCancel(ctx)
	b := &Bed{Network: fabrictest.New(), name: fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), name), cancel: cancel}
	var err error
	if b.Dir, err = os.MkdirTemp("", prefix); err != nil {
		cancel()
		return nil, nil, err
	}
	return b, ctx, nil
}

// Later has Close call end.
func (b *Bed) Later(end func() error) { b.ends = append(b.ends, end) }

// Go starts a task. It must end when the context of the Bed does.
func (b *Bed) Go(task func() error) { b.tasks.Go(task) }

// Close ends all tasks, and releases everything. It returns the first error of a task, too.
func (b *Bed) Close() error {
	b.cancel()
	err := b.tasks.Wait()
	for _, end := range slices.Backward(b.ends) {
		err = errors.Join(err, end())
	}
	return errors.Join(err, os.RemoveAll(b.Dir))
}

// NetNS makes a network namespace with its loopback device up.
func (b *Bed) NetNS(name string) (string, error) {
	ns := b.name + name
	if err := netns.New(ns); err != nil {
		return "", err
	}
	b.Later(func() error { return netns.Delete(ns) })
	return ns, IP(ns, "link set lo up")
}

// IP executes commands of ip(8) in a network namespace.
func IP(ns string, commands ...string) error {
	c := exec.Command("ip", "-n", ns, "-batch", "-")
	c.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -n %s, %q: %w: %s", ns, commands, err, out)
	}
	return nil
}

// Pair makes two connected Ethernet devices, both up.
func Pair(ns1, name1, ns2, name2 string) error {
	return errors.Join(IP(ns1, fmt.Sprintf("link add %s type veth peer name %s netns %s", name1, name2, ns2),
		"link set "+name1+" up"), IP(ns2, "link set "+name2+" up"))
}

// Link returns a device with its statistics.
func Link(ns, name string) (l netlink.Link, err error) {
	h, err := netns.Handle(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.LinkByName(name)
}

// Until calls f until it succeeds, for half a minute at most.
func Until(ctx context.Context, what string, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

// Trusting returns the security of an endpoint with this key, which trusts these entries of a trust file.
func Trusting(own *session.Key, entries ...string) (*session.Security, error) {
	trust := &session.Trust{}
	for _, e := range entries {
		if err := trust.Add(e); err != nil {
			return nil, err
		}
	}
	return session.NewSecurity(own, "", trust)
}

// Listen is how [Bed.Unit] listens.
type Listen func(c session.ServerConfig) (*session.Listener, error)

// Loopback is a Listen on any free port of the loopback address.
func Loopback(c session.ServerConfig) (*session.Listener, error) {
	return session.Listen("127.0.0.1:0", c)
}

// Unit starts an I/O unit, and returns its address. port is what its hosts get on the LAN, as of
// --lan, in namespace ns; if it is empty, c says that.
func (b *Bed) Unit(
	ctx context.Context, c iounit.Config, port, ns string, security *session.Security, listen Listen,
) (*iounit.Unit, string, error) {
	if port != "" {
		card, err := lan.NewCard(port, ns)
		if err != nil {
			return nil, "", err
		}
		c.OpenLAN = func(mac net.HardwareAddr, queues int) (lan.Interface, error) {
			return card.Open(lan.Config{MAC: mac, Queues: queues, Offloads: vnet.AllOffloads})
		}
		c.LinkState = func() (lan.LinkState, error) {
			info, err := card.Info()
			return info.LinkState, err
		}
	}
	c.Software, c.Device, c.Log = "measure", b.Network.Device(c.Name), Log
	unit, err := iounit.New(c)
	if err != nil {
		return nil, "", err
	}
	ln, err := listen(session.ServerConfig{Security: security, Burst: unit.Burst, Rejected: unit.Rejected})
	if err != nil {
		return nil, "", err
	}
	b.Go(func() error { return errors.Join(unit.Run(ctx, ln), ln.Close(), c.Device.Close()) })
	return unit, ln.Addr().String(), nil
}

// Host starts a host.
func (b *Bed) Host(ctx context.Context, c host.Config) (*host.Host, error) {
	c.Software, c.Device = "measure", b.Network.Device(c.Name)
	if c.Log == nil {
		c.Log = Log
	}
	h, err := host.New(c)
	if err != nil {
		return nil, err
	}
	b.Go(func() error { return errors.Join(h.Run(ctx), c.Device.Close()) })
	return h, nil
}

// Sweep deletes the network namespaces of processes that were killed.
func Sweep() error {
	found, err := filepath.Glob(filepath.Join(netns.Dir, prefix+"*"))
	for _, path := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), "-")
		if _, running := os.Stat("/proc/" + pid); errors.Is(running, os.ErrNotExist) {
			err = errors.Join(err, netns.Delete(filepath.Base(path)))
		}
	}
	return err
}
