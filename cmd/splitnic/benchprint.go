package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/verbs"
)

// benchPrinter prints measurements in the format of perftest, and their progress.
type benchPrinter struct {
	out, err      io.Writer
	json          bool
	terminal      bool // err is a terminal
	progress      bool
	device, where string
	link          string
	mtu           int
	mode          protocol.Mode // of the header that was printed last
}

func (b *benchConfig) printer(c *cobra.Command, dev *verbs.Context, where string) *benchPrinter {
	p := &benchPrinter{
		out: c.OutOrStdout(), err: c.ErrOrStderr(), json: b.json, device: dev.Name(), where: where, link: "unknown",
	}
	p.terminal = isTerminal(p.err)
	p.progress = b.progress || p.terminal
	ports, err := dev.Ports()
	if err != nil {
		return p // opening a queue pair will report the problem
	}
	for _, port := range ports {
		if port.State == verbs.PortActive {
			p.link, p.mtu = port.LinkLayer.String(), port.ActiveMTU
			break
		}
	}
	return p
}

const benchRule = "---------------------------------------------------------------------------------------\n"

// result prints a measurement, the first one of a mode below a header.
func (p *benchPrinter) result(s bench.Spec, r bench.Result) error {
	if p.json {
		return json.NewEncoder(p.out).Encode(r)
	}
	if p.mode != s.Mode {
		p.mode = s.Mode
		fmt.Fprint(p.out, benchHeader(p, s, r))
	}
	_, err := fmt.Fprint(p.out, benchRow(r))
	return err
}

func benchHeader(p *benchPrinter, s bench.Spec, r bench.Result) string {
	byDriver := func(n int) string {
		if n == 0 {
			return "the driver's"
		}
		return fmt.Sprint(n)
	}
	choose := func(yes bool, a, b string) string {
		if yes {
			return a
		}
		return b
	}
	var b strings.Builder
	line := func(name string, value any, name2 string, value2 any) {
		fmt.Fprintf(&b, " %-16s: %-24v %-16s: %v\n", name, value, name2, value2)
	}
	b.WriteString(benchRule)
	fmt.Fprintf(&b, "                    splitnic bench %s\n", s.Kind)
	fmt.Fprintf(&b, " %-16s: %s %s\n", "Device", p.device, p.where)
	line("Transfer mode", s.Mode, "Number of qps", s.Queues)
	line("Link type", p.link, "Mtu", fmt.Sprintf("%d[B]", p.mtu))
	line("Post list", byDriver(s.PostList), "TX depth", byDriver(s.TxDepth))
	line("Waiting", choose(s.Poll, "polls", "sleeps"), "Packs", choose(s.NoPack, "no", "small frames"))
	line("Direction", choose(s.Bidirectional || s.Kind == bench.Lat, "both", "one"), "Warm-up", s.WarmUp)
	fmt.Fprintf(&b, " %-16s: %s\n", "Encryption", cmp.Or(string(r.Cipher), "none"))
	fmt.Fprintf(&b, " %-16s: %s%s\n", "Protection", r.Protection, choose(s.Protection == "", ", the device's default", ""))
	b.WriteString(benchRule)
	b.WriteString(benchKinds[s.Kind].columns)
	return b.String()
}

func benchRow(r bench.Result) string {
	switch r.Name {
	case bench.Lat:
		l := r.Latency
		return fmt.Sprintf(" %-7d %-10d %-14.2f %-14.2f %-16.2f %-14.2f %-17.2f %-22.2f %-22.2f\n",
			r.Size, r.Iterations, l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.P99, l.P999)
	case bench.PPS:
		return fmt.Sprintf(" %-10d %-14d %-16.6f %-19.6f %-19.6f %.2f\n",
			r.Size, r.Iterations, r.Mpps, r.TransfersPerSecond/1e6, r.PostsPerSecond/1e6, r.MiBPerSecond)
	default:
		return fmt.Sprintf(" %-10d %-14d %-19.2f %-21.2f %.6f\n", r.Size, r.Iterations, r.PeakMiBPerSecond, r.MiBPerSecond,
			r.Mpps)
	}
}

// watch returns the function that shows progress, or nil if it is not to be shown.
func (p *benchPrinter) watch() func(bench.Progress) {
	if !p.progress {
		return nil
	}
	return func(now bench.Progress) {
		text := fmt.Sprintf("%s, %d bytes: %d messages in %v, now %.3f Mpps, %.1f MiB/s", now.Spec.Mode, now.Spec.Size,
			now.Messages,
			now.Time.Round(100*time.Millisecond), now.Rate/1e6, now.Rate*float64(now.Spec.Size)/(1<<20))
		if p.terminal {
			fmt.Fprintf(p.err, "\r%s\x1b[K", text)
		} else {
			fmt.Fprintln(p.err, text)
		}
	}
}

func (p *benchPrinter) clear() {
	if p.terminal {
		fmt.Fprint(p.err, "\r\x1b[K")
	}
}
