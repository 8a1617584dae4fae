package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
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
		OtherSoftware: func(other string) { p.note("the other end is splitnic " + other + ", this one " + version) },
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

// result prints a measurement, the first one of a mode below a header.
func (p *benchPrinter) result(s bench.Spec, r bench.Result) error {
	if p.json {
		return json.NewEncoder(p.out).Encode(r)
	}
	p.begin(s, r)
	_, err := fmt.Fprint(p.out, benchRow(r))
	return err
}

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
