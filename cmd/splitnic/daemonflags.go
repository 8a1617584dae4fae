package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/tap/steer"
)

const defaultKey = "/etc/splitnic/key.pem"

// daemonFlags has those flags of both endpoints that have to be parsed first. The other flags set
// the configuration directly.
type daemonFlags struct {
	logFormat             string
	protection            string
	handlerCPUs, priority string
	irqAffinity           string
	latency               bool
	latencyDSCP           []string
	latencySize           int
}

// add adds the flags, which set c. latencyOn is the default of --latency-queue, and latency its
// help text.
func (d *daemonFlags) add(flags *pflag.FlagSet, c *daemon.Common, latencyOn bool, latency string) {
	m := &c.Messaging
	flags.StringVar(&c.ConfigFile, "config", "", "YAML file with these flags as keys, and advanced settings; "+
		"flags on the command line take precedence")
	inGroup(flags, "")
	flags.StringVar(&c.Device, "device", "", "RDMA device, such as mlx5_0 or rxe0 (default: the only one)")
	addPort(flags, &c.Adapter, "", "")
	flags.Uint8Var(&m.TrafficClass, "traffic-class", 0,
		"traffic class of all packets on the fabric, DSCP in its upper six bits, such as 0x68")
	inGroup(flags, deviceFlags)
	boolVar(flags, &d.latency, "latency-queue", latencyOn, latency)
	inGroup(flags, performanceFlags)
	flags.DurationVar(&m.PeerTimeout, "peer-timeout", time.Second,
		"declare the peer dead after this long without traffic")
	inGroup(flags, reliabilityFlags)
	d.advanced(flags, c)
	addKeys(flags, &c.Keys)
	addEncrypt(flags, &c.Encrypt)
	addProtection(flags, &d.protection)
	inGroup(flags, securityFlags)
	flags.StringVar(&c.StatusSocket, "status-socket", "",
		"unix socket for splitnic status (default: in "+statussock.Dir+")")
	flags.StringVar(&c.Metrics, "metrics", "", "serve Prometheus metrics on this address, such as :9580")
	flags.StringVar(&c.MetricsConfig, "metrics-config", "",
		"TLS and users for --metrics: a file in the web-config format of Prometheus' exporter toolkit "+
			"(default: plain HTTP, without authentication)")
	addLogLevel(flags, &c.LogLevel)
	flags.StringVar(&d.logFormat, "log-format", "text", "text or json")
	inGroup(flags, observabilityFlags)
}

// advanced adds the advanced settings, which set c.
func (d *daemonFlags) advanced(flags *pflag.FlagSet, c *daemon.Common) {
	m := &c.Messaging
	addCiphers(flags, &c.Ciphers)
	advanced(flags, securityFlags)
	addPKey(flags, &c.Adapter)
	flags.Uint8Var(&m.ServiceLevel, "service-level", 0, "InfiniBand service level of all packets on the fabric, 0 to 15")
	flags.Uint8Var(&m.LatencyTrafficClass, "latency-traffic-class", 0,
		"traffic class of the latency channel's packets on the fabric, such as 0xb8 for EF (default: that of "+
			"--traffic-class)")
	flags.Uint8Var(&m.LatencyServiceLevel, "latency-service-level", 0,
		"InfiniBand service level of the latency channel's packets, 1 to 15 (default: that of advanced.service-level)")
	advanced(flags, deviceFlags)
	addOrdering(flags, &m.StrictOrdering)
	flags.StringSliceVar(&d.latencyDSCP, "latency-dscp", steer.DefaultClasses().DSCP.Words(),
		"DSCPs of latency-sensitive frames, by name or number, or none; ARP, neighbour discovery and ICMP echo are always latency-sensitive")
	flags.IntVar(&d.latencySize, "latency-size", 0,
		"also treat IP packets of up to this many bytes as latency-sensitive (default: none)")
	flags.IntVar(&c.Handlers.Number, "handlers", 0,
		fmt.Sprintf("completion-queue handlers for data, up to %d; queues are assigned to them in turn "+
			"(default: one for each completion vector of the device, at most one for each queue)", cq.MaxHandlers))
	flags.StringVar(&d.handlerCPUs, "handler-cpus", "",
		"processors for the handlers: a list such as 0-3,8, distributed over them, or HANDLER=LIST for each, "+
			"such as 1=0,2=2-3; handler 0 is for the control channel (default: any)")
	flags.StringVar(&d.priority, "handler-priority", "",
		"priority of the handlers' threads, -20 (first) to 19 (last), or latency or normal, for -10 and 0; "+
			"or HANDLER=PRIORITY for each, such as 1=latency,2=5 (default: normal)")
	flags.StringVar(&d.irqAffinity, "irq-affinity", "off",
		"off; follow: give handlers without processors those of their completion vector's interrupt; "+
			"set: give the interrupts the processors of their handlers, at the start; not tested on hardware")
	flags.IntVar(&c.Handlers.Budget, "poll-budget", cq.DefaultBudget,
		"completions to handle in a row before other work of the thread")
	flags.Var(spinValue(&c.Handlers.Spin, &c.Handlers.Adaptive), "spin",
		"time to poll before sleeping, such as 20us: uses a processor, saves some microseconds; auto[:LONGEST]: only "+
			"after small frames and short sleeps, and if processors are idle, for up to 100us or LONGEST")
	flags.Var(moderationValue(&m.Moderation), "cq-moderation",
		"wake up once for this many completions, or this long after the first of them, such as 16,50us, "+
			"if the device supports it (default: for each completion)")
	addPackCopy(flags, &m.PackCopy)
	addInline(flags, &m.MaxInline)
	flags.IntVar(&m.MaxPools, "max-pools", 0,
		"maximum number of pools to lend on each data channel, on request of the peer (default: two more than at the beginning)")
	flags.DurationVar(&m.PoolIdle, "pool-idle", 10*time.Second,
		"return a pool that was lent on request after it has been unused for this long")
	advanced(flags, performanceFlags)
	flags.DurationVar(&m.KeepAlive, "keep-alive", 0,
		"interval of keep-alives on an idle session (default: 500ms, at most half of --peer-timeout)")
	flags.DurationVar(&c.HandshakeTimeout, "handshake-timeout", 10*time.Second,
		"time limit for opening a session, with its queue pairs")
	flags.Uint8Var(&m.Timing.Timeout, "qp-timeout", 0,
		"queue-pair timeout, 4.096 µs × 2^N (default: 14, which is 67 ms; 18 on Soft-RoCE)")
	flags.Uint8Var(&m.Timing.RetryCount, "qp-retries", 6, "queue-pair retries, 1 to 6")
	advanced(flags, reliabilityFlags)
}

