package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/session"
)

const (
	unitDevice = "snrxe0"
	hostDevice = "snrxe1"
	// unitAddress is the address of unitDevice's netdevice.
	unitAddress = "10.199.0.1"
	fabricNS    = "snfab"
	fabricPort  = "sp0" // the fabric's end of unitDevice's cable
	// socketDir is the default directory of the daemons' status sockets.
	socketDir = "/run/splitnic"
)

// emulated is whether the tests run in a guest without KVM, where everything takes about ten
// times as long.
var emulated = os.Getenv("SPLITNIC_SOFTROCE_MODE") == "tcg"

// within returns the time limit here for an action whose limit is d on a real machine.
func within(d time.Duration) time.Duration {
	if emulated {
		return 10 * d
	}
	return 2 * d
}

// inTime reports whether an action that took the given time met its limit, which is d on a real
// machine. On a machine that is busy with other work the limit is longer, by four times the time
// in which a process of the product starts and ends there.
func inTime(t testing.TB, bin string, took, d time.Duration) bool {
	t.Helper()
	if took <= within(d) {
		return true
	}
	started := time.Now()
	run(t, bin, "--version")
	reference := time.Since(started)
	t.Logf("it took %v, not %v; a process takes %v to start and end", took, within(d), reference)
	return took <= within(d)+4*reference
}

// patience is the limit of every wait for an expected event.
var patience = func() time.Duration {
	if emulated {
		return 2 * time.Minute
	}
	return 45 * time.Second
}()

// eventually waits until cond returns true, and returns how long that took. It fails the test
// after patience.
func eventually(t testing.TB, cond func() bool, format string, args ...any) time.Duration {
	t.Helper()
	started := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if <-tick.C; time.Since(started) > patience {
			t.Fatalf("not after %v: "+format, append([]any{patience}, args...)...)
		}
	}
	return time.Since(started)
}

// needBinary returns the path of the splitnic binary.
func needBinary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("SPLITNIC_BIN")
	if path == "" {
		path = "../../build/splitnic"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		testenv.Missing(t, "splitnic", "the binary is missing: %v; build it, or name it with SPLITNIC_BIN", err)
	}
	return path
}

// needFabric returns the path of the splitnic binary. The test needs root, TUN and the RDMA devices
// unitDevice and hostDevice.
func needFabric(t testing.TB) string {
	t.Helper()
	testenv.NeedRoot(t)
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip")
	have := map[string]bool{}
	for _, name := range testenv.NeedRDMA(t, 2) {
		have[name] = true
	}
	if !have[unitDevice] || !have[hostDevice] {
		testenv.Missing(t, "rdma", "the RDMA devices %s and %s of ci/softroce/topology.sh are missing", unitDevice,
			hostDevice)
	}
	return needBinary(t)
}

// run runs a program to its end and returns its output. The test fails if the program fails.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// keys has the private keys of both ends, and their fingerprints, which the peers have to trust.
type keys struct {
	unit, host           string // files
	unitPrint, hostPrint string // fingerprints
}

// makeKeys makes two keys in dir.
func makeKeys(t testing.TB, dir string) keys {
	t.Helper()
	k := keys{unit: filepath.Join(dir, "unit.pem"), host: filepath.Join(dir, "host.pem")}
	for file, fingerprint := range map[string]*string{k.unit: &k.unitPrint, k.host: &k.hostPrint} {
		key, err := session.GenerateKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := session.SaveKey(file, key); err != nil {
			t.Fatal(err)
		}
		*fingerprint = key.Fingerprint().String()
	}
	return k
}

