package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/verbs"
)

// benchDevice is an RDMA device whose events are heard.
type benchDevice struct {
	*device.Device
	context *verbs.Context // of its first opening
}

// open opens an RDMA device, and returns the configuration of its channels.
func (b *benchConfig) open(name string) (*benchDevice, messaging.Config, error) {
	adapter := b.adapter
	adapter.Device = name
	dev := &benchDevice{}
	var err error
	dev.Device, err = device.Open(device.Config{
		Log: slog.New(slog.DiscardHandler), // the error of the measurement says the same
		Open: func() (fabric.Device, error) {
			opened, err := adapter.Open()
			if err != nil {
				return nil, err
			}
			if dev.context == nil {
				dev.context, adapter.Device = opened, opened.Name()
			}
			return opened, nil
		},
	})
	if err != nil {
		return nil, messaging.Config{}, err
	}
	return dev, messaging.Config{
		// If the process or machine of the other end has ended, this is detected in another
		// way. The time-out is for an end that is only slow.
		PeerTimeout:    time.Minute,
		StrictOrdering: b.strictOrdering,
		PackCopy:       b.packCopy,
		MaxInline:      b.inline,
		Timing:         fabric.Timing{Timeout: daemon.QPTimeout(dev.Driver(), 0)},
	}, nil
}

// withBoth calls do with the devices of both ends in this process.
func (b *benchConfig) withBoth(do func(from, to *benchDevice, m messaging.Config) error) (err error) {
	from, mcfg, err := b.open(b.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to := from
	if b.peerDevice != "" {
		if to, _, err = b.open(b.peerDevice); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, to.Close()) }()
	}
	return do(from, to, mcfg)
}

