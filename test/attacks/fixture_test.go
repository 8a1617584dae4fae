//go:build cgo

package attacks

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/verbs"
)

const (
	unitDevice  = "snrxe0"
	hostDevice  = "snrxe1"
	unitAddress = "10.199.0.1:7580"
	// elsewhere is an address of this machine that differs from the one from which the honest host
	// connects, which is that of unitAddress.
	elsewhere = "10.199.0.2"
	lanIP     = "10.77.0.1"
	hostIP    = "10.77.0.2"
)

// patience bounds the wait for each expected event.
const patience = testenv.Patience

// fixture is an I/O unit, and an honest host with a TCP connection to the LAN.
type fixture struct {
	t           testing.TB
	bin, dir    string
	card, lan   string // network namespaces
	host        string
	unitProcess *process
	hostProcess *process
	unitPrint   string
	key         string // file with the hosts' key, which the attacker uses too
	idle        int    // objects on the I/O unit's device before it started
	bystander   *bystander
	before      holdings
}

// process is a running endpoint of the product.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	sock string
	log  string
	done chan struct{}
}

func newFixture(t testing.TB, unitFlags ...string) *fixture {
	t.Helper()
	r := newPair(t, protocol.ModeImm, unitFlags...)
	r.bystander = newBystander(t, r)
	if r.before = r.held(); r.before.rdma <= r.idle {
		t.Fatalf("the I/O unit has a session, and no more on its device than the %d objects before: %+v", r.idle, r.before)
	}
	return r
}

// newPair returns a fixture whose honest host, with sessions in this mode, sends nothing by itself.
func newPair(t testing.TB, mode protocol.Mode, unitFlags ...string) *fixture {
	t.Helper()
	testenv.NeedTUN(t)
	testenv.NeedRDMA(t, 2)
	testenv.NeedTools(t, "rdma")
	r := &fixture{t: t, bin: os.Getenv("SPLITNIC_BIN"), dir: t.TempDir()}
	if r.bin == "" {
		r.bin = "../../build/splitnic"
	}
	var err error
	if r.bin, err = filepath.Abs(r.bin); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.bin); err != nil {
		testenv.Missing(t, "splitnic", "the binary is missing: %v; build it, or name it with SPLITNIC_BIN", err)
	}
	unitKey := filepath.Join(r.dir, "unit.pem")
	r.key = filepath.Join(r.dir, "host.pem")
	r.unitPrint = r.run("keygen", "--out", unitKey)
	hostPrint := r.run("keygen", "--out", r.key)
	r.card, r.lan, r.host = testenv.NetNS(t), testenv.NetNS(t), testenv.NetNS(t)
	testenv.Veth(t, r.card, "eth1", r.lan, "lan0")
	testenv.Address(t, r.lan, "lan0", lanIP+"/24")
	testenv.DisableIPv6(t, r.host)
	r.idle = onUnitDevice(t)
	r.unitProcess = r.start("unit", append([]string{
		"iounit", "--device", unitDevice, "--listen", unitAddress, "--lan", "macvtap:eth1", "--netns", r.card, "--name",
		"unit",
		"--peer-timeout", "1m", "--key", unitKey, "--trust", "hosts=" + hostPrint,
		// Tests open sessions by correct handshakes. On a guest with one processor this sometimes
		// takes longer than 5 s.
		"--advanced.handshake-timeout", patience.String(),
	}, unitFlags...)...)
	r.hostProcess = r.start("host",
		"host", "--device", hostDevice, "--iounit", unitAddress, "--name", "sn0", "--netns", r.host, "--host-name", "honest",
		"--mode", string(mode),
		"--peer-timeout", "1m", "--key", r.key, "--trust", "unit="+r.unitPrint)
	r.eventually(func() bool {
		link := testenv.Link(t, r.host, "sn0")
		return link != nil && link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
	}, "carrier of the honest host's netdevice")
	testenv.Address(t, r.host, "sn0", hostIP+"/24")
	return r
}