// daemon is a running endpoint of the product.
type daemon struct {
	t    testing.TB
	bin  string
	sock string // status socket, for `splitnic status`
	log  string // file with the standard error of the process
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// start starts an endpoint with the status socket sock, which is passed as a flag unless it is in
// socketDir. At the end of the test the process gets a SIGTERM, as from a service manager, and
// has to end with status 0.
func start(t testing.TB, bin, sock, log string, args ...string) *daemon {
	t.Helper()
	return startAs(t, nil, bin, sock, log, args...)
}

// startAs is start with a function that changes the command before it is started, such as to run
// it under a service manager. prepare may be nil.
func startAs(t testing.TB, prepare func(*exec.Cmd), bin, sock, log string, args ...string) *daemon {
	t.Helper()
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := &daemon{t: t, bin: bin, sock: sock, log: log, done: make(chan struct{})}
	if filepath.Dir(sock) != socketDir {
		args = append(args, "--status-socket", sock)
	}
	d.cmd = exec.Command(bin, testenv.Advanced(t, args)...)
	d.cmd.Stderr = f
	if prepare != nil {
		prepare(d.cmd)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.done)
		_ = d.cmd.Wait() // tests that need the exit status read it later
	}()
	t.Cleanup(func() {
		if d.running() {
			d.stop()
		}
		if t.Failed() {
			text, err := os.ReadFile(log)
			lines := strings.SplitAfter(string(text), "\n")
			t.Logf("the end of %s (error %v):\n%s", filepath.Base(log), err, strings.Join(lines[max(0, len(lines)-20):], ""))
		}
	})
	return d
}

func (d *daemon) running() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// stop ends the process by SIGTERM, checks that its exit status is 0, and returns how long that
// took.
func (d *daemon) stop() time.Duration {
	d.t.Helper()
	started := time.Now()
	if err := d.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.t.Errorf("SIGTERM: %v", err)
	}
	select {
	case <-d.done:
	case <-time.After(patience):
		d.t.Errorf("%v does not end within %v of SIGTERM", d.cmd.Args, patience)
		d.kill()
	}
	if status := d.cmd.ProcessState.ExitCode(); status != 0 {
		d.t.Errorf("%v ended with status %d after SIGTERM", d.cmd.Args[:2], status)
	}
	return time.Since(started)
}

// failed checks that the process has ended with the exit status, and that its log has one line
// that explains why and has each of the words.
func (d *daemon) failed(status int, words ...string) {
	d.t.Helper()
	text, err := os.ReadFile(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	checkFailure(d.t, d.cmd.ProcessState.ExitCode(), string(text), status, words...)
}

// checkFailure checks the exit status of a process, and that its standard error has exactly one
// line besides log lines. The line has to have each of the words, and docs/troubleshooting.md has
// to explain it.
func checkFailure(t testing.TB, got int, stderr string, status int, words ...string) {
	t.Helper()
	if got != status {
		t.Errorf("exit status %d, expected %d:\n%s", got, status, stderr)
	}
	var lines []string
	for line := range strings.Lines(stderr) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "time=") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		t.Errorf("%d lines explain the failure, expected one:\n%s", len(lines), stderr)
		return
	}
	if !strings.HasPrefix(lines[0], "splitnic: ") {
		t.Errorf("the line does not say who wrote it: %s", lines[0])
	}
	for _, w := range words {
		if !strings.Contains(lines[0], w) {
			t.Errorf("the line does not name %q: %s", w, lines[0])
		}
	}
	testenv.Ended(t, status, strings.TrimPrefix(lines[0], "splitnic: "))
}

// kill ends the process by SIGKILL and waits for its end.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // fails only if the process has ended
	<-d.done
}

// toldInto reads the status by `splitnic status` and reports whether there is one.
func (d *daemon) toldInto(into any) bool {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, d.bin, "status", "--json", d.sock).Output()
	if err != nil {
		return false
	}
	list := []any{into}
	if err := json.Unmarshal(bytes.TrimSpace(out), &list); err != nil {
		d.t.Fatalf("status is not a JSON list of one: %v\n%s", err, out)
	}
	return len(list) == 1
}

// statusInto reads the status from the socket and reports whether there is one. It starts no
// process, because on an emulated machine that takes longer than most events that tests wait for.
func (d *daemon) statusInto(into any) bool {
	d.t.Helper()
	raw, err := statussock.Read(d.t.Context(), d.sock)
	if err != nil {
		return false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		d.t.Fatalf("the status is not what it has to be: %v\n%s", err, raw)
	}
	return true
}

