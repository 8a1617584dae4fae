package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/bpf"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/units"
	"github.com/splitnic/splitnic/splitdrv/capture"
)

type captureFlags struct {
	write, paths, filter, buffer string
	frames                       uint64
	snap                         int
	duration                     time.Duration
}

func captureCommand() *cobra.Command {
	var f captureFlags
	c := &cobra.Command{
		Use:   "capture [NAME] [--write FILE]",
		Short: "Capture the frames of a host or I/O unit on this machine, for Wireshark",
		Long: `Capture the frames that cross the fabric for a host, or for all hosts of an I/O unit, on
this machine, and write them in the format pcap-ng to standard output or a file. Wireshark,
tshark and tcpdump can read it. ` + whichNames + `
It can be omitted if there is only one.

Each path of frames is an interface of the file: "uplink queue 0" is queue 0 of a host's
netdevice, through the I/O unit; "uplink latency queue" is its latency queue; "direct beta"
is the direct connection to host beta. At an I/O unit "host alpha queue 0" is queue 0 of host
alpha. Outbound frames are about to be sent over the fabric, inbound frames were received
over it. Frames appear as they cross the fabric: super-frames are not segmented yet, and some
checksums are not computed yet, which a comment says. At an I/O unit inbound frames are those
from the host, including those that the policy drops.

Frames wait for the reader in a buffer of fixed size. When the buffer is full, frames are not
captured, but they are never delayed. The statistics of the file and the last line on standard
error count them. A capture ends by an interrupt, --frames, --duration, or with its reader.

Frames contain user data. Only root and the user who runs the process can open its status
socket, through which they are read. Only its owner can read a new FILE.`,
		Example: `  splitnic capture sn0 | wireshark -k -i -
  ssh root@unit splitnic capture 7580 | wireshark -k -i -
  splitnic capture sn0 --duration 10s --write sn0.pcapng
  splitnic capture sn0 --filter 'arp or icmp' | tshark -r - -T fields \
      -e frame.interface_name -e frame.packet_flags_direction -e _ws.col.Info
  splitnic capture 7580 --path 'host alpha *' --snap-length 128 --write alpha.pcapng`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args, statussock.List) },
	}
	c.Flags().StringVarP(&f.write, "write", "w", "-", "file to write to; -: standard output")
	c.Flags().StringVar(&f.paths, "path", "", "only paths whose name matches this shell pattern, such as 'direct *'")
	c.Flags().StringVar(&f.filter, "filter", "", "only frames that match this expression of pcap-filter(7); needs tcpdump, to compile it")
	c.Flags().Uint64VarP(&f.frames, "frames", "c", 0, "end after this many frames; 0: no limit")
	c.Flags().DurationVar(&f.duration, "duration", 0, "end after this time; 0: no limit")
	c.Flags().IntVarP(&f.snap, "snap-length", "s", capture.MaxSnapLength, "maximum bytes to capture of each frame")
	c.Flags().StringVar(&f.buffer, "buffer", "8MiB", "size of the buffer for frames that wait for the reader")
	return c
}

func (f *captureFlags) request(ctx context.Context) (daemon.CaptureRequest, error) {
	r := daemon.CaptureRequest{Duration: f.duration, Config: capture.Config{
		Name: rand.Text(), Paths: f.paths, Text: f.filter, SnapLength: f.snap, Frames: f.frames,
	}}
	var wrong mistakes
	if err := between("--snap-length", f.snap, 1, capture.MaxSnapLength, ""); err != nil {
		wrong = append(wrong, err)
	}
	if f.duration < 0 {
		wrong.add("--duration %v: must be 0 or more", f.duration)
	}
	if _, err := path.Match(f.paths, ""); err != nil {
		wrong.add("--path %q is no pattern: * and ? stand for characters, [ ] for one of several", f.paths)
	}
	size, err := units.Memory(f.buffer)
	switch {
	case err != nil:
		wrong.add("--buffer: %w", err)
	case size < capture.MinBuffer || size > capture.MaxBuffer:
		wrong.add("--buffer %s: must be %s to %s", f.buffer, units.Size(capture.MinBuffer), units.Size(capture.MaxBuffer))
	}
	r.Buffer = int(size)
	if len(wrong) == 0 && f.filter != "" {
		r.Filter, err = compileFilter(ctx, f.filter)
		wrong = append(wrong, err)
	}
	return r, errors.Join(wrong...)
}

