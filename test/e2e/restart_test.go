package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// restarts is the number of times that each endpoint is restarted in each way. The environment
// variable ROUNDS sets another number if SPLITNIC_SAMPLES is set, for `make bench-restart`.
const restarts = 1

// setting describes the node's netdevice.
func (n *node) setting(t testing.TB) string {
	t.Helper()
	return setting(t, n.ns, "-n", n.ns)
}

// setting describes the configuration of sn0 in ns that an administrator has set or can see. ipFlags
// are the flags with which ip works in that namespace.
func setting(t testing.TB, ns string, ipFlags ...string) string {
	t.Helper()
	link := testenv.Link(t, ns, "sn0")
	if link == nil {
		t.Fatal("there is no sn0")
	}
	a := link.Attrs()
	s := fmt.Sprintf("index %d, %v, mtu %d, txqlen %d, %v\n", a.Index, a.HardwareAddr, a.MTU, a.TxQLen, a.Flags)
	for _, what := range []string{"addr", "route", "neigh"} {
		args := append(slices.Clone(ipFlags), "-o", what, "show", "dev", "sn0")
		if what == "neigh" {
			args = append(args, "nud", "permanent")
		}
		// After a loss of carrier, addresses are tentative during another duplicate detection.
		s += what + ": " + strings.ReplaceAll(run(t, "ip", args...), "tentative ", "")
	}
	return s
}

// restarted returns, by the status, the time when the netdevice was made, and the number of times
// that a process has adopted it.
func (n *node) restarted() (since time.Time, adopted int) {
	n.t.Helper()
	var s struct {
		Netdevice struct {
			Since   time.Time `json:"since"`
			Adopted int       `json:"adopted"`
		} `json:"netdevice"`
	}
	eventually(n.t, func() bool { return n.toldInto(&s) }, "a status")
	return s.Netdevice.Since, s.Netdevice.Adopted
}

// connected waits until the host has a session with the present process of the I/O unit.
func (n *node) connected() {
	n.t.Helper()
	eventually(n.t, func() bool {
		h, u := hostStatus{}, unitStatus{}
		return n.statusInto(&h) && h.State == "connected" && n.fixture.unit.statusInto(&u) && len(u.Hosts) == 1
	}, "a session")
}

// TestRDMARestart restarts either endpoint, by SIGTERM and by SIGKILL, while a TCP connection is in
// use in both directions. The host has a service manager that stores the descriptors of its
// netdevice. The netdevice, its configuration and the TCP connection have to survive.
func TestRDMARestart(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.managedHost(t, "--queues", "2")
	want := []string{"sn0/0", "sn0/1"}
	eventually(t, func() bool { return slices.Equal(h.manager.names(), want) }, "%v in the store", want)

	// Configure the netdevice as an administrator does.
	run(t, "ip", "-n", h.ns, "link", "set", "sn0", "mtu", "1400", "txqueuelen", "300")
	run(t, "ip", "-n", h.ns, "link", "set", "sn0", "address", "02:00:5e:00:53:01")
	run(t, "ip", "-n", h.ns, "neigh", "add", addr(7), "lladdr", "02:00:5e:00:53:07", "dev", "sn0", "nud", "permanent")
	run(t, "ip", "-n", h.ns, "route", "add", "192.0.2.0/24", "via", addr(7), "dev", "sn0")
	eventually(t, func() bool {
		u := r.unit.unitStatus()
		return len(u.Hosts) == 1 && u.Hosts[0].MAC == "02:00:5e:00:53:01" && u.Hosts[0].MTU == 1400
	}, "the I/O unit following the netdevice")
	ping(t, h.ns, addr(0), 1, 56)
	setting := h.setting(t)
	since, _ := h.restarted()

	s, p := startStreaming(t, r.lan, h.ns, streamPause), startProber(t, r, h)
	s.proceeds(t)
	p.answered(t)
	n := restarts
	if os.Getenv("SPLITNIC_SAMPLES") != "" {
		var err error
		if n, err = strconv.Atoi(os.Getenv("ROUNDS")); err != nil {
			t.Fatalf("ROUNDS: %v", err)
		}
	}
	rec := recorder(t)
	adopted := 0
	unit := func(end func(d *daemon)) func() {
		return func() {
			end(r.unit)
			r.startUnit()
		}
	}
	host := func(end func(d *daemon)) func() {
		return func() {
			end(h.daemon)
			if !carrier(t, h.ns, "sn0") {
				t.Error("the netdevice has lost its carrier with its process")
			}
			h.start()
			adopted++
		}
	}
	for _, c := range []struct {
		what    string
		restart func()
	}{
		{"host SIGTERM", host(func(d *daemon) { d.stop() })},
		{"host SIGKILL", host((*daemon).kill)},
		{"unit SIGTERM", unit(func(d *daemon) { d.stop() })},
		{"unit SIGKILL", unit((*daemon).kill)},
	} {
		var gaps []int64
		sink := rec.Of("restart", c.what, 1500)
		for range n {
			p.reset()
			c.restart()
			h.connected()
			s.proceeds(t)
			gap := p.answered(t)
			gaps = append(gaps, gap.Milliseconds())
			sink.Add("without an answer", "ms", gap.Seconds()*1000)
			if got := h.setting(t); got != setting {
				t.Fatalf("%s: sn0 was\n%sand is\n%s", c.what, setting, got)
			}
			if at, times := h.restarted(); !at.Equal(since) || times != adopted {
				t.Errorf("%s: the status says made %v, adopted %d times, instead of %v, %d times", c.what, at, times, since,
					adopted)
			}
		}
		t.Logf("%s: without an answer, ms: %v", c.what, gaps)
	}
	bytes := s.finish(t)
	rec.Of("restart", "all", 1500).Add("bytes in one connection, all right", "bytes", float64(bytes))
	t.Logf("%d bytes, all of them right, in one connection through %d restarts", bytes, 4*n)
	if names := h.manager.names(); !slices.Equal(names, want) {
		t.Errorf("in the store are %v", names)
	}
	if got := h.manager.readies(); got != 1+adopted {
		t.Errorf("%d processes were ready, of %d", got, 1+adopted)
	}
	// When the service is stopped, the netdevice has to go with the store.
	h.stop()
	h.manager.drop()
	eventually(t, func() bool { return testenv.Link(t, h.ns, "sn0") == nil }, "sn0 going with the store")
}

