package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/journal"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/scrape"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/irq"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
)

// logger returns the logger of the process, and warns of a mode without keys. It makes the
// process ignore SIGPIPE, so that the process survives the reader of its log.
func (c *Common) logger() *slog.Logger {
	signal.Ignore(unix.SIGPIPE)
	journal.Level.Set(c.LogLevel)
	log := slog.New(journal.New(c.LogJSON))
	slog.SetDefault(log) // for the lines of Go's libraries
	if c.Keys.Insecure {
		log.Warn("INSECURE: nobody is authenticated; whoever reaches this machine can take part. " +
			"Make keys with `splitnic keygen` and use --trust")
	}
	return log
}

// openKeyLog opens the file that the environment names for secrets of encrypted sessions, if any. Other
// programs that use TLS know the same variable.
func (c *Common) openKeyLog(log *slog.Logger) (err error) {
	path := os.Getenv("SSLKEYLOGFILE")
	if path == "" {
		return nil
	}
	if c.KeyLog, err = seal.OpenKeyLog(path); err != nil {
		return exit.Usagef("SSLKEYLOGFILE: %w", err)
	}
	log.Warn("the secrets of encrypted sessions are written to the file of SSLKEYLOGFILE: who has it can read and "+
		"forge their frames", "file", path)
	return nil
}

// begin returns the logger of the process, opens the key log, and prepares the process for keys.
func (c *Common) begin() (*slog.Logger, error) {
	log := c.logger()
	if err := c.openKeyLog(log); err != nil {
		return nil, err
	}
	return log, c.secure()
}

// secure prepares the process for keys. Before that, it checks that this machine allows the
// handlers, and checks the file MetricsConfig.
func (c *Common) secure() error {
	if _, err := c.Handlers.Make(cq.MaxHandlers, cq.MaxHandlers); err != nil {
		return err
	}
	if err := scrape.Check(c.MetricsConfig); err != nil {
		return err
	}
	return notDumpable()
}

// notDumpable protects the memory of this process, which has the key. The kernel does not write
// the memory to a file when the process crashes, and other processes of the same user cannot
// read it (PR_SET_DUMPABLE(2const)).
func notDumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep the key out of core dumps: %w", err)
	}
	return nil
}

// open opens the RDMA device. It sets the name of the device, and its default queue-pair
// timeout, in the configuration.
func (c *Common) open(log *slog.Logger) (*device.Device, error) {
	d, timeout, err := c.listen(c.Adapter, log)
	if err == nil {
		c.Device, c.Messaging.Timing.Timeout = d.Name(), timeout
	}
	return d, err
}

// listen opens an RDMA device, and opens it again each time it comes back. It returns it with its
// queue-pair timeout.
func (c *Common) listen(a Adapter, log *slog.Logger) (d *device.Device, timeout uint8, err error) {
	d, err = device.Open(device.Config{Log: log, Open: func() (fabric.Device, error) {
		opened, err := a.Open()
		if err != nil {
			return nil, err
		}
		a.Device = opened.Name() // the same one later, however many there are then
		return opened, nil
	}})
	if err != nil {
		return nil, 0, err
	}
	return d, QPTimeout(d.Driver(), c.Messaging.Timing.Timeout), nil
}

// handlers makes the handlers of this process with Handlers.Make, and applies advanced.irq-affinity to
// them and to the interrupts of the device.
func (c *Common) handlers(device fabric.Device, queues, vectors int, log *slog.Logger) (err error) {
	if c.Messaging.Handlers, err = c.Handlers.Make(queues, vectors); err != nil {
		return err
	}
	return c.Handlers.IRQ.join(irq.Kernel, device.Name(), device.Limits().CompVectors, c.Messaging.Handlers, log)
}

// CheckName returns an error for a name that the peer would refuse.
func CheckName(flag, name string) error {
	if !session.ValidName(name) {
		return exit.Usagef("%s: %q is not possible: must be 1 to 253 letters, digits, '.', '_' or '-'", flag, name)
	}
	return nil
}

// Hostname returns the name of this machine.
func Hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unnamed"
	}
	return name
}

// serve serves the status, commands and an API on the Unix socket, and metrics if they are
// configured. api is nil if there is no API.
func (c *Common) serve(
	name string, api http.Handler, status func() any, metrics http.Handler, log *slog.Logger,
	commands ...statussock.Command,
) (stop func(), err error) {
	sock, err := statussock.ServeAPI(cmp.Or(c.StatusSocket, statussock.Path(name)), api, status, commands...)
	if err != nil {
		return nil, err
	}
	closeSocket := func() {
		if err := sock.Close(); err != nil {
			log.Warn("status socket", "error", err)
		}
	}
	if c.Metrics == "" {
		return closeSocket, nil
	}
	ln, err := net.Listen("tcp", c.Metrics)
	if err != nil {
		closeSocket()
		return nil, ExplainListen("--metrics", err)
	}
	stopMetrics := scrape.Serve(ln, metrics, c.MetricsConfig, log)
	return func() {
		stopMetrics()
		closeSocket()
	}, nil
}

// ExplainListen adds a flag, and what to do, to an error in listening on the address that the
// flag specifies.
func ExplainListen(flag string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s: %w; another process has it: stop that one, or choose another address or port", flag, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s: %w; this machine has no such address", flag, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w; ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one, or run as root",
			flag, err)
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// notify sends a state to systemd, if systemd has started this process.
func notify(state string) {
	_, _ = sd.SdNotify(false, state) // an error has no consequences
}

// stopping is the last notification. Its status is empty, because systemd continues to show the
// last status of a service that has ended.
const stopping = "STOPPING=1\nSTATUS="

// StateDir is the default directory with data for the next process.
const StateDir = "/var/lib/splitnic"

// needDirectory returns an error if the directory of a flag is missing. The program makes only its
// own directories, the defaults and those below them: another one may be mistyped, or belong to a
// file system that is not mounted yet.
func needDirectory(flag, dir string) error {
	for _, own := range []string{statussock.Dir, StateDir} {
		if rel, err := filepath.Rel(own, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return nil
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // the error of its first use says more
	}
	err := &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOENT}
	return fmt.Errorf("%s: %w; make the directory: mkdir -p %s", flag, err, dir)
}

// needDirectories returns errors for missing directories of the flags of both endpoints.
func (c *Common) needDirectories() error {
	if c.StatusSocket == "" {
		return nil
	}
	return needDirectory("--status-socket", filepath.Dir(c.StatusSocket))
}

// needDirectories returns errors for missing directories of the flags of a host or an agent.
func (c *Host) needDirectories() error {
	err := c.Common.needDirectories()
	if c.State == "" {
		return err
	}
	return errors.Join(err, needDirectory("--state", c.State))
}

// probe logs and returns the reason why the kernel cannot steer frames, before anything depends
// on that. Then there is no latency queue. The BPF programs that are loaded later differ from that of
// the probe only in numbers.
func (c *Common) probe(log *slog.Logger) error {
	if c.Latency == nil {
		return nil
	}
	err := CanSteer(*c.Latency)
	if err != nil {
		log.Warn("no latency queue", "error", err)
		c.Latency = nil
	}
	return err
}

// CanSteer returns the reason why the kernel cannot steer frames, or nil if it can.
func CanSteer(c steer.Classes) error {
	p, err := steer.Rule{Classes: c, Queues: 2, Limit: messaging.LatencyLimit(1500)}.Load(steer.TAP)
	if err != nil {
		return err
	}
	return p.Close()
}

// extra returns the number of queues in addition to the ordinary ones.
func extra(c *steer.Classes) int {
	if c == nil {
		return 0
	}
	return 1
}