func (f *captureFlags) run(cmd *cobra.Command, args []string, list func() ([]string, error)) (err error) {
	r, err := f.request(cmd.Context())
	if err != nil {
		return err
	}
	socket, err := oneSocket(cmd.Context(), frameRole, args, list)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	switch {
	case f.write != "-":
		file, openErr := os.OpenFile(f.write, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if openErr != nil {
			return fmt.Errorf("--write: %w", openErr)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		w = file
	case isTerminal(w):
		return exit.Usagef("standard output is a terminal, and a capture is not text: use --write FILE, or pipe it to wireshark -k -i -")
	}
	s, err := captureTo(cmd.Context(), w, socket, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s captured, %d dropped\n", render.Counted(s.Frames-s.Dropped, "frame"), s.Dropped)
	return nil
}

// captureTo copies a capture to w until the capture ends. When ctx is done, it asks the process to
// end the capture, and copies the rest.
func captureTo(ctx context.Context, w io.Writer, socket string, r daemon.CaptureRequest) (s capture.Status, err error) {
	within, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		asking, done := context.WithTimeout(within, captureEnd)
		defer done()
		if _, err := statussock.DoWith(asking, socket, daemon.CommandEndCapture, r.Name); err != nil {
			cancel()
			return
		}
		// The reader of w may not read the rest.
		time.AfterFunc(captureEnd, cancel)
	})()
	raw, err := statussock.Stream(within, socket, daemon.CommandCapture, r, w)
	switch {
	case errors.Is(err, statussock.ErrUnknown):
		return s, exit.Usagef("%w; an agent itself has no frames: name one of its cards", err)
	case err != nil:
		return s, named(err, daemon.CommandCapture, shownName(socket))
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("capture: %w", err)
	}
	return s, nil
}

// captureEnd is the time limit for ending a capture.
const captureEnd = 5 * time.Second

// compileFilter runs tcpdump to compile an expression of pcap-filter(7) for Ethernet frames.
func compileFilter(ctx context.Context, expression string) ([]bpf.RawInstruction, error) {
	var out, complaint bytes.Buffer
	c := exec.CommandContext(ctx, "tcpdump", "-y", "EN10MB", "-ddd", "--", expression)
	c.Stdout, c.Stderr = &out, &complaint
	var failed *exec.ExitError
	switch err := c.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return nil, exit.With(exit.Missing, fmt.Errorf("--filter: %w: install tcpdump, which compiles the expression, "+
			"or filter in Wireshark", err))
	case errors.As(err, &failed):
		return nil, exit.Usagef("--filter %q: %s", expression, strings.Join(strings.Fields(complaint.String()), " "))
	case err != nil:
		return nil, fmt.Errorf("--filter: %w", err)
	}
	program, err := parseFilter(out.String())
	if err != nil {
		return nil, fmt.Errorf("--filter: what tcpdump has compiled: %w", err)
	}
	return program, nil
}

// maxFilter is the maximum number of instructions of a filter (BPF_MAXINSNS).
const maxFilter = 4096

// parseFilter parses a program in the format of `tcpdump -ddd`: the number of its instructions,
// and a line of four numbers for each.
func parseFilter(text string) ([]bpf.RawInstruction, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var n int
	if _, err := fmt.Sscanf(lines[0], "%d", &n); err != nil || n != len(lines)-1 || n < 1 || n > maxFilter {
		return nil, fmt.Errorf("%d lines, and the first one is %.20q", len(lines), lines[0])
	}
	program := make([]bpf.RawInstruction, n)
	for i := range program {
		p := &program[i]
		if _, err := fmt.Sscanf(lines[1+i], "%d %d %d %d", &p.Op, &p.Jt, &p.Jf, &p.K); err != nil {
			return nil, fmt.Errorf("instruction %d, %.40q: %w", i, lines[1+i], err)
		}
	}
	return program, nil
}
