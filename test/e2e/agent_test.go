package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// agentProcess is a process of `splitnic agent`. It runs as a service, and the service manager
// stores the file descriptors of its netdevices.
type agentProcess struct {
	*daemon
	t       testing.TB
	fixture *fixture
	manager *manager
	state   string
}

// newAgent starts an agent that has no cards.
func (r *fixture) newAgent(t testing.TB) *agentProcess {
	t.Helper()
	a := &agentProcess{t: t, fixture: r, manager: newManager(t), state: filepath.Join(r.dir, "state")}
	if err := os.Mkdir(a.state, 0o700); err != nil {
		t.Fatal(err)
	}
	a.start()
	return a
}

// start starts the process, or starts it again after it has ended, and waits until it is ready.
func (a *agentProcess) start() {
	a.t.Helper()
	r := a.fixture
	ready := a.manager.readies()
	args := []string{
		"agent", "--device", hostDevice, "--iounit", unitAddress, "--state", a.state, "--peer-timeout", "10s",
		"--max-cards", "3", "--advanced.handshake-timeout", patience.String(),
	}
	args = append(args, security(false, r.keys.host, "unit="+r.keys.unitPrint)...)
	sock, log := filepath.Join(r.dir, "agent.sock"), filepath.Join(r.dir, "agent.log")
	prepare := func(cmd *exec.Cmd) {
		a.manager.prepare(cmd)
		cmd.Env = append(cmd.Env, r.env...)
	}
	a.daemon = startAs(a.t, prepare, r.bin, sock, log, args...)
	eventually(a.t, func() bool {
		if !a.running() {
			a.t.Fatal("the agent has ended")
		}
		return a.manager.readies() > ready
	}, "the agent being ready")
}

// card runs `splitnic card` and returns its output.
func (a *agentProcess) card(words ...string) string {
	a.t.Helper()
	return run(a.t, a.bin, append([]string{"card", "--socket", a.sock}, words...)...)
}

