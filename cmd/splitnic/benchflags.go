package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/seal"
)

// secretVariable is the environment variable that may have the secret of a measurement between
// two nodes.
const secretVariable = "SPLITNIC_BENCH_SECRET"

// benchConfig is the configuration of a `splitnic bench` command.
type benchConfig struct {
	kind bench.Kind

	device, peerDevice, listen, addr string
	adapter                          daemon.Adapter // without its device
	strictOrdering                   bool
	packCopy, inline                 int
	forever                          bool
	secret, secretFile               string
	modes                            []protocol.Mode
	specs                            []bench.Spec // to measure; none with listen
	timeout                          time.Duration
	json, progress                   bool
}

// benchFlags has the flags and the argument: the configuration, and the values from which the
// measurements are made.
type benchFlags struct {
	benchConfig
	spec       bench.Spec // without mode, size and protection
	modeNames  []string
	sizes      []int
	all, event bool
	encrypt    bool
	protection string
}

// benchKind is a kind of measurement.
type benchKind struct {
	short   string
	size    int    // default
	iters   uint64 // default
	columns string // those of perftest, if it has this kind
}

var benchKinds = map[bench.Kind]benchKind{
	bench.BW: {"Measure throughput, as ib_write_bw does", bench.MaxSize, 1000,
		" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n"},
	bench.Lat: {"Measure half of the round-trip time, as ib_write_lat does", 64, 1000,
		" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]" +
			"   99% percentile[usec]   99.9% percentile[usec]\n"},
	bench.PPS: {"Measure the rate of small frames, and of the transfers that carry them", 64, 100000,
		" #bytes     #iterations    MsgRate[Mpps]    Transfers[M/sec]    Doorbells[M/sec]    BW average[MiB/sec]\n"},
}

// listenFlags has the flags of the end with --listen. The other flags are for the other end.
var listenFlags = []string{"device", "ib-port", "gid-index", "pkey", "listen", "serve-forever", "secret", "secret-file",
	"mode"}

func (f *benchFlags) add(flags *pflag.FlagSet) {
	f.spec.Kind = f.kind
	def := benchKinds[f.kind]
	flags.StringVar(&f.listen, "listen", "",
		fmt.Sprintf("wait at this address for the other node (default port: %d)", bench.DefaultPort))
	boolVar(flags, &f.forever, "serve-forever", false, "with --listen: serve any number of runs instead of one")
	inGroup(flags, identityFlags)
	flags.StringVarP(&f.device, "device", "d", "",
		"RDMA device (default: the one with the address of --listen, or the only one)")
	flags.StringVar(&f.peerDevice, "peer-device", "",
		"RDMA device of the receiving end, if both ends are in this process (default: the same)")
	addPort(flags, &f.adapter, "i", "x")
	addPKey(flags, &f.adapter)
	inGroup(flags, deviceFlags)
	f.addSpec(flags, def.size, def.iters)
	addOrdering(flags, &f.strictOrdering)
	addInline(flags, &f.inline)
	if f.kind != bench.Lat { // a round trip has no pack
		addPackCopy(flags, &f.packCopy)
	}
	inGroup(flags, performanceFlags)
	flags.StringVar(&f.secret, "secret", "",
		"secret of both ends; everyone on this machine can read arguments, so prefer "+secretVariable+
			" or --secret-file (default with --listen: a random one)")
	flags.StringVar(&f.secretFile, "secret-file", "", "file with the secret")
	addProtection(flags, &f.protection)
	boolVar(flags, &f.encrypt, "encrypt", false, "encrypt all frames, with the cipher that this machine prefers")
	inGroup(flags, securityFlags)
	boolVar(flags, &f.json, "json", false, "print one JSON object for each measurement")
	boolVar(flags, &f.progress, "progress", false, "show progress on standard error even if it is not a terminal")
	inGroup(flags, observabilityFlags)
}

// addSpec adds the flags that specify what to measure.
func (f *benchFlags) addSpec(g *pflag.FlagSet, size int, iters uint64) {
	messages, unit := "messages to time, over all queues", "messages"
	if f.kind == bench.Lat {
		messages, unit = "round trips to time", "round trips"
	}
	g.StringSliceVar(&f.modeNames, "mode", nil, "transfer modes to measure, or with --listen to allow: some of "+
		strings.Join(modeNames(), ", ")+" (default: imm, and with --listen all)")
	g.IntSliceVarP(&f.sizes, "size", "s", []int{size},
		fmt.Sprintf("sizes to measure: bytes in each message, with the virtio_net_hdr, %d to %d", bench.MinSize,
			bench.MaxSize))
	boolVarP(g, &f.all, "all", "a", false, "measure sizes from 32 bytes to the largest")
	g.Uint64VarP(&f.spec.Iterations, "iters", "n", iters, messages)
	g.DurationVarP(&f.spec.Duration, "duration", "D", 0, "time to measure, such as 10s, instead of --iters")
	g.Uint64Var(&f.spec.WarmUp, "warm-up", 0, unit+" to send before the measurement (default: a tenth of --iters; with --duration 1000)")
	f.spec.Queues = 1
	if f.kind != bench.Lat {
		g.IntVarP(&f.spec.Queues, "qp", "q", 1, "data channels")
		boolVarP(g, &f.spec.Bidirectional, "bidirectional", "b", false, "let both ends send; figures are sums of both")
		g.IntVarP(&f.spec.PostList, "post-list", "l", 0, "maximum number of frames for each doorbell (default: the driver's)")
	}
	g.IntVarP(&f.spec.TxDepth, "tx-depth", "t", 0, "send buffers of each data channel (default: the driver's)")
	boolVar(g, &f.spec.Poll, "poll", f.kind == bench.Lat, "poll on both ends: lowest latency, uses a processor at each end")
	boolVarP(g, &f.event, "event", "e", f.kind != bench.Lat, "sleep until a completion event, on both ends")
	boolVar(g, &f.spec.NoPack, "no-pack", false, "make a separate transfer for each frame, even a small one")
	g.DurationVar(&f.timeout, "timeout", time.Minute, "abort a measurement after this time plus its --duration")
}

