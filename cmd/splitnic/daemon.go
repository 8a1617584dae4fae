package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/verbs"
)

// daemonFlags are the flags that both halves have.
type daemonFlags struct {
	keyFlags
	channelFlags
	handlerFlags
	origin                 origin
	config, name, device   string
	gidIndex               int
	queues                 int
	netns                  string
	timeout, retry         uint8
	keepAlive, peerTimeout time.Duration
	handshakeTimeout       time.Duration
	maxPools               int
	poolIdle               time.Duration
	statusSocket, metrics  string
	logLevel, logFormat    string
}

func (d *daemonFlags) add(c *cobra.Command) {
	f := c.Flags()
	d.keyFlags.add(f)
	d.channelFlags.add(f)
	d.handlerFlags.add(f)
	f.StringVar(&d.config, "config", "", "YAML file with these flags as keys; flags on the command line win")
	f.StringVar(&d.device, "device", "", "RDMA device, such as mlx5_0 or rxe0 (default: the only one)")
	f.IntVar(&d.gidIndex, "gid-index", -1, "entry of the device's GID table (default: chosen as splitnic doctor explains)")
	f.Uint8Var(&d.timeout, "qp-timeout", 0, "queue-pair timeout, 4.096 µs × 2^N (default: 14, which is 67 ms; 18 on Soft-RoCE)")
	f.Uint8Var(&d.retry, "qp-retries", 6, "queue-pair retries, 1 to 6")
	f.DurationVar(&d.keepAlive, "keep-alive", 250*time.Millisecond, "interval of keep-alives on an idle session")
	f.DurationVar(&d.peerTimeout, "peer-timeout", time.Second, "silence after which the other half is taken for dead")
	f.DurationVar(&d.handshakeTimeout, "handshake-timeout", 10*time.Second, "time to open a session, the making of queue pairs included")
	f.IntVar(&d.maxPools, "max-pools", 0, "pools to lend on each data channel at most, when the other half asks for more (default: two more than at the beginning)")
	f.DurationVar(&d.poolIdle, "pool-idle", 10*time.Second, "time after which a pool that was asked for, and is not used, goes back")
	f.StringVar(&d.statusSocket, "status-socket", "", "unix socket for splitnic status (default: in "+statussock.Dir+")")
	f.StringVar(&d.metrics, "metrics", "", "serve Prometheus metrics on this address, such as :9580")
	f.StringVar(&d.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&d.logFormat, "log-format", "text", "text or json")
}

func (d *daemonFlags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(d.logLevel)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q: must be debug, info, warn or error", d.logLevel)}
	}
	options := &slog.HandlerOptions{Level: level}
	switch d.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	default:
		return nil, usageError{fmt.Errorf("--log-format %q: must be text or json", d.logFormat)}
	}
}

// warnInsecure is loud, because the mode is.
func (d *daemonFlags) warnInsecure(log *slog.Logger) {
	if d.insecure {
		log.Warn("INSECURE: nobody is authenticated; whoever reaches this machine can take part. Make keys with `splitnic keygen` and use --trust")
	}
}

func (d *daemonFlags) messaging() (messaging.Config, error) {
	if d.retry < 1 || d.retry > 6 {
		return messaging.Config{}, usageError{fmt.Errorf("--qp-retries %d: must be 1 to 6; 7 would mean for ever on some devices", d.retry)}
	}
	if d.timeout > 31 {
		return messaging.Config{}, usageError{fmt.Errorf("--qp-timeout %d: must be 1 to 31, or 0 for the default", d.timeout)}
	}
	if d.keepAlive <= 0 || d.peerTimeout <= d.keepAlive {
		return messaging.Config{}, usageError{fmt.Errorf("--peer-timeout %v must exceed --keep-alive %v, which must be above 0", d.peerTimeout, d.keepAlive)}
	}
	if d.handshakeTimeout <= 0 {
		return messaging.Config{}, usageError{fmt.Errorf("--handshake-timeout %v: must be above 0", d.handshakeTimeout)}
	}
	if d.maxPools != 0 && (d.maxPools < minPools || d.maxPools > messaging.MaxPools) {
		return messaging.Config{}, usageError{fmt.Errorf("--max-pools %d: must be %d to %d, or 0 for the default", d.maxPools, minPools, messaging.MaxPools)}
	}
	if d.poolIdle <= 0 {
		return messaging.Config{}, usageError{fmt.Errorf("--pool-idle %v: must be above 0", d.poolIdle)}
	}
	m := messaging.Config{
		MaxPools: d.maxPools, PoolIdle: d.poolIdle,
		Timing:    fabric.Timing{Timeout: d.timeout, RetryCount: d.retry},
		KeepAlive: d.keepAlive, PeerTimeout: d.peerTimeout,
	}
	if err := d.channelFlags.apply(&m); err != nil {
		return messaging.Config{}, err
	}
	// Once more when the device is known, and with it how many there are.
	if err := d.handlerFlags.apply(&m, messaging.MaxHandlers, messaging.MaxHandlers); err != nil {
		return messaging.Config{}, err
	}
	return m, nil
}