// refused runs `splitnic card`, which has to fail with the exit status and with one line that
// has the names and is explained in docs/troubleshooting.md.
func (a *agentProcess) refused(status int, words []string, names ...string) {
	a.t.Helper()
	cmd := exec.CommandContext(a.t.Context(), a.bin, append([]string{"card", "--socket", a.sock}, words...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	_ = cmd.Run() // the exit status is checked
	checkFailure(a.t, cmd.ProcessState.ExitCode(), stderr.String(), status, names...)
}

// connected waits until a card has a session and carrier.
func (a *agentProcess) connected(card string) {
	a.t.Helper()
	d := *a.daemon
	d.sock = a.socketOf(card)
	var s hostStatus
	eventually(a.t, func() bool { return d.statusInto(&s) && s.State == "connected" && s.Netdevice.Carrier },
		"a session of %s", card)
}

// socketOf returns the path of a card's status socket.
func (a *agentProcess) socketOf(card string) string {
	return filepath.Join(a.fixture.dir, "host-"+card+".sock")
}

// devices returns the RDMA device of each card, by the card's name.
func (a *agentProcess) devices(names []string) map[string]string {
	a.t.Helper()
	of := map[string]string{}
	for _, name := range names {
		d := *a.daemon
		d.sock = a.socketOf(name)
		var s struct {
			Device string `json:"device"`
		}
		if !d.statusInto(&s) {
			a.t.Errorf("%s does not answer", name)
		}
		of[name] = s.Device
	}
	return of
}

// TestRDMAAgent runs an agent with three cards. Each has its own network namespace, one has its
// own key, and one is on a second RDMA device. The agent is ended by SIGKILL and by SIGTERM and
// started again while a TCP connection is in use: the netdevices, the RDMA devices and the TCP
// connection have to survive. Then the cards are removed, and nothing may be left of them.
func TestRDMAAgent(t *testing.T) {
	key, err := session.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "web.pem")
	if err := session.SaveKey(keyFile, key); err != nil {
		t.Fatal(err)
	}
	r := newFixture(t, "macvtap", "--trust", "web="+key.Fingerprint().String(), "--advanced.handshake-timeout",
		patience.String())
	a := r.newAgent(t)
	names := []string{"cache", "db", "web"}
	spaces := map[string]string{}
	for i, name := range names {
		ns := testenv.NetNS(t)
		spaces[name] = ns
		words := []string{"add", name, "--netns", ns, "--netdev", "eth0"}
		want := fmt.Sprintln(name, "eth0", r.keys.hostPrint)
		if name == "web" {
			words = append(words, "--key", keyFile)
			want = fmt.Sprintln(name, "eth0", key.Fingerprint())
		}
		if name == "cache" {
			words = append(words, "--device", unitDevice)
		}
		if got := a.card(words...); got != want {
			t.Errorf("%q is printed instead of %q", got, want)
		}
		a.connected(name)
		testenv.Address(t, ns, "eth0", addr(i+1)+"/24")
		ping(t, ns, addr(0), 2, 56)
	}
	a.card("add", "db", "--netns", spaces["db"], "--netdev", "eth0") // exists already
	a.refused(6, []string{"add", "web", "--netns", spaces["db"]}, "netdevice", "web")
	a.refused(1, []string{"add", "more"}, "--max-cards")
	a.card("del", "not-there")
	prints := map[string]string{}
	for _, h := range r.unit.unitStatus().Hosts {
		prints[h.Name[strings.LastIndex(h.Name, ".")+1:]] = h.Fingerprint
	}
	if len(prints) != 3 || prints["web"] != key.Fingerprint().String() || prints["db"] != r.keys.hostPrint {
		t.Errorf("the I/O unit knows %v", prints)
	}

	devices := map[string]string{"cache": unitDevice, "db": hostDevice, "web": hostDevice}
	if got := a.devices(names); !maps.Equal(got, devices) {
		t.Errorf("the cards are on the devices %v", got)
	}

	s := startStreaming(t, r.lan, spaces["web"], streamPause)
	s.proceeds(t)
	index := testenv.Link(t, spaces["web"], "eth0").Attrs().Index
	for what, end := range map[string]func(){"SIGKILL": func() { a.kill() }, "SIGTERM": func() { a.stop() }} {
		if got, want := a.manager.names(), []string{"cache/0", "db/0", "web/0"}; !slices.Equal(got, want) {
			t.Errorf("%v in the store", got)
		}
		end()
		a.start()
		for _, name := range names {
			a.connected(name)
		}
		s.proceeds(t)
		if got := a.devices(names); !maps.Equal(got, devices) {
			t.Errorf("after %s the cards are on the devices %v", what, got)
		}
		ping(t, spaces["cache"], addr(0), 2, 56)
		if got := testenv.Link(t, spaces["web"], "eth0").Attrs().Index; got != index {
			t.Errorf("after %s eth0 is another: %d and not %d", what, got, index)
		}
	}
	s.finish(t)

	// Removing a card does not affect the others.
	before := a.cards()
	a.card("del", "db")
	if link := testenv.Link(t, spaces["db"], "eth0"); link != nil {
		t.Errorf("after del there is %v", link.Attrs())
	}
	ping(t, spaces["web"], addr(0), 2, 56)
	for _, c := range a.cards() {
		if c.State != "connected" || c.Since != before[c.name].Since {
			t.Errorf("%+v was %+v before another card was removed", c, before[c.name])
		}
	}
	for _, name := range []string{"cache", "web"} {
		a.card("del", name)
	}
	if out := a.card("list"); out != "" {
		t.Errorf("there are still cards:\n%s", out)
	}
	eventually(t, func() bool { return len(r.unit.unitStatus().Hosts) == 0 }, "an I/O unit without hosts")
	if got := a.manager.names(); len(got) > 0 {
		t.Errorf("%v in the store", got)
	}
	for _, name := range names {
		if links := testenv.Links(t, spaces[name]); !slices.Equal(links, []string{"lo"}) {
			t.Errorf("%s: %v is left", name, links)
		}
		if _, err := os.Stat(a.socketOf(name)); !os.IsNotExist(err) {
			t.Errorf("the socket of %s: %v", name, err)
		}
	}
	if files, err := os.ReadDir(filepath.Join(a.state, "cards")); err != nil || len(files) > 0 {
		t.Errorf("%v, %v in the state directory", files, err)
	}
}

// cardStatus is the status of a card in the API.
type cardStatus struct {
	name  string
	State string `json:"state"`
	Since string `json:"since"`
}

// cards returns the status of the agent's cards, by name.
func (a *agentProcess) cards() map[string]cardStatus {
	a.t.Helper()
	var list struct {
		Cards []struct {
			Spec struct {
				Name string `json:"name"`
			} `json:"spec"`
			Status cardStatus `json:"status"`
		} `json:"cards"`
	}
	if err := json.Unmarshal([]byte(a.card("list", "--json")), &list); err != nil {
		a.t.Fatal(err)
	}
	all := map[string]cardStatus{}
	for _, c := range list.Cards {
		c.Status.name = c.Spec.Name
		all[c.Spec.Name] = c.Status
	}
	return all
}
