package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/internal/bench/sweep"
	"github.com/splitnic/splitnic/internal/spin"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

const sweepLong = `Measure the messaging layer, with one of the commands below.

With --sweep it tries adapter-dependent values of advanced settings of splitnic host and
splitnic iounit. Each is tried alone and compared with the defaults, with both ends in this
process, in several rounds: half of the round-trip time, frames of three small sizes, and
throughput. It prints the results, and what is recommended as lines of a configuration file:
what is better in some measurement and worse in none; a difference counts only if all figures
of one setting are beyond all of those of the other. Processor time is not measured: spin uses
some, see splitnic-host(8). Run nothing else at the same time, and use the adapter of the
endpoint.`

// sweepSettings has the settings to try, in this order.
var sweepSettings = []sweep.Setting{
	{Key: "spin", Value: "20us"}, {Key: "spin", Value: "100us"}, {Key: "spin", Value: "auto"},
	{Key: "cq-moderation", Value: "8,20us"}, {Key: "cq-moderation", Value: "32,50us"},
	{Key: "pack-copy", Value: "0"}, {Key: "pack-copy", Value: "128"}, {Key: "pack-copy", Value: "512"},
	{Key: "inline", Value: "0"},
}

func sweepNames() (names []string) {
	for _, s := range sweepSettings {
		if !slices.Contains(names, s.Key) {
			names = append(names, s.Key)
		}
	}
	return names
}

// sweepAim is a quantity to measure.
type sweepAim struct {
	sweep.Aim
	spec  bench.Spec
	value func(r *bench.Result) float64
}

// sweepAims has the quantities to measure. Both ends sleep when there is nothing to do, as
// endpoints do.
var sweepAims = []sweepAim{
	{
		sweep.Aim{Name: "half a round trip of 64 bytes", Unit: "µs", Less: true}, bench.Spec{Kind: bench.Lat, Size: 64},
		func(r *bench.Result) float64 { return r.Latency.P50 },
	},
	// With each of these sizes, another value of pack-copy differs from the default.
	{sweep.Aim{Name: "frames of 64 bytes", Unit: "million/s"}, bench.Spec{Kind: bench.PPS, Size: 64}, mpps},
	{sweep.Aim{Name: "frames of 256 bytes", Unit: "million/s"}, bench.Spec{Kind: bench.PPS, Size: 256}, mpps},
	{sweep.Aim{Name: "frames of 512 bytes", Unit: "million/s"}, bench.Spec{Kind: bench.PPS, Size: 512}, mpps},
	{
		sweep.Aim{Name: "large frames", Unit: "MiB/s"}, bench.Spec{Kind: bench.BW, Size: bench.MaxSize},
		func(r *bench.Result) float64 { return r.MiBPerSecond },
	},
}

func mpps(r *bench.Result) float64 { return r.Mpps }

// sweepFlags has the flags of `splitnic bench` itself.
type sweepFlags struct {
	benchConfig
	of       []string // the flags to try; none: no sweep
	rounds   int
	duration time.Duration
}

func (f *sweepFlags) add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.device, "device", "d", "", "RDMA device (default: the only one)")
	flags.StringVar(&f.peerDevice, "peer-device", "", "RDMA device of the receiving end (default: the same)")
	addPort(flags, &f.adapter, "i", "x")
	addPKey(flags, &f.adapter)
	inGroup(flags, deviceFlags)
	flags.StringSliceVar(&f.of, "sweep", nil, "try adapter-dependent settings of all flags, or of some: "+
		strings.Join(sweepNames(), ", "))
	flags.Lookup("sweep").NoOptDefVal = strings.Join(sweepNames(), ",")
	flags.IntVar(&f.rounds, "rounds", 7, "with --sweep: number of rounds")
	flags.DurationVarP(&f.duration, "duration", "D", 300*time.Millisecond, "with --sweep: time of each measurement")
	inGroup(flags, performanceFlags)
}