// config returns the configuration that the flags and the argument specify.
func (f *benchFlags) config(flags *pflag.FlagSet) (benchConfig, error) {
	bad := func(err error) (benchConfig, error) {
		return benchConfig{}, exit.Usagef("%w; see `splitnic bench %s --help`", err, f.kind)
	}
	c := f.benchConfig
	if err := f.conflict(flags.Changed); err != nil {
		return bad(err)
	}
	for flag, addr := range map[string]string{"--listen": f.listen, "the other node": f.addr} {
		if _, _, err := net.SplitHostPort(bench.WithPort(addr)); err != nil {
			return bad(fmt.Errorf("%s: %w", flag, err))
		}
	}
	if c.listen != "" {
		if err := checkListen(flags); err != nil {
			return c, err
		}
	}
	spec, names, sizes := f.complete(flags.Changed)
	var err error
	if c.modes, err = parseModes("--mode", names); err != nil {
		return c, err
	}
	if spec.Protection, err = parseProtection(f.protection); err != nil {
		return c, err
	}
	if len(sizes) == 0 {
		return bad(errors.New("--size: empty list of sizes; omit the flag for the default"))
	}
	for _, mode := range c.modes {
		for _, size := range sizes {
			spec.Mode, spec.Size = mode, size
			if err := spec.Check(); err != nil {
				return bad(err)
			}
			c.specs = append(c.specs, spec)
		}
	}
	return c, nil
}

// conflict returns an error for flags that cannot be used together.
func (f *benchFlags) conflict(given func(string) bool) error {
	switch {
	case given("listen") && f.listen == "":
		return fmt.Errorf("--listen: the address to listen on is missing; :%d is every address of this node",
			bench.DefaultPort)
	case f.listen != "" && f.addr != "":
		return fmt.Errorf("--listen and %s: this node either listens or connects; use one of them", f.addr)
	case f.peerDevice != "" && (f.listen != "" || f.addr != ""):
		return errors.New("--peer-device needs both ends in this process; the other node selects its device by --device")
	case f.forever && f.listen == "":
		return errors.New("--serve-forever needs --listen")
	case (f.secret != "" || f.secretFile != "") && f.listen == "" && f.addr == "":
		return errors.New("a secret needs two nodes: add --listen, or the address of the other node")
	case f.secret != "" && f.secretFile != "":
		return errors.New("--secret and --secret-file: give one of them")
	case given("poll") && given("event") && f.spec.Poll == f.event:
		return errors.New("--poll and --event: give one of them")
	case f.all && given("size"):
		return errors.New("--all and --size: give one of them")
	case f.timeout <= 0:
		return fmt.Errorf("--timeout %v: must be above 0", f.timeout)
	}
	return nil
}

// checkListen returns an error for flags that are for the other end.
func checkListen(flags *pflag.FlagSet) error {
	var errs []error
	flags.Visit(func(flag *pflag.Flag) {
		if !slices.Contains(listenFlags, flag.Name) {
			errs = append(errs,
				fmt.Errorf("--%s is a flag of the other node, which sets the measurement; omit it with --listen", flag.Name))
		}
	})
	if len(errs) > 0 {
		return exit.Usagef("%w", errors.Join(errs...))
	}
	return nil
}

// complete returns the values that depend on other flags.
func (f *benchFlags) complete(given func(string) bool) (spec bench.Spec, modes []string, sizes []int) {
	spec, modes, sizes = f.spec, f.modeNames, f.sizes
	if !given("mode") {
		modes = []string{string(protocol.ModeImm)}
		if f.listen != "" {
			modes = modeNames()
		}
	}
	if given("duration") && !given("iters") {
		spec.Iterations = 0
	}
	if !given("warm-up") {
		spec.WarmUp = spec.Iterations / 10
		if spec.Duration > 0 {
			spec.WarmUp = 1000
		}
	}
	if given("event") && !given("poll") {
		spec.Poll = !f.event
	}
	if f.all {
		sizes = nil
		for size := 32; size < bench.MaxSize; size *= 2 {
			sizes = append(sizes, size)
		}
		sizes = append(sizes, bench.MaxSize)
	}
	if f.encrypt {
		spec.Cipher = seal.Ciphers()[0]
		if !given("size") {
			sizes = slices.Clone(sizes)
			last := len(sizes) - 1
			sizes[last] = min(sizes[last], bench.MaxSize-seal.Overhead)
		}
	}
	return spec, modes, sizes
}