// managedHost starts a host that has a service manager.
func (r *fixture) managedHost(t testing.TB, flags ...string) *node {
	t.Helper()
	m := newManager(t)
	n := r.makeHost(t, flags...)
	n.manager = m
	n.start()
	n.ready()
	return n
}

// TestRDMARestartChanged restarts a host with other flags and with a wrong flag, and after its
// netdevice was renamed or deleted. The netdevice has to stay the same one wherever that is possible.
func TestRDMARestartChanged(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.managedHost(t)
	index := func() int { return testenv.Link(t, h.ns, "sn0").Attrs().Index }
	first := index()
	t.Run("more queues", func(t *testing.T) {
		h.stop()
		h.flags = []string{"--queues", "2"}
		h.start()
		h.connected()
		if got := index(); got != first {
			t.Errorf("sn0 is another netdevice: its index was %d and is %d", first, got)
		}
		eventually(t, func() bool { return slices.Equal(h.manager.names(), []string{"sn0/0", "sn0/1"}) },
			"both queues in the store")
		ping(t, h.ns, addr(0), 2, 56)
	})
	t.Run("renamed", func(t *testing.T) {
		rename := func(from, to string) {
			// Older kernels do not rename a device that is up.
			run(t, "ip", "-n", h.ns, "link", "set", from, "down")
			run(t, "ip", "-n", h.ns, "link", "set", from, "name", to)
			run(t, "ip", "-n", h.ns, "link", "set", to, "up")
		}
		rename("sn0", "lan7")
		h.kill()
		h.flags = nil
		h.start()
		h.connected()
		rename("lan7", "sn0")
		if got := index(); got != first {
			t.Errorf("sn0 is another netdevice: its index was %d and is %d", first, got)
		}
		eventually(t, func() bool { return slices.Equal(h.manager.names(), []string{"sn0/0"}) }, "one queue in the store")
		// The netdevice was down, which the I/O unit knows, so the first answers may be missing.
		eventually(t, func() bool { return echo(h.ns, netip.MustParseAddr(addr(0)), 1, 56) == nil }, "an answer from the LAN")
	})
	t.Run("a mistake", func(t *testing.T) {
		h.stop()
		h.flags = []string{"--mac", "nonsense"}
		h.start()
		<-h.done
		h.failed(exitUsage, "--mac")
		if carrier(t, h.ns, "sn0") {
			t.Error("sn0 has carrier although nobody moves its frames")
		}
		if got := index(); got != first {
			t.Errorf("sn0 is another netdevice: its index was %d and is %d", first, got)
		}
		if err := os.Truncate(h.log, 0); err != nil {
			t.Fatal(err)
		}
		h.flags = nil
		h.start()
		h.waitCarrier(true)
		ping(t, h.ns, addr(0), 2, 56)
	})
	t.Run("plain", func(t *testing.T) {
		h.stop()
		h.flags = []string{"--advanced.plain=yes"}
		h.start()
		eventually(t, func() bool {
			link := testenv.Link(t, h.ns, "sn0")
			return link != nil && link.Attrs().Index != first
		}, "another netdevice, without offloads")
		h.ready()
		ping(t, h.ns, addr(0), 2, 56)
	})
	t.Run("deleted", func(t *testing.T) {
		h.stop()
		run(t, "ip", "-n", h.ns, "link", "delete", "sn0")
		h.start()
		h.ready()
		ping(t, h.ns, addr(0), 2, 56)
		if names := h.manager.names(); !slices.Equal(names, []string{"sn0/0"}) {
			t.Errorf("in the store are %v", names)
		}
	})
}

