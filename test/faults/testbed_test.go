package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	unitAddress = "10.198.0.1"
	hostAddress = "10.198.0.2"
	lanAddress  = "10.77.0.1"
	// fabricMTU is the MTU of the cable, which has room for the fabric's packets of 4096 bytes.
	fabricMTU = 4200
	program   = "build/splitnic"
)

// Network namespaces. The network card and the LAN are on the unit's machine;
// both machines have a namespace for a host's netdevice.
const (
	cardNS = "card"
	lanNS  = "lan"
	appNS  = "app"
)

// testbed has both machines, and the panel between them.
type testbed struct {
	dir        string
	panel      *panel
	unit, host *machine
	keys       map[string][]byte // file name to contents
	prints     map[string]string // fingerprint of the key of "unit" and "host"
}

// shared is the testbed of all tests. It is nil before the first test.
var shared *testbed

// need skips the test unless SPLITNIC_REQUIRE has "machines" or "all".
func need(t testing.TB) {
	t.Helper()
	for f := range strings.SplitSeq(os.Getenv("SPLITNIC_REQUIRE"), ",") {
		if f = strings.TrimSpace(f); f == "machines" || f == "all" {
			return
		}
	}
	t.Skip("boots two guests; set SPLITNIC_REQUIRE=machines to run it")
}

func TestMain(m *testing.M) {
	if os.Getenv(nodeVariable) != "" {
		if err := serveAgent(&stdio{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	status := m.Run()
	if shared != nil {
		if err := shared.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}
	os.Exit(status)
}

// newTestbed makes the files, keys and panel that both machines need. It does not boot the
// machines.
func newTestbed() (*testbed, error) {
	if err := installNode(); err != nil {
		return nil, fmt.Errorf("putting the agent where guests see it: %w", err)
	}
	dir, err := os.MkdirTemp("", "snfaults")
	if err != nil {
		return nil, err
	}
	s := &testbed{dir: dir, keys: map[string][]byte{}, prints: map[string]string{}}
	if s.panel, err = newPanel(dir); err != nil {
		return nil, err
	}
	s.unit = &machine{name: "unit", address: unitAddress, cable: s.panel.path(0), letter: 'b', dir: dir}
	s.host = &machine{name: "host", address: hostAddress, cable: s.panel.path(1), letter: 'c', dir: dir}
	for _, who := range []string{"unit", "host"} {
		path := filepath.Join(dir, who+".pem")
		out, err := exec.Command(filepath.Join(checkout, program), "keygen", "--out", path).Output()
		if err != nil {
			return nil, fmt.Errorf("making a key with %s: %w (make build)", program, err)
		}
		s.prints[who] = strings.TrimSpace(string(out))
		if s.keys[who], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// close shuts down the machines, closes the panel and removes the files.
func (s *testbed) close() error {
	var errs [2]error
	var wg sync.WaitGroup
	for i, m := range []*machine{s.unit, s.host} {
		wg.Go(func() { errs[i] = m.shut() })
	}
	wg.Wait()
	return errors.Join(append(errs[:], s.panel.close(), os.RemoveAll(s.dir))...)
}

// up boots the machines that are not running, in parallel, and installs what they need.
func (s *testbed) up(t testing.TB) {
	t.Helper()
	var dead []*machine
	for _, m := range []*machine{s.unit, s.host} {
		if !m.running() {
			dead = append(dead, m)
		}
	}
	errs := make([]error, len(dead))
	var wg sync.WaitGroup
	for i, m := range dead {
		wg.Go(func() { errs[i] = m.boot() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*machine{s.unit, s.host} {
		if m.ready {
			continue
		}
		started := time.Now()
		s.install(t, m)
		m.ready = true
		t.Logf("%s: %s, booted in %v, set up in %v", m.name, m.mode, m.booted.Round(10*time.Millisecond),
			time.Since(started).Round(10*time.Millisecond))
	}
}

// install sets up a machine: its cable, network namespaces, kernel modules and keys.
func (s *testbed) install(t testing.TB, m *machine) {
	t.Helper()
	m.sh(t, fmt.Sprintf(`
		. ci/softroce/topology.sh
		cable_up %s/24 %d
		ip netns add %s
		mkdir -p -m 0700 /run/sn
		modprobe -a nf_tables sch_netem macvtap`, m.address, fabricMTU, appNS))
	if m == s.unit {
		m.sh(t, fmt.Sprintf(`
			ip netns add %[1]s
			ip netns add %[2]s
			ip -n %[1]s link add eth1 type veth peer name lan0 netns %[2]s
			ip -n %[1]s link set lo up
			ip -n %[1]s link set eth1 up
			ip -n %[2]s link set lan0 up
			ip -n %[2]s addr add %[3]s/24 dev lan0`, cardNS, lanNS, lanAddress))
	}
	for name, text := range s.keys {
		must[struct{}](t, m, "WriteFile", File{Path: "/run/sn/" + name + ".pem", Data: text, Mode: 0o600})
	}
	m.sh(t, ". ci/softroce/topology.sh; snapshot >/run/sn/before")
}

// emulated reports whether the machines are emulated, which makes everything about ten times
// slower.
func (s *testbed) emulated() bool { return s.unit.mode == "tcg" }

// within returns the limit in these guests for an action that may take d on a physical machine.
func (s *testbed) within(d time.Duration) time.Duration {
	if s.emulated() {
		return 5 * d
	}
	return 2 * d
}

// fixture is the testbed in one test, which starts an I/O unit and hosts on it.
type fixture struct {
	*testbed
	t testing.TB
}

// newFixture boots the machines if necessary, and has them checked and cleaned at the end of the
// test.
func newFixture(t testing.TB) *fixture {
	t.Helper()
	need(t)
	if shared == nil {
		s, err := newTestbed()
		if err != nil {
			t.Fatal(err)
		}
		shared = s
	}
	r := &fixture{testbed: shared, t: t}
	r.up(t)
	t.Cleanup(func() {
		for _, m := range r.machines() {
			if m.running() {
				r.tidy(t, m)
			}
		}
	})
	return r
}

func (r *fixture) machines() []*machine { return []*machine{r.unit, r.host} }

// tidy removes the faults, and fails the test if the product has left anything behind on the
// machine.
func (r *fixture) tidy(t testing.TB, m *machine) {
	m.resume(t)
	m.plug(t, true)
	res := must[Result](t, m, "Run", Command{Args: []string{"bash"}, Input: `
		. ci/softroce/topology.sh
		nft flush ruleset
		tc qdisc del dev eth0 root 2>/dev/null
		leaks /run/sn/before`})
	if res.Status != 0 {
		t.Errorf("%s, after the test: %s", m.name, res.Output)
		m.kill() // the next test boots a clean machine
	}
}

// eventually waits until cond holds and returns how long that took.
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