func (r *fixture) run(args ...string) string {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), r.bin, args...).Output()
	if err != nil {
		r.t.Fatalf("splitnic %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// start starts an endpoint, and stops it at the end of the test. The endpoint has to exit with
// status 0, which it does not after a panic.
func (r *fixture) start(name string, args ...string) *process {
	t := r.t
	t.Helper()
	p := &process{t: t, sock: filepath.Join(r.dir, name+".sock"), log: filepath.Join(r.dir, name+".log"),
		done: make(chan struct{})}
	f, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p.cmd = exec.Command(r.bin, append(testenv.Advanced(t, args), "--status-socket", p.sock)...)
	p.cmd.Stderr = f
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit status is checked below
	}()
	t.Cleanup(func() {
		if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		select {
		case <-p.done:
		case <-time.After(patience):
			t.Errorf("the %s does not end", name)
			_ = p.cmd.Process.Kill()
			<-p.done
		}
		if status := p.cmd.ProcessState.ExitCode(); status != 0 {
			t.Errorf("the %s ended with status %d", name, status)
		}
		if t.Failed() {
			text, err := os.ReadFile(p.log)
			lines := strings.SplitAfter(string(text), "\n")
			t.Logf("the end of %s.log (error %v):\n%s", name, err, strings.Join(lines[max(0, len(lines)-30):], ""))
		}
	})
	return p
}

// sub runs a subtest, in which the fixture reports its errors to the subtest.
func (r *fixture) sub(name string, test func(t *testing.T)) {
	parent, ok := r.t.(*testing.T)
	if !ok {
		r.t.Fatal("a subtest of something else")
	}
	parent.Run(name, func(t *testing.T) {
		r.t, r.bystander.t = t, t
		defer func() { r.t, r.bystander.t = parent, parent }()
		test(t)
	})
}

// since returns a function that returns by how much a counter of the status has grown since this
// call.
func (r *fixture) since(counter func(s status) uint64) func() uint64 {
	r.t.Helper()
	from := counter(r.status())
	return func() uint64 { r.t.Helper(); return counter(r.status()) - from }
}

// refused, ended and broken select a counter of the status.
func refused(reason string) func(status) uint64 {
	return func(s status) uint64 { return s.Refusals[reason] }
}
func ended(reason string) func(status) uint64 {
	return func(s status) uint64 { return s.Ended[reason] }
}
func broken(rule string) func(status) uint64 {
	return func(s status) uint64 { return s.Violations[rule] }
}

func (r *fixture) eventually(cond func() bool, format string, args ...any) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if <-tick.C; time.Now().After(deadline) {
			r.t.Fatalf("not after %v: "+format, append([]any{patience}, args...)...)
		}
	}
}

// status is the part of an endpoint's status that the tests use.
type status struct {
	Hosts []struct {
		Name                string            `json:"name"`
		MAC                 string            `json:"mac"`
		HeartbeatsThrottled uint64            `json:"heartbeats_throttled"`
		Statistics          map[string]uint64 `json:"statistics"`
		Traffic             struct {
			Channels []struct {
				Remote struct{ Available, Elements int }
				QPN    uint32 `json:"qpn"`
			}
		}
	} `json:"hosts"`
	Sessions   int               `json:"sessions"`
	Attempts   int               `json:"attempts"`   // of a host
	LastError  string            `json:"last_error"` // likewise
	Refusals   map[string]uint64 `json:"refused_by"`
	Violations map[string]uint64 `json:"protocol_violations"`
	Ended      map[string]uint64 `json:"ended_by"`
	Bootstrap  struct {
		Connections, Handshaking, Handshakes, Delayed uint64
	} `json:"bootstrap"`
}

// of returns the status of an endpoint.
func (r *fixture) of(p *process) status {
	r.t.Helper()
	raw, err := statussock.Read(r.t.Context(), p.sock)
	if err != nil {
		r.t.Fatal(err)
	}
	var s status
	if err := json.Unmarshal(raw, &s); err != nil {
		r.t.Fatalf("the status is not what it has to be: %v\n%s", err, raw)
	}
	return s
}

func (r *fixture) status() status { r.t.Helper(); return r.of(r.unitProcess) }