func (f *sweepFlags) settings() ([]sweep.Setting, error) {
	bad := func(format string, args ...any) error {
		return exit.Usagef(format+"; see `splitnic bench --help`", args...)
	}
	for _, name := range f.of {
		if !slices.Contains(sweepNames(), name) {
			return nil, bad("--sweep %s: must be some of %s", name, strings.Join(sweepNames(), ", "))
		}
	}
	if f.rounds < sweep.MinRounds {
		return nil, bad("--rounds %d: must be %d at least", f.rounds, sweep.MinRounds)
	}
	if f.duration <= 0 || f.duration > bench.MaxDuration {
		return nil, bad("--duration %v: must be above 0 and at most %v", f.duration, bench.MaxDuration)
	}
	return slices.DeleteFunc(slices.Clone(sweepSettings), func(s sweep.Setting) bool {
		return !slices.Contains(f.of, s.Key)
	}), nil
}

func (f *sweepFlags) run(cmd *cobra.Command) error {
	settings, err := f.settings()
	if err != nil {
		return err
	}
	return interrupted(cmd, f.withBoth(func(from, to *benchDevice, mcfg messaging.Config) error {
		return f.between(cmd.Context(), cmd.OutOrStdout(), from, to, mcfg, settings)
	}))
}

// between tries the settings and prints the results.
func (f *sweepFlags) between(
	ctx context.Context, w io.Writer, from, to fabric.Device, mcfg messaging.Config, settings []sweep.Setting,
) error {
	limit := spin.NewLimit()
	aims := make([]sweep.Aim, len(sweepAims))
	for i := range sweepAims {
		aims[i] = sweepAims[i].Aim
	}
	rows, err := sweep.Run(ctx, settings, aims, f.rounds,
		func(ctx context.Context, s sweep.Setting, a sweep.Aim) (float64, error) {
			aim := &sweepAims[slices.Index(aims, a)]
			c := mcfg
			c.SpinLimit = limit
			if err := applySweep(s, &c); err != nil {
				return 0, err
			}
			spec := aim.spec
			spec.Mode, spec.Queues, spec.Duration, spec.WarmUp = protocol.ModeImm, 1, f.duration, 100
			prepareBench(spec)
			ctx, cancel := context.WithTimeout(ctx, time.Minute+f.duration)
			defer cancel()
			r, err := (&bench.Local{From: from, To: to, Messaging: c}).Measure(ctx, spec)
			if err != nil {
				return 0, err
			}
			return aim.value(&r), nil
		})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s to %s, both ends in this process, %d rounds of %v each: median (least–greatest)\n\n", from.Name(),
		to.Name(), f.rounds, f.duration)
	return printSweep(w, rows, aims)
}

// applySweep applies a setting to the configuration of the channels, as an endpoint does.
func applySweep(s sweep.Setting, c *messaging.Config) error {
	switch s.Key {
	case "spin":
		return spinValue(&c.Spin, &c.SpinAdaptive).Set(s.Value)
	case "cq-moderation":
		return moderationValue(&c.Moderation).Set(s.Value)
	case "pack-copy":
		return packCopyValue(&c.PackCopy).Set(s.Value)
	case "inline":
		return inlineValue(&c.MaxInline).Set(s.Value)
	default:
		return nil
	}
}

// threeDigits formats v with three digits, or with all digits before the point.
func threeDigits(v float64) string {
	digits := 0
	for least := 100.0; v > 0 && v < least && digits < 6; least /= 10 {
		digits++
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

func printSweep(w io.Writer, rows []sweep.Row, aims []sweep.Aim) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := []string{""}
	for _, a := range aims {
		head = append(head, a.Name+", "+a.Unit)
	}
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, r := range rows {
		line := []string{r.String()}
		for _, f := range r.Figures {
			line = append(line, strings.TrimSpace(fmt.Sprintf("%s (%s–%s) %s", threeDigits(f.Median), threeDigits(f.Min),
				threeDigits(f.Max), f.Verdict)))
		}
		fmt.Fprintln(tw, strings.Join(line, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	say := "Use the defaults: nothing is better for something and worse for nothing."
	if best := sweep.Choose(rows, aims); len(best) > 0 {
		say = "Use in the configuration files of hosts and I/O units:\n\n" + advancedMap + ":"
		for _, s := range best {
			say += "\n  " + s.String()
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", say)
	return err
}