// addPort adds the flags for the port and GID of the queue pairs. port and gid are
// shorthands of the first two, those of perftest or empty.
func addPort(f *pflag.FlagSet, a *daemon.Adapter, port, gid string) {
	a.Port, a.GIDIndex = 1, -1
	f.VarP(rangeValue(&a.Port, 1, 255, "PORT"), "ib-port", port, "port of the RDMA device")
	f.VarP(rangeValue(&a.GIDIndex, 0, 255, "INDEX"), "gid-index", gid,
		"entry of the device's GID table (default: chosen as splitnic doctor explains); on InfiniBand, set at both ends, "+
			"packets carry GIDs and cross routers")
}

// addPKey adds the flag for the P_Key of the queue pairs.
func addPKey(f *pflag.FlagSet, a *daemon.Adapter) {
	f.Var(pkeyValue(&a.PKey), "pkey",
		"partition key of the queue pairs, by value: with the bit 0x8000, as a full member of the partition alone, without it "+
			"as a limited one too (default: the first of the port's table)")
}

// addLogLevel adds the flag for the level of the log, which a reload reads again.
func addLogLevel(flags *pflag.FlagSet, level *slog.Level) {
	*level = slog.LevelInfo
	flags.Var(levelValue(level), "log-level", "debug, info, warn or error")
	inGroup(flags, observabilityFlags)
}

// addKeys adds the flags about keys that both endpoints have.
func addKeys(flags *pflag.FlagSet, k *daemon.Keys) {
	flags.StringVar(&k.Key, "key", defaultKey, "private key of this side, made by splitnic keygen")
	flags.StringArrayVar(&k.Trust, "trust", nil, "fingerprint of a trusted peer's key, as [name=]sha256:…; may be repeated")
	flags.StringVar(&k.TrustFile, "trust-file", "", "file of trusted fingerprints, one [name=]sha256:… on each line")
	flags.StringVar(&k.CA, "ca", "", "trust peers with a certificate from the authorities in this PEM file")
	flags.StringVar(&k.Cert, "cert", "", "certificate for --key, for peers that use --ca")
	flags.StringVar(&k.Revoked, "revoked", "", "file of revoked fingerprints, one [name=]sha256:… on each line: "+
		"their keys are not trusted, even if they are listed or certified")
	boolVar(flags, &k.Insecure, "insecure", false, "no keys: accept any peer that also has this flag; for trials only")
	inGroup(flags, securityFlags)
}

// addNames adds the flag about keys that only hosts have.
func addNames(flags *pflag.FlagSet, k *daemon.Keys) {
	flags.StringSliceVar(&k.IOUnitNames, "iounit-name", nil, "name of the I/O unit in its certificate, for --ca; "+
		"a list for several I/O units (default: any I/O unit of the authority)")
	inGroup(flags, securityFlags)
}

// complete completes the configuration from the flags, and checks the part that both endpoints
// have.
func (d *daemonFlags) complete(c *daemon.Common) error {
	c.Version = version
	m := &c.Messaging
	m.Spin, m.SpinAdaptive = c.Handlers.Spin, c.Handlers.Adaptive
	var err error
	m.Protection, err = parseProtection(d.protection)
	return errors.Join(err, d.logging(c), timing(c), pools(m), d.handlers(&c.Handlers), d.latencyQueue(c), c.Keys.Check(),
		between("advanced.service-level", int(m.ServiceLevel), 0, 15, ""),
		between("advanced.latency-service-level", int(m.LatencyServiceLevel), 0, 15, ""))
}

