package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// fixture is an I/O unit that shares the network card eth1, and the LAN behind it.
type fixture struct {
	t         testing.TB
	bin, dir  string
	policy    string // path of the policy file
	keys      keys
	kind      string // kind of LAN interface
	mode      string // transfer mode that hosts request; empty for none
	card, lan string // network namespaces of eth1, and of lan0 at the end of its cable
	unitFlags []string
	env       []string // further variables of the environment of all processes
	insecure  bool     // whether the I/O unit runs with --insecure
	sockets   string   // directory of the status sockets
	unit      *daemon
	hosts     []*node
	made      int // number of hosts made so far
}

// node is a host that has its netdevice sn0 in its own network namespace.
type node struct {
	*daemon
	t       testing.TB
	fixture *fixture
	index   int
	ns      string
	name    string
	flags   []string

	insecure bool
	killed   bool
	manager  *manager // service manager; nil for none
}

// security returns the flags about keys.
func security(insecure bool, key, trust string) []string {
	if insecure {
		return []string{"--insecure"}
	}
	return []string{"--key", key, "--trust", trust}
}

// newFixture makes a LAN and starts an I/O unit on it.
func newFixture(t testing.TB, kind string, unitFlags ...string) *fixture {
	t.Helper()
	r := makeFixture(t, kind, unitFlags...)
	r.startUnit()
	return r
}

// makeFixture makes a LAN without starting the I/O unit.
func makeFixture(t testing.TB, kind string, unitFlags ...string) *fixture {
	t.Helper()
	r := &fixture{t: t, bin: needFabric(t), dir: t.TempDir(), kind: kind, unitFlags: unitFlags}
	r.keys, r.sockets = makeKeys(t, r.dir), r.dir
	// All hosts have the same key. By default a key may have four sessions at most, and only its
	// own MAC addresses.
	r.policy = filepath.Join(r.dir, "policy.yaml")
	if err := os.WriteFile(r.policy, []byte("default:\n  macs: any\nhosts:\n  hosts:\n    max-sessions: 64\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	r.card, r.lan = testenv.NetNS(t), testenv.NetNS(t)
	testenv.Veth(t, r.card, "eth1", r.lan, "lan0")
	testenv.Address(t, r.lan, "lan0", addr(0)+"/24")
	testenv.Address(t, r.lan, "lan0", addr6(0)+"/64")
	return r
}

// modes are the transfer modes.
var modes = []string{"imm", "indicate", "send", "send-uc"}

// inEachMode runs a test for each transfer mode with a new fixture.
func inEachMode(t *testing.T, kind string, test func(t *testing.T, r *fixture), unitFlags ...string) {
	t.Helper()
	newFixture(t, kind, unitFlags...).inEachMode(t, test)
}

// inEachMode runs a test for each transfer mode, each with new hosts. All share the I/O unit, which
// serves hosts of all modes. It has no hosts when a test begins.
func (r *fixture) inEachMode(t *testing.T, test func(t *testing.T, r *fixture)) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r.mode, r.t, r.unit.t, r.hosts = mode, t, t, nil
			eventually(t, func() bool {
				var s unitStatus
				return r.unit.statusInto(&s) && len(s.Hosts) == 0
			}, "an I/O unit without hosts")
			test(t, r)
		})
	}
	r.t, r.unit.t = t, t
}

// startUnit starts the I/O unit and waits until it serves.
func (r *fixture) startUnit() {
	r.t.Helper()
	args := []string{
		"iounit", "--device", unitDevice, "--listen", unitAddress, "--lan", r.kind + ":eth1", "--netns", r.card,
		"--name", "unit", "--peer-timeout", "10s", "--policy", r.policy,
	}
	args = append(args, security(r.insecure, r.keys.unit, "hosts="+r.keys.hostPrint)...)
	r.unit = startAs(r.t, r.prepare, r.bin, r.socket("unit", "iounit-7580"), filepath.Join(r.dir, "unit.log"),
		append(args, r.unitFlags...)...)
	if s := r.unit.unitStatus(); s.Role != "iounit" || s.Name != "unit" {
		r.t.Fatalf("the I/O unit's status says that it is %s %q", s.Role, s.Name)
	}
}

// prepare gives a command the environment of the fixture.
func (r *fixture) prepare(cmd *exec.Cmd) {
	if len(r.env) > 0 {
		cmd.Env = append(os.Environ(), r.env...)
	}
}

// socket returns the path of an endpoint's status socket. name is the name of the endpoint, and
// standard is the name of the socket in socketDir.
func (r *fixture) socket(name, standard string) string {
	if r.sockets == socketDir {
		name = standard
	}
	return filepath.Join(r.sockets, name+".sock")
}

