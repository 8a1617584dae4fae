package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// benchFlags are the flags, and the argument, of a `splitnic bench` command.
type benchFlags struct {
	kind bench.Kind

	device, peerDevice, listen, addr string
	gidIndex                         int
	forever                          bool
	secret, secretFile               string

	modes         []string
	sizes         []int
	all           bool
	queues        int
	iters, warmUp uint64
	duration      time.Duration
	bidirectional bool
	postList      int
	txDepth       int
	poll, event   bool
	noPack        bool
	protection    string

	timeout        time.Duration
	json, progress bool

	parsedModes      []protocol.Mode
	parsedProtection messaging.Protection
}

// benchDefaults are what a kind measures unless it is told otherwise.
var benchDefaults = map[bench.Kind]struct {
	size  int
	iters uint64
}{
	bench.BW:  {bench.MaxSize, 1000},
	bench.Lat: {64, 1000},
	bench.PPS: {64, 100000},
}

// listenFlags are those that the end with --listen has: the rest is for the
// other end.
var listenFlags = []string{"device", "gid-index", "listen", "serve-forever", "secret", "secret-file", "mode"}

func (f *benchFlags) add(c *cobra.Command) {
	def := benchDefaults[f.kind]
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.device, "device", "d", "", "RDMA device (default: the one with the address of --listen, or the only one)")
	flags.StringVar(&f.peerDevice, "peer-device", "", "RDMA device of the receiving end, if both are in this process (default: the same)")
	flags.IntVarP(&f.gidIndex, "gid-index", "x", -1, "entry of the device's GID table (default: chosen as splitnic doctor explains)")
	flags.StringVar(&f.listen, "listen", "", fmt.Sprintf("wait at this address for the other node, on port %d unless it says otherwise", bench.DefaultPort))
	flags.BoolVar(&f.forever, "serve-forever", false, "with --listen: serve run after run, not one")
	flags.StringVar(&f.secret, "secret", "", "secret of both ends; everyone on this machine can read arguments, so prefer "+secretVariable+" or --secret-file (default with --listen: a random one)")
	flags.StringVar(&f.secretFile, "secret-file", "", "file with the secret")
	flags.StringSliceVar(&f.modes, "mode", nil, "transfer modes to measure, or with --listen to allow: some of "+strings.Join(modeNames(), ", ")+" (default: imm, and with --listen all)")
	flags.IntSliceVarP(&f.sizes, "size", "s", []int{def.size}, fmt.Sprintf("sizes to measure: bytes in each message, with the virtio_net_hdr, %d to %d", bench.MinSize, bench.MaxSize))
	flags.BoolVarP(&f.all, "all", "a", false, "measure sizes from 32 bytes to the largest")
	flags.Uint64VarP(&f.iters, "iters", "n", def.iters, "messages to time, over all queues")
	flags.DurationVarP(&f.duration, "duration", "D", 0, "time to measure, such as 10s, instead of --iters")
	flags.Uint64Var(&f.warmUp, "warm-up", 0, "messages to send before (default: a tenth of --iters; with --duration 1000)")
	if f.kind == bench.Lat {
		flags.Lookup("iters").Usage = "round trips to time"
		flags.Lookup("warm-up").Usage = "round trips before (default: a tenth of --iters; with --duration 1000)"
	} else {
		flags.IntVarP(&f.queues, "qp", "q", 1, "data channels")
		flags.BoolVarP(&f.bidirectional, "bidirectional", "b", false, "both ends send; the figures are of both together")
		flags.IntVarP(&f.postList, "post-list", "l", 0, "frames for each doorbell at most (default: as the driver does)")
	}
	flags.IntVarP(&f.txDepth, "tx-depth", "t", 0, "send buffers of each data channel (default: as the driver has)")
	flags.BoolVar(&f.poll, "poll", f.kind == bench.Lat, "poll on both ends: the least latency, for a processor each")
	flags.BoolVarP(&f.event, "event", "e", f.kind != bench.Lat, "sleep until something comes, on both ends")
	flags.BoolVar(&f.noPack, "no-pack", false, "a transfer for each frame, however small")
	addProtection(flags, &f.protection)
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "give up a measurement after this, and its --duration")
	flags.BoolVar(&f.json, "json", false, "print one JSON object for each measurement")
	flags.BoolVar(&f.progress, "progress", false, "show progress on standard error also if that is no terminal")
}