// minPools is the largest number of pools that a session begins with.
const minPools = 3

// softRoCETimeout is the default --qp-timeout on Soft-RoCE, 1.07 s. Its timer
// is not stopped when all is acknowledged, but goes off during a later message
// and sends that again; the longer it is, the rarer. What is really lost is
// found when the next packet arrives, without the timer.
const softRoCETimeout = 18

// qpTimeout is the queue-pair timeout to use on the device; 0 is the default of
// package fabric.
func (d *daemonFlags) qpTimeout(dev *verbs.Context) uint8 {
	if d.timeout == 0 && dev.Driver() == "rdma_rxe" {
		return softRoCETimeout
	}
	return d.timeout
}

// openDevice opens the RDMA device, which may be left out if there is only one.
func (d *daemonFlags) openDevice() (*verbs.Context, error) {
	devices, err := verbs.Devices()
	if err != nil {
		return nil, exitError{code: exitMissing, err: err}
	}
	names := make([]string, len(devices))
	for i, dev := range devices {
		names[i] = dev.Name
	}
	if d.device, err = chooseDevice(d.device, names); err != nil {
		return nil, err
	}
	var options []verbs.Option
	if d.gidIndex >= 0 {
		options = append(options, verbs.WithGIDIndex(d.gidIndex))
	}
	dev, err := verbs.Open(d.device, options...)
	if err != nil || d.gidIndex < 0 {
		return dev, err
	}
	// No session would ever come about.
	if _, _, err := dev.ChooseGID(); err != nil {
		return nil, exitError{code: exitMissing, err: errors.Join(fmt.Errorf("--gid-index %d: %w", d.gidIndex, err), dev.Close())}
	}
	return dev, nil
}

// chooseDevice returns which of the RDMA devices that there are is wanted: the
// one of that name, or the only one if that is empty.
func chooseDevice(wanted string, names []string) (string, error) {
	missing := func(format string, args ...any) (string, error) {
		return "", exitError{code: exitMissing, err: fmt.Errorf(format, args...)}
	}
	switch {
	case len(names) == 0:
		return missing("this machine has no RDMA device; load the adapter's driver, or for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 (`splitnic doctor` tells more)")
	case wanted == "" && len(names) == 1:
		return names[0], nil
	case wanted == "":
		return "", usageError{fmt.Errorf("which RDMA device? choose with --device: %s", strings.Join(names, ", "))}
	case !slices.Contains(names, wanted):
		return missing("--device %s: there is no such RDMA device; there are: %s", wanted, strings.Join(names, ", "))
	}
	return wanted, nil
}

// serveStatus serves the status, and commands, on the unix socket, and metrics
// where wanted.
func (d *daemonFlags) serveStatus(name string, status func() any, metrics http.Handler, log *slog.Logger, commands ...statussock.Command) (stop func(), err error) {
	path := d.statusSocket
	if path == "" {
		path = statussock.Path(name)
	}
	sock, err := statussock.Serve(path, status, commands...)
	if err != nil {
		return nil, err
	}
	closeSocket := func() {
		if err := sock.Close(); err != nil {
			log.Warn("status socket", "error", err)
		}
	}
	if d.metrics == "" {
		return closeSocket, nil
	}
	ln, err := net.Listen("tcp", d.metrics)
	if err != nil {
		closeSocket()
		return nil, explainListen("--metrics", err)
	}
	server := metricsServer(metrics)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics", "error", err)
		}
	}()
	return func() {
		server.Close()
		<-done
		closeSocket()
	}, nil
}

// explainListen adds the flag, and the cure, to an error of listening on the
// address that the flag names.
func explainListen(flag string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %w; another process has it: stop that one, or choose another address or port", flag, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s: %w; this machine has no such address", flag, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w; ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one, or run as root", flag, err)
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// notify tells systemd, if it started us, what goes on.
func notify(state string) {
	_, _ = daemon.SdNotify(false, state) // without systemd there is nobody to tell
}

// stopping is the last notification. systemd goes on showing the last status of
// a service that has ended.
const stopping = "STOPPING=1\nSTATUS="

// invalidName is the error about a name that the other half would refuse.
func invalidName(flag, name string) error {
	return usageError{fmt.Errorf("%s: %q is not possible: must be 1 to 253 letters, digits, '.', '_' or '-'", flag, name)}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unnamed"
	}
	return name
}
