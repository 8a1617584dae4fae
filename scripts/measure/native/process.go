package native

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// process is the process of a subject that moves frames itself, so that the cost of the subject can
// be distinguished from the cost of measuring. It ends at the end of its standard input.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
}

// startProcess starts the process of s, and returns when it is ready.
func startProcess(s subject, st *topology) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self, "serve", s.String(), st.host, st.middle, st.lan, st.nic)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &process{c, in}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("the process of the subject is not ready: %w", err), p.close())
	}
	return p, nil
}

// cpu returns the processor time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	var ts unix.Timespec
	// MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel; clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|2), &ts); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	return time.Duration(ts.Nano()), nil
}

func (p *process) close() error {
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("the process of the subject: %w", err)
	}
	return nil
}

// fixture is a subject in its topology.
type fixture struct {
	subject
	*topology
	process *process // nil if the subject has no separate process
}

// newFixture makes a fixture, which ends with b.
func newFixture(ctx context.Context, b *testbed.Bed, s subject) (*fixture, error) {
	r := &fixture{subject: s}
	var err error
	if r.topology, err = newTopology(b, s); err != nil {
		return nil, err
	}
	if s.process() {
		if r.process, err = startProcess(s, r.topology); err != nil {
			return nil, err
		}
		b.Later(r.process.close)
	}
	return r, r.configure(ctx)
}

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
	fmt.Println("ready")
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

// wish returns whether the endpoints encrypt.
func (s subject) wish() seal.Wish {
	if s.encrypted {
		return seal.Required
	}
	return seal.Allowed
}

// endpoints starts a host and an I/O unit as users run them, except that both are in one process
// with a fabric in memory between them. The fabric costs one copy, which an adapter would make.
func (s subject) endpoints(ctx context.Context, b *testbed.Bed, st *topology) error {
	offloads := vnet.AllOffloads
	if s.plain {
		offloads = 0
	}
	security, err := session.Insecure() // for the bootstrap connection, which carries no frames
	if err != nil {
		return err
	}
	_, address, err := b.Unit(ctx, iounit.Config{Name: "unit", Encrypt: s.wish()}, s.port+":"+st.nic, st.middle, security,
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
		Encrypt: s.wish(),
	})
	return errors.Join(err, d.Up())
}