// holdings is the numbers of the machine's resources that the I/O unit holds.
type holdings struct{ rdma, netdevices, descriptors int }

func (r *fixture) held() holdings {
	r.t.Helper()
	var h holdings
	h.rdma = onUnitDevice(r.t)
	h.netdevices = len(testenv.Links(r.t, r.card))
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.unitProcess.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	h.descriptors = len(fds)
	return h
}

// onUnitDevice returns the number of objects on the I/O unit's device, which has no other users,
// without open devices, and without memory regions: those of the honest host's session become more
// when it needs send slots or pools, and those of another session keep its protection domain.
func onUnitDevice(t testing.TB) (n int) {
	t.Helper()
	devices, err := testenv.RDMAObjects()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"qp", "cq", "pd"} {
		n += devices[unitDevice][kind]
	}
	return n
}

// unharmed checks, after an attack, that the honest host's session has gone on, and that the I/O
// unit has released all resources that it had for the attacker.
func (r *fixture) unharmed() {
	r.t.Helper()
	if r.t.Failed() {
		return
	}
	r.bystander.goesOn()
	var now holdings
	r.eventually(func() bool {
		now = r.held()
		// Right after the beginning of a session some descriptors may be about to be closed.
		r.before.descriptors = min(r.before.descriptors, now.descriptors)
		return now == r.before
	}, "what was there before the attacks, %+v; there is %+v", r.before, &now)
	if n := r.of(r.hostProcess).Sessions; n != 1 {
		r.t.Errorf("the honest host had to connect again: %d sessions", n)
	}
}

// attacker returns a Target for a host with a trusted key, on the hosts' device.
func (r *fixture) attacker() Target {
	r.t.Helper()
	key, err := LoadKey(r.key)
	if err != nil {
		r.t.Fatal(err)
	}
	return Target{Address: unitAddress, From: elsewhere, Key: key, Device: open(r.t, hostDevice),
		Timing: fabric.Timing{Timeout: 18}, Patience: patience}
}

func open(t testing.TB, name string) fabric.Device {
	t.Helper()
	device, err := verbs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	})
	return device
}

// bystander has one TCP connection through the honest host's netdevice to the LAN for the whole
// test, and sends lines on it and back again and again.
type bystander struct {
	t      testing.TB
	rounds atomic.Uint64
	failed chan error // of capacity one
}

func newBystander(t testing.TB, r *fixture) *bystander {
	t.Helper()
	b := &bystander{t: t, failed: make(chan error, 1)}
	l := testenv.ListenTCP(t, r.lan, lanIP)
	var c net.Conn
	err := netns.Do(r.host, func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), patience)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var ends sync.WaitGroup
	var over atomic.Bool
	ends.Go(func() { // on the LAN
		_, _ = io.Copy(struct{ io.Writer }{s}, struct{ io.Reader }{s}) // an echo, until the connection ends
	})
	ends.Go(func() {
		if err := b.exchange(c); err != nil && !over.Load() {
			b.failed <- err
		}
	})
	t.Cleanup(func() {
		over.Store(true)
		c.Close()
		s.Close()
		ends.Wait()
	})
	return b
}

// bystanderPause is the pause between two lines, so that the connection does not use all of a slow
// machine.
const bystanderPause = 10 * time.Millisecond

func (b *bystander) exchange(c net.Conn) error {
	in := bufio.NewReader(c)
	tick := time.NewTicker(bystanderPause)
	defer tick.Stop()
	for ; ; <-tick.C {
		line := fmt.Sprintf("line %d\n", b.rounds.Load())
		c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write([]byte(line)); err != nil {
			return err
		}
		got, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if got != line {
			return fmt.Errorf("%q came for %q", got, line)
		}
		b.rounds.Add(1)
	}
}

// goesOn waits until two more lines have been echoed.
func (b *bystander) goesOn() {
	b.t.Helper()
	from := b.rounds.Load()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for b.rounds.Load() < from+2 {
		select {
		case err := <-b.failed:
			b.t.Fatalf("the honest host's connection: %v", err)
		case <-deadline:
			b.t.Fatal("the honest host's connection stands still")
		case <-tick.C:
		}
	}
}