// interrupted returns the error of a measurement, or of the interrupt that has ended it.
func interrupted(cmd *cobra.Command, err error) error {
	if err != nil && cmd.Context().Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

func (b *benchConfig) both(cmd *cobra.Command) error {
	return b.withBoth(func(from, to *benchDevice, mcfg messaging.Config) error {
		p := b.printer(cmd, from.context, "to "+to.Name()+", both ends in this process")
		l := &bench.Local{From: from, To: to, Messaging: mcfg, Watch: p.watch()}
		return b.measure(cmd.Context(), p, func(ctx context.Context, s bench.Spec, _ bool) (bench.Result, error) {
			return l.Measure(ctx, s)
		})
	})
}

// connect measures with the other end on another node.
func (b *benchConfig) connect(cmd *cobra.Command) (err error) {
	secret, given, err := b.readSecret()
	if err != nil {
		return err
	}
	if !given {
		return exit.Usagef("missing secret: use the one printed by the --listen end, in %s or by --secret-file",
			secretVariable)
	}
	security, err := secret.ClientSecurity()
	if err != nil {
		return err
	}
	dev, mcfg, err := b.open(b.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	p := b.printer(cmd, dev.context, "to "+bench.WithPort(b.addr))
	client := bench.NewClient(bench.ClientConfig{
		Device: dev, Addr: b.addr, Security: security, Messaging: mcfg, Name: benchName(),
		Software: version, Watch: p.watch(),
		OtherSoftware: func(other string) {
			fmt.Fprintf(p.err, "splitnic: note: the other end is splitnic %s, this one %s\n", other, version)
		},
	})
	return b.measure(cmd.Context(), p, client.Measure)
}

// benchName returns the name of this node in the hello message.
func benchName() string {
	if name := daemon.Hostname(); session.ValidName(name) {
		return name
	}
	return "unnamed"
}

func (b *benchConfig) measure(
	ctx context.Context, p *benchPrinter, measure func(context.Context, bench.Spec, bool) (bench.Result, error),
) error {
	for i, s := range b.specs {
		if s.Poll && b.addr == "" {
			runtime.GOMAXPROCS(pollProcs(s.Queues, runtime.NumCPU()))
		} else {
			prepareBench(s)
		}
		limit := b.timeout + s.Duration
		late := fmt.Errorf("not done after %v; give a longer --timeout", limit)
		bounded, cancel := context.WithTimeoutCause(ctx, limit, late)
		r, err := measure(bounded, s, i == len(b.specs)-1)
		cancel()
		p.clear()
		if err != nil {
			return err
		}
		if err := p.result(s, r); err != nil {
			return err
		}
	}
	return nil
}

// prepareBench adds Ps for the threads of both ends of a measurement.
func prepareBench(s bench.Spec) { daemon.MoreProcs(4*s.Queues + 2) }

// pollProcs returns the number of Ps for two ends in this process whose workers poll: one for
// each worker, at most one for each processor. queues is the number of queues of each end. If
// there were an idle P when a worker yields, the runtime would wake a thread. This thread would
// take the processor of one of the workers, and often run the yielding worker itself. Without an
// idle P, other goroutines run on the P of a worker when it yields.
func pollProcs(queues, cpus int) int { return min(2*queues, cpus) }

func (b *benchConfig) readSecret() (s bench.Secret, given bool, err error) {
	text, from := b.secret, "--secret"
	switch env := os.Getenv(secretVariable); {
	case b.secretFile != "":
		raw, err := os.ReadFile(b.secretFile)
		if err != nil {
			return s, false, fmt.Errorf("--secret-file: %w", err)
		}
		text, from = string(raw), "--secret-file "+b.secretFile
	case b.secret == "" && env != "":
		text, from = env, secretVariable
	case b.secret == "":
		return s, false, nil
	}
	if s, err = bench.ParseSecret(text); err != nil {
		return s, false, exit.Usagef("%s: %w", from, err)
	}
	return s, true, nil
}

func (b *benchConfig) serve(cmd *cobra.Command) (err error) {
	secret, given, err := b.readSecret()
	if err != nil {
		return err
	}
	if !given {
		secret = bench.NewSecret()
	}
	security, err := secret.ServerSecurity()
	if err != nil {
		return err
	}
	if b.device == "" {
		if b.device, err = deviceAt(b.listen, verbs.DevicesAt); err != nil {
			return err
		}
	}
	dev, mcfg, err := b.open(b.device)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	out := cmd.OutOrStdout()
	server, err := bench.Listen(b.listen, bench.ServerConfig{
		Device: dev, Security: security, Kind: b.kind, Modes: b.modes, Forever: b.forever,
		Messaging: mcfg, Name: benchName(), Software: version,
		Prepare: prepareBench,
		Served:  func(s bench.Served) { fmt.Fprint(out, servedLine(s)) },
		Failed:  func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), "splitnic:", err) },
	})
	if err != nil {
		return daemon.ExplainListen("--listen", err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	shown := ""
	if !given {
		shown = secret.Reveal()
	}
	fmt.Fprint(out, invitation(b.kind, dev.Name(), reachable(dev.context, server.Addr()), shown))
	err = server.Run(cmd.Context())
	if b.forever && cmd.Context().Err() != nil {
		return nil // an interrupt is its normal end
	}
	return err
}

// deviceAt returns the name of the RDMA device that has the address to listen on. at returns the
// devices with an address. deviceAt returns "" if listen is every address, a name, or the address
// of no device. Then the machine's only device is used, or the user has to choose one.
func deviceAt(listen string, at func(netip.Addr) ([]string, error)) (string, error) {
	host, _, err := net.SplitHostPort(bench.WithPort(listen))
	if err != nil {
		return "", err
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.IsUnspecified() {
		return "", nil
	}
	names, err := at(addr)
	switch {
	case err != nil:
		return "", exit.With(exit.Missing, err)
	case len(names) > 1:
		return daemon.ChooseDevice("", names)
	case len(names) == 1:
		return names[0], nil
	}
	return "", nil
}

// invitation returns the instructions for the other node. secret is empty if the user has it
// already.
func invitation(kind bench.Kind, device, addr, secret string) string {
	command := fmt.Sprintf("splitnic bench %s %s", kind, addr)
	if secret == "" {
		return fmt.Sprintf("Device %s is waiting. On the other node, with the same secret, run\n\n  %s\n\n", device, command)
	}
	return fmt.Sprintf("Device %s is waiting. On the other node, run\n\n  %s=%s %s\n\n", device, secretVariable, secret,
		command)
}

// reachable returns the address to use on the other node: the listening address or, if this is
// every address, that of the device, or the host name if the device has none.
func reachable(dev *verbs.Context, listening net.Addr) string {
	at, ok := listening.(*net.TCPAddr)
	if !ok {
		return listening.String()
	}
	name := at.IP.String()
	if at.IP.IsUnspecified() {
		name = daemon.Hostname()
		if gid, _, err := dev.ChooseGID(); err == nil && gid.GID.Addr().Unmap().IsGlobalUnicast() {
			name = gid.GID.Addr().Unmap().String()
		}
	}
	return shortAddr(name, at.Port)
}

// shortAddr joins name and port, and omits the default port.
func shortAddr(name string, port int) string {
	if port == bench.DefaultPort {
		return name
	}
	return net.JoinHostPort(name, strconv.Itoa(port))
}

func servedLine(s bench.Served) string {
	text := fmt.Sprintf("%v measured %s, mode %s, %d bytes", s.Peer, s.Spec.Kind, s.Spec.Mode, s.Spec.Size)
	if s.Time > 0 {
		rate := float64(s.Messages) / s.Time.Seconds()
		return fmt.Sprintf("%s: %d messages received, %.2f MiB/s, %.6f Mpps\n", text, s.Messages,
			rate*float64(s.Spec.Size)/(1<<20), rate/1e6)
	}
	return fmt.Sprintf("%s: %d messages echoed\n", text, s.Messages)
}