// TestRDMAPersist restarts a host with --persist, whose netdevice outlives the process without a
// service manager. A host without the flag has to refuse the netdevice.
func TestRDMAPersist(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t, "--persist")
	s := startStreaming(t, r.lan, h.ns, streamPause)
	s.proceeds(t)
	setting := h.setting(t)
	for i, end := range []func(){func() { h.stop() }, func() { h.kill() }} {
		end()
		eventually(t, func() bool { return !carrier(t, h.ns, "sn0") }, "sn0 losing its carrier with its process")
		h.start()
		h.waitCarrier(true)
		s.proceeds(t)
		if got := h.setting(t); got != setting {
			t.Errorf("sn0 was\n%sand is\n%s", setting, got)
		}
		if _, adopted := h.restarted(); adopted != i+1 {
			t.Errorf("the status says that sn0 was taken over %d times, after %d restarts", adopted, i+1)
		}
	}
	s.finish(t)
	h.stop()
	h.flags = nil
	h.start()
	<-h.done
	h.failed(exitInUse, "--persist", "ip link delete sn0")
	run(t, "ip", "-n", h.ns, "link", "delete", "sn0")
}

// TestRDMAPrivileges checks that running daemons have no more capabilities than they need and cannot
// gain privileges, and that they can open sessions again with the rest.
func TestRDMAPrivileges(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t)
	const (
		common = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_IPC_LOCK | 1<<unix.CAP_SYS_NICE | 1<<unix.CAP_BPF |
			1<<unix.CAP_SYS_ADMIN // --netns
		host = common | 1<<unix.CAP_NET_BROADCAST
		unit = common | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_MKNOD
	)
	for _, c := range []struct {
		d    *daemon
		most uint64
	}{{h.daemon, host}, {r.unit, unit}} {
		for _, task := range tasks(t, fmt.Sprintf("/proc/%d", c.d.cmd.Process.Pid)) {
			for _, set := range []string{"CapPrm", "CapEff", "CapBnd", "CapInh"} {
				got, err := strconv.ParseUint(task[set], 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				if got&^c.most != 0 || set == "CapEff" && got == 0 {
					t.Errorf("%s of thread %s of %s is %#x, which should be some of %#x", set, task["Pid"], c.d.cmd.Args[1], got,
						c.most)
				}
			}
			if task["NoNewPrivs"] != "1" {
				t.Errorf("thread %s of %s can gain privileges", task["Pid"], c.d.cmd.Args[1])
			}
		}
	}
	// The remaining capabilities have to suffice for a new session.
	for _, restart := range []func(){func() { r.unit.kill(); r.startUnit() }, func() { h.kill(); h.start(); h.ready() }} {
		restart()
		h.connected()
		ping(t, h.ns, addr(0), 2, 56)
	}
}

// tasks returns the fields of the status files of a process's threads. process is the directory of
// the process in /proc.
func tasks(t testing.TB, process string) []map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(process, "task/*/status"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no threads: %v", process, err)
	}
	var all []map[string]string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		one := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			one[key] = strings.TrimSpace(value)
		}
		all = append(all, one)
	}
	return all
}