// ledger has the numbers of elements, as in the status.
type ledger struct {
	Elements, Available, Out, Lent, Consumed, Returning int
}

type channel struct {
	QPN         uint32 `json:"qpn"`
	PeerQPN     uint32 `json:"peer_qpn"`
	TxFrames    uint64 `json:"tx_frames"`
	TxBytes     uint64 `json:"tx_bytes"`
	RxFrames    uint64 `json:"rx_frames"`
	RxBytes     uint64 `json:"rx_bytes"`
	RxDropped   uint64 `json:"rx_dropped"`
	RxOverMTU   uint64 `json:"rx_over_mtu"`
	TxMalformed uint64 `json:"tx_malformed"`
	TxPadded    uint64 `json:"tx_padded"`
	RxMalformed uint64 `json:"rx_malformed"`
	TxTooLong   uint64 `json:"tx_too_long"`
	Local       ledger `json:"local"`
	Remote      ledger `json:"remote"`
	TxSignaled  uint64 `json:"tx_signaled"`
	Moderated   bool   `json:"moderated"`
	Latency     bool   `json:"latency"`
	RxLost      uint64 `json:"rx_lost"`
	RxLate      uint64 `json:"rx_late"`
}

type traffic struct {
	Mode     string    `json:"mode"`
	Channels []channel `json:"channels"`
}

type hostStatus struct {
	Role      string `json:"role"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Sessions  int    `json:"sessions"`
	LastError string `json:"last_error"`
	Netdevice struct {
		Name     string `json:"name"`
		MAC      string `json:"mac"`
		MTU      int    `json:"mtu"`
		Carrier  bool   `json:"carrier"`
		Offloads string `json:"offloads"`
		Discard  state  `json:"early_discard"`
	} `json:"netdevice"`
	IOUnit struct {
		Address     string `json:"address"`
		Name        string `json:"name"`
		Fingerprint string `json:"fingerprint"`
	} `json:"iounit"`
	Traffic *traffic `json:"traffic"`
	Latency *state   `json:"latency"`
}

// state is whether a feature, such as the latency queue, is on, and the reason if it is off.
type state struct {
	On     bool   `json:"on"`
	Reason string `json:"reason"`
}

type unitHost struct {
	Name        string   `json:"name"`
	Address     string   `json:"address"`
	Fingerprint string   `json:"fingerprint"`
	MAC         string   `json:"mac"`
	MTU         int      `json:"mtu"`
	Interface   string   `json:"interface"`
	Traffic     *traffic `json:"traffic"`
	Latency     *state   `json:"latency"`
	Discard     state    `json:"early_discard"`
}

type unitStatus struct {
	Role     string     `json:"role"`
	Name     string     `json:"name"`
	Hosts    []unitHost `json:"hosts"`
	Sessions uint64     `json:"sessions"`
	Refused  uint64     `json:"refused"`
	LAN      struct {
		Up  bool `json:"up"`
		MTU int  `json:"mtu"`
	} `json:"lan"`
}

// hostStatus waits until the host answers with its status, and returns it.
func (d *daemon) hostStatus() hostStatus {
	d.t.Helper()
	var s hostStatus
	eventually(d.t, func() bool { s = hostStatus{}; return d.statusInto(&s) }, "a status from %s", d.sock)
	return s
}

// unitStatus is hostStatus for an I/O unit.
func (d *daemon) unitStatus() unitStatus {
	d.t.Helper()
	var s unitStatus
	eventually(d.t, func() bool { s = unitStatus{}; return d.statusInto(&s) }, "a status from %s", d.sock)
	return s
}

// addr returns the IPv4 address of host number i; number 0 is the LAN's server.
func addr(i int) string { return netip.AddrFrom4([4]byte{10, 77, 0, byte(i)*9 + 1}).String() }

// addr6 returns the IPv6 address of host number i; number 0 is the LAN's server.
func addr6(i int) string {
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(i)*9 + 1}).String()
}
