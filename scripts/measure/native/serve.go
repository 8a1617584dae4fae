package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"

	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// Serve runs in the process of a subject. args are the network namespaces of the host, the middle
// and the LAN, and the netdevice for the port on the LAN.
func Serve(ctx context.Context, name string, args []string) (err error) {
	s, ok := parseSubject(name)
	if !ok || len(args) != 4 {
		return errors.New("serve is for the command itself: SUBJECT HOST MIDDLE LAN DEVICE")
	}
	signal.Ignore(os.Interrupt) // the process that measures ends this one
	b, ctx, err := testbed.New(ctx, "subject")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	st := &topology{host: args[0], middle: args[1], lan: args[2], nic: args[3], hostDev: "sn0"}
	if err := s.open(ctx, b, st); err != nil {
		return err
	}
	fmt.Println(os.Getpid())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// open starts to move frames.
func (s subject) open(ctx context.Context, b *testbed.Bed, st *topology) error {
	if s.what == relay {
		return s.relay(ctx, b, st)
	}
	return s.endpoints(ctx, b, st)
}

// endpoints starts a host and an I/O unit as users run them, except that both are in one process
// with a fabric in memory between them. The fabric costs one copy, which an adapter would make.
func (s subject) endpoints(ctx context.Context, b *testbed.Bed, st *topology) error {
	offloads, encrypt := vnet.AllOffloads, seal.Allowed
	if s.plain {
		offloads = 0
	}
	if s.encrypted {
		encrypt = seal.Required
	}
	security, err := session.Insecure() // for the bootstrap connection, which carries no frames
	if err != nil {
		return err
	}
	_, address, err := b.Unit(ctx, iounit.Config{Name: "unit", Encrypt: encrypt}, s.port+":"+st.nic, st.middle, security,
		testbed.Loopback)
	if err != nil {
		return err
	}
	d, err := tap.Open(tap.Config{Name: st.hostDev, NetNS: st.host, Offloads: offloads})
	if err != nil {
		return err
	}
	b.Later(d.Close)
	// As many Ps as both commands have, with one queue each.
	runtime.GOMAXPROCS(runtime.NumCPU() + 3 + 4)
	_, err = b.Host(ctx, host.Config{
		Name: "host", IOUnits: []string{address}, Security: security, Netdev: host.TAP(d), Offloads: offloads,
		Encrypt: encrypt,
	})
	return errors.Join(err, d.Up())
}