// check says what is wrong with the flags and the argument, together.
func (f *benchFlags) check(c *cobra.Command) error {
	bad := func(format string, args ...any) error {
		return usageError{fmt.Errorf(format+"; see `%s --help`", append(args, c.CommandPath())...)}
	}
	given := c.Flags().Changed
	switch {
	case given("listen") && f.listen == "":
		return bad("--listen: the address to listen on is missing; :%d is every address of this node", bench.DefaultPort)
	case f.listen != "" && f.addr != "":
		return bad("--listen and %s: this node waits for the other one, or goes there; give one of them", f.addr)
	case f.peerDevice != "" && (f.listen != "" || f.addr != ""):
		return bad("--peer-device is for both ends in this process; the other node chooses its own by --device")
	case f.forever && f.listen == "":
		return bad("--serve-forever is for the end with --listen")
	case (f.secret != "" || f.secretFile != "") && f.listen == "" && f.addr == "":
		return bad("a secret is for two nodes: --listen is missing, or the address of the other node")
	case f.secret != "" && f.secretFile != "":
		return bad("--secret and --secret-file: give one of them")
	case given("poll") && given("event") && f.poll == f.event:
		return bad("--poll and --event: give one of them")
	case f.all && given("size"):
		return bad("--all and --size: give one of them")
	case f.timeout <= 0:
		return bad("--timeout %v: must be above 0", f.timeout)
	}
	for flag, addr := range map[string]string{"--listen": f.listen, "the other node": f.addr} {
		if _, _, err := net.SplitHostPort(bench.WithPort(addr)); err != nil {
			return bad("%s: %w", flag, err)
		}
	}
	if f.listen != "" {
		if err := f.checkListen(c); err != nil {
			return err
		}
	}
	f.complete(given)
	var err error
	if f.parsedModes, err = parseModes("--mode", f.modes); err != nil {
		return err
	}
	if f.parsedProtection, err = parseProtection(f.protection); err != nil {
		return err
	}
	if len(f.sizes) == 0 {
		return bad("--size: no size is left; leave the flag out for the default")
	}
	for _, s := range f.specs() {
		if err := s.Check(); err != nil {
			return bad("%w", err)
		}
	}
	return nil
}

// checkListen finds flags that are for the other end.
func (f *benchFlags) checkListen(c *cobra.Command) error {
	var errs []error
	c.Flags().Visit(func(flag *pflag.Flag) {
		for _, name := range listenFlags {
			if flag.Name == name {
				return
			}
		}
		errs = append(errs, fmt.Errorf("--%s is for the other node, which says what is measured; leave it out where --listen is", flag.Name))
	})
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

// complete sets what depends on other flags.
func (f *benchFlags) complete(given func(string) bool) {
	if f.kind == bench.Lat {
		f.queues = 1
	}
	if !given("mode") {
		f.modes = []string{string(protocol.ModeImm)}
		if f.listen != "" {
			f.modes = modeNames()
		}
	}
	if given("duration") && !given("iters") {
		f.iters = 0
	}
	if !given("warm-up") {
		f.warmUp = f.iters / 10
		if f.duration > 0 {
			f.warmUp = 1000
		}
	}
	if given("event") && !given("poll") {
		f.poll = !f.event
	}
	if f.all {
		f.sizes = nil
		for size := 32; size < bench.MaxSize; size *= 2 {
			f.sizes = append(f.sizes, size)
		}
		f.sizes = append(f.sizes, bench.MaxSize)
	}
}

// specs are the measurements to carry out.
func (f *benchFlags) specs() []bench.Spec {
	var specs []bench.Spec
	for _, mode := range f.parsedModes {
		for _, size := range f.sizes {
			specs = append(specs, bench.Spec{
				Kind: f.kind, Mode: mode, Size: size, Queues: f.queues,
				Iterations: f.iters, Duration: f.duration, WarmUp: f.warmUp, Bidirectional: f.bidirectional,
				PostList: f.postList, TxDepth: f.txDepth, Poll: f.poll, NoPack: f.noPack, Protection: f.parsedProtection,
			})
		}
	}
	return specs
}