func (d *daemonFlags) logging(c *daemon.Common) error {
	c.LogJSON = d.logFormat == "json"
	var errs mistakes
	if c.MetricsConfig != "" && c.Metrics == "" {
		errs.add("--metrics-config %s: there are no metrics; add --metrics", c.MetricsConfig)
	}
	if c.Metrics != "" && !canListen(c.Metrics) {
		errs.add("--metrics %q: must be ADDRESS:PORT or :PORT, such as :9580", c.Metrics)
	}
	if !c.LogJSON && d.logFormat != "text" {
		errs.add("--log-format %q: must be text or json", d.logFormat)
	}
	return errors.Join(errs...)
}

func timing(c *daemon.Common) error {
	m := &c.Messaging
	var errs mistakes
	m.KeepAlive = cmp.Or(m.KeepAlive, messaging.DefaultKeepAlive(m.PeerTimeout))
	if m.KeepAlive <= 0 || m.PeerTimeout <= m.KeepAlive {
		errs.add("--peer-timeout %v must exceed advanced.keep-alive %v, which must be above 0", m.PeerTimeout, m.KeepAlive)
	}
	errs = append(errs, positive("advanced.handshake-timeout", c.HandshakeTimeout))
	if m.Timing.RetryCount < 1 || m.Timing.RetryCount > 6 {
		errs.add("advanced.qp-retries %d: must be 1 to 6; 7 means infinite on some devices", m.Timing.RetryCount)
	}
	if m.Timing.Timeout > 31 {
		errs.add("advanced.qp-timeout %d: must be 1 to 31, or 0 for the default", m.Timing.Timeout)
	}
	return errors.Join(errs...)
}

// minPools is the largest number of pools that a session begins with.
const minPools = 3

func pools(m *messaging.Config) error {
	var most error
	if m.MaxPools != 0 {
		most = between("advanced.max-pools", m.MaxPools, minPools, messaging.MaxPools, ", or 0 for the default")
	}
	return errors.Join(positive("advanced.pool-idle", m.PoolIdle), most)
}

// handlers parses the flags about handlers. Whether this machine allows them is checked later.
func (d *daemonFlags) handlers(h *daemon.Handlers) error {
	var errs mistakes
	if h.Number < 0 || h.Number > cq.MaxHandlers {
		errs.add("advanced.handlers %d: must be 1 to %d, or 0 for the default", h.Number, cq.MaxHandlers)
	}
	switch h.IRQ = daemon.IRQAffinity(d.irqAffinity); h.IRQ {
	case daemon.IRQOff, daemon.IRQFollow, daemon.IRQSet:
	default:
		errs.add("advanced.irq-affinity %q: must be off, follow or set", d.irqAffinity)
	}
	return errors.Join(append(errs, between("advanced.poll-budget", h.Budget, 1, cq.MaxBudget, ""),
		eachHandler("advanced.handler-cpus", d.handlerCPUs, h.Number, cpus.Parse, &h.Spread, &h.CPUs),
		eachHandler("advanced.handler-priority", d.priority, h.Number, parsePriority, &h.Priority, &h.Priorities))...)
}

// eachHandler parses the value of a flag. This is one value for all handlers, or a value for each
// of some handlers. handlers is the number of handlers, 0 if it is not known yet.
func eachHandler[T any](flag, text string, handlers int, parse func(string) (T, error), all *T, each *map[int]T) error {
	values, err := parseNumbered(text)
	if values == nil && err == nil && text != "" {
		*all, err = parse(text)
	}
	if err != nil {
		return exit.Usagef("%s: %w", flag, err)
	}
	for _, v := range values {
		if most := cmp.Or(handlers, cq.MaxHandlers); v.number > most {
			return daemon.UnknownHandler(flag, v.number, most)
		}
		value, err := parse(v.value)
		if err != nil {
			return exit.Usagef("%s: handler %d: %w", flag, v.number, err)
		}
		if *each == nil {
			*each = map[int]T{}
		}
		(*each)[v.number] = value
	}
	return nil
}

// latencyQueue parses the flags that say which frames are latency-sensitive.
func (d *daemonFlags) latencyQueue(c *daemon.Common) error {
	var errs mistakes
	set, err := steer.ParseDSCP(d.latencyDSCP)
	if err != nil {
		errs.add("advanced.latency-dscp: %w", err)
	}
	classes := &steer.Classes{DSCP: set, Size: d.latencySize}
	if classes.Check() != nil {
		errs.add("advanced.latency-size %d: must be 0 to %d", d.latencySize, steer.MaxSize)
	}
	if d.latency {
		c.Latency = classes
	}
	return errors.Join(errs...)
}