// host starts another host and waits until its netdevice works. The host ends with t.
func (r *fixture) host(t testing.TB, flags ...string) *node {
	t.Helper()
	n := r.newHost(t, flags...)
	n.ready()
	return n
}

// newHost starts another host. The host ends with t.
func (r *fixture) newHost(t testing.TB, flags ...string) *node {
	t.Helper()
	n := r.makeHost(t, flags...)
	n.start()
	return n
}

// makeHost makes another host without starting its process.
func (r *fixture) makeHost(t testing.TB, flags ...string) *node {
	t.Helper()
	r.made++
	n := &node{t: t, fixture: r, index: r.made, flags: flags, ns: testenv.NetNS(t)}
	n.name = fmt.Sprintf("host%d", n.index)
	r.hosts = append(r.hosts, n)
	return n
}

// start starts the process, or starts it again after it has ended.
func (n *node) start() {
	n.t.Helper()
	r := n.fixture
	args := []string{
		"host", "--device", hostDevice, "--iounit", unitAddress, "--name", "sn0", "--netns", n.ns, "--host-name", n.name,
		"--peer-timeout", "10s",
	}
	if r.mode != "" {
		args = append(args, "--mode", r.mode)
	}
	args = append(args, security(n.insecure, r.keys.host, "unit="+r.keys.unitPrint)...)
	prepare := r.prepare
	if n.manager != nil {
		prepare = n.manager.prepare
	}
	n.daemon = startAs(n.t, prepare, r.bin, r.socket(n.name, "host-sn0"), filepath.Join(r.dir, n.name+".log"),
		append(args, n.flags...)...)
}

// ready waits for the carrier and gives the netdevice its addresses.
func (n *node) ready() {
	n.t.Helper()
	n.waitCarrier(true)
	testenv.Address(n.t, n.ns, "sn0", n.addr()+"/24")
	testenv.Address(n.t, n.ns, "sn0", n.addr6()+"/64")
}

func (n *node) addr() string  { return addr(n.index) }
func (n *node) addr6() string { return addr6(n.index) }

// carrier reports whether the netdevice exists and has carrier.
func carrier(t testing.TB, ns, dev string) bool {
	return hasCarrier(testenv.Link(t, ns, dev))
}

func hasCarrier(link netlink.Link) bool {
	return link != nil && link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
}

// kill ends the process by SIGKILL. Its netdevice may exist a little longer: the kernel frees the
// references of io_uring(7) asynchronously.
func (n *node) kill() {
	n.daemon.kill()
	n.killed = true
}

// waitCarrier waits until the netdevice has carrier, or has none. After a kill, carrier counts only
// if the status of the present process reports it too, because the netdevice may be the old one.
func (n *node) waitCarrier(want bool) {
	n.t.Helper()
	// All polls use one handle, because on an emulated machine opening one takes longer than a poll.
	h, err := netns.Handle(n.ns)
	if err != nil {
		n.t.Fatal(err)
	}
	defer h.Close()
	eventually(n.t, func() bool {
		if !n.running() {
			n.t.Fatalf("%s ended with status %d", n.name, n.cmd.ProcessState.ExitCode())
		}
		link, err := h.LinkByName("sn0")
		if err != nil {
			link = nil // no such netdevice
		}
		if hasCarrier(link) != want {
			return false
		}
		var s hostStatus
		return !want || !n.killed || n.statusInto(&s) && s.Netdevice.Carrier
	}, "carrier of %s's sn0 %t", n.name, want)
}

// mtu returns the MTU of the netdevice.
func (n *node) mtu() int {
	link := testenv.Link(n.t, n.ns, "sn0")
	if link == nil {
		return 0
	}
	return link.Attrs().MTU
}

// mac returns the MAC address of the netdevice.
func (n *node) mac() string {
	n.t.Helper()
	link := testenv.Link(n.t, n.ns, "sn0")
	if link == nil {
		n.t.Fatalf("%s has no sn0", n.name)
	}
	return link.Attrs().HardwareAddr.String()
}

// setMTU changes the MTU of the card and the LAN and waits until every host's netdevice has it.
func (r *fixture) setMTU(mtu int) {
	r.t.Helper()
	run(r.t, "ip", "-n", r.lan, "link", "set", "lan0", "mtu", strconv.Itoa(mtu))
	run(r.t, "ip", "-n", r.card, "link", "set", "eth1", "mtu", strconv.Itoa(mtu))
	for _, n := range r.hosts {
		eventually(r.t, func() bool { return n.mtu() == mtu }, "MTU %d of %s's sn0", mtu, n.name)
	}
}
