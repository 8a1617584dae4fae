package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// services has both endpoints as services of one machine, whose network namespace is the initial one,
// and the LAN behind the I/O unit's card.
type services struct {
	*machine
	host, unit service
	lan        string // network namespace
}

const (
	hostConfig = "device: " + hostDevice + "\niounit: " + unitAddress +
		"\ntrust-file: /etc/splitnic/iounits\nqueues: 2\npeer-timeout: 10s\nhost-name: sn0.machine\n"
	unitConfig = "device: " + unitDevice + "\nlisten: " + unitAddress +
		"\nlan: macvtap:sneth1\ntrust-file: /etc/splitnic/hosts\npeer-timeout: 10s\n"
	// credential is the drop-in of docs/deploy.md for a key in another place.
	credential = "[Service]\nLoadCredential=key:/etc/keys/sn0.pem\nExecStart=\n" +
		"ExecStart=/usr/local/bin/splitnic host --config /etc/splitnic/%i.yaml --name %i --key %d/key\n"
)

// newServices configures both endpoints on a new machine as docs/deploy.md describes.
func newServices(t testing.TB) *services {
	t.Helper()
	needFabric(t)
	if testenv.Link(t, "", "sn0") != nil {
		t.Fatal("there is a netdevice sn0")
	}
	s := &services{machine: newMachine(t), lan: testenv.NetNS(t)}
	s.host = service{s.machine, "splitnic-host@sn0.service", "/run/splitnic/host-sn0.sock"}
	s.unit = service{s.machine, "splitnic-iounit.service", "/run/splitnic/iounit-7580.sock"}
	testenv.Veth(t, "", "sneth1", s.lan, "lan0")
	testenv.Address(t, s.lan, "lan0", addr(0)+"/24")
	s.run("mkdir", "/etc/keys")
	unit := s.run("splitnic", "keygen")
	host := s.run("splitnic", "keygen", "--out", "/etc/keys/sn0.pem")
	s.write("/etc/splitnic/hosts", "machine="+host)
	s.write("/etc/splitnic/iounits", "unit="+unit)
	s.write("/etc/splitnic/iounit.yaml", unitConfig)
	s.write("/etc/splitnic/sn0.yaml", hostConfig)
	s.host.edit(credential)
	t.Cleanup(func() {
		// The services clean up only if they are stopped before the machine is switched off.
		_, _ = s.try("systemctl", "stop", s.host.unit, s.unit.unit)
	})
	return s
}

// connected waits until the host has a session with the present process of the I/O unit.
func (s *services) connected() {
	s.t.Helper()
	eventually(s.t, func() bool {
		h, u := hostStatus{}, unitStatus{}
		return s.host.statusInto(&h) && h.State == "connected" && s.unit.statusInto(&u) && len(u.Hosts) == 1
	}, "a session")
	s.host.is("StatusText", "connected")
}

// adopted returns the number of times that a process has adopted the netdevice.
func (s *services) adopted() int {
	s.t.Helper()
	var h struct {
		Netdevice struct {
			Adopted int `json:"adopted"`
		} `json:"netdevice"`
	}
	eventually(s.t, func() bool { return s.host.statusInto(&h) }, "a status of the host")
	return h.Netdevice.Adopted
}

// TestRDMASystemd runs both endpoints under systemd, from `make install` to `systemctl stop`. The
// netdevice, and a TCP connection through it that is in use all the time, have to survive restarts,
// kills and a wrong configuration.
func TestRDMASystemd(t *testing.T) {
	s := newServices(t)
	before := testenv.Links(t, "")
	s.start(t)
	if t.Failed() {
		return
	}
	t.Run("sandbox", s.sandbox)
	t.Run("exposure", func(t *testing.T) {
		for _, service := range []service{s.host, s.unit} {
			if out, err := s.try("systemd-analyze", "security", "--no-pager", "--threshold=30", service.unit); err != nil {
				t.Errorf("%s is exposed: %v\n%s", service.unit, err, out)
			}
		}
	})
	t.Run("reload", s.reload)
	testenv.Address(t, "", "sn0", addr(1)+"/24")
	run(t, "ip", "link", "set", "sn0", "mtu", "1400", "txqueuelen", "300")
	run(t, "ip", "neigh", "add", addr(7), "lladdr", "02:00:5e:00:53:07", "dev", "sn0", "nud", "permanent")
	run(t, "ip", "route", "add", "192.0.2.0/24", "via", addr(7), "dev", "sn0")
	stream := startStreaming(t, s.lan, "", 20*time.Millisecond)
	stream.proceeds(t)
	want := setting(t, "")
	adopted := 0
	same := func(t *testing.T) {
		t.Helper()
		s.connected()
		stream.proceeds(t)
		if got := setting(t, ""); got != want {
			t.Errorf("sn0 was\n%sand is\n%s", want, got)
		}
		if got := s.adopted(); got != adopted {
			t.Errorf("the netdevice was taken over %d times, and not %d", got, adopted)
		}
		if got := s.host.show("NFileDescriptorStore"); got != "2" {
			t.Errorf("%s descriptors are in the store", got)
		}
	}
	t.Run("restart host", func(t *testing.T) {
		s.install() // an upgrade
		s.host.do("restart")
		adopted++
		same(t)
	})
	t.Run("restart unit", func(t *testing.T) {
		s.unit.do("restart")
		same(t)
	})
	t.Run("kill host", func(t *testing.T) {
		// systemd keeps the store when it executes itself again.
		s.run("systemctl", "daemon-reexec")
		s.host.kill()
		s.host.is("NRestarts", "1")
		adopted++
		same(t)
	})
	t.Run("kill unit", func(t *testing.T) {
		s.unit.kill()
		s.unit.is("NRestarts", "1")
		same(t)
	})
	t.Run("mistake", func(t *testing.T) {
		s.write("/etc/splitnic/sn0.yaml", hostConfig+"mac: nonsense\n")
		if out, err := s.try("systemctl", "restart", s.host.unit); err == nil {
			t.Errorf("systemctl restart does not report that the service has failed:\n%s", out)
		}
		eventually(t, func() bool { n, _ := strconv.Atoi(s.host.show("NRestarts")); return n > 1 }, "several attempts")
		if got := s.host.show("NFileDescriptorStore"); got != "2" {
			t.Errorf("%s descriptors are in the store of a service that does not start", got)
		}
		if carrier(t, "", "sn0") {
			t.Error("sn0 has carrier although nobody moves its frames")
		}
		s.write("/etc/splitnic/sn0.yaml", hostConfig)
		adopted++
		same(t)
	})
	t.Logf("%d bytes, all of them right, in one connection", stream.finish(t))
	t.Run("movable", s.movable)
	t.Run("stop", func(t *testing.T) { s.stop(t, before) })
}

// start enables both endpoints, the host first.
func (s *services) start(t *testing.T) {
	s.host.do("enable", "--now")
	// The host is ready when it has its netdevice. It does not wait for a session.
	if testenv.Link(t, "", "sn0") == nil {
		t.Error("the host is started, and there is no sn0")
	}
	var h hostStatus
	if !s.host.statusInto(&h) || h.State != "connecting" {
		t.Errorf("the host is started, and its state is %q", h.State)
	}
	s.unit.do("enable", "--now")
	s.connected()
	for _, service := range []service{s.host, s.unit} {
		for property, want := range map[string]string{
			"Type": "notify", "ActiveState": "active", "SubState": "running", "NRestarts": "0", "UnitFileState": "enabled",
		} {
			if got := service.show(property); got != want {
				t.Errorf("%s of %s is %q, and not %q", property, service.unit, got, want)
			}
		}
	}
	if got := s.host.show("NFileDescriptorStore"); got != "2" {
		t.Errorf("%s descriptors are in the store, of 2 queues", got)
	}
	if got, want := s.unit.show("StatusText"), "serving macvtap:sneth1 at "+unitAddress+":7580"; got != want {
		t.Errorf("systemctl says that the I/O unit is %q, and not %q", got, want)
	}
	s.host.do("status")
}

// sandbox checks the capabilities and the sandbox of the running services, and tries to open devices
// and to write files in their place.
func (s *services) sandbox(t *testing.T) {
	const common = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_IPC_LOCK | 1<<unix.CAP_SYS_NICE | 1<<unix.CAP_BPF
	macvtap := "/dev/" + s.tap(t)
	devices, err := filepath.Glob("/dev/infiniband/uverbs*")
	if err != nil || len(devices) == 0 {
		t.Fatalf("no RDMA devices: %v", err)
	}
	devices = append(devices, "/dev/net/tun", "/dev/null")
	h, u := hostStatus{}, unitStatus{}
	if !s.host.statusInto(&h) || !s.unit.statusInto(&u) || len(u.Hosts) != 1 {
		t.Fatal("no status of a session")
	}
	for name, discard := range map[string]state{"host": h.Netdevice.Discard, "I/O unit": u.Hosts[0].Discard} {
		if !discard.On {
			t.Errorf("%s: datagrams are not discarded as a whole: %s", name, discard.Reason)
		}
	}
	for _, c := range []struct {
		service
		caps    uint64
		devices []string // devices that the service can open
	}{
		{s.host, common | 1<<unix.CAP_NET_BROADCAST, devices},
		{s.unit, common | 1<<unix.CAP_NET_RAW, append([]string{macvtap}, devices...)},
	} {
		for _, task := range tasks(t, c.process()) {
			for _, set := range []string{"CapPrm", "CapEff"} {
				got, err := strconv.ParseUint(task[set], 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				if got != c.caps {
					t.Errorf("%s of thread %s of %s is %#x, and not %#x", set, task["Pid"], c.unit, got, c.caps)
				}
			}
			if task["Seccomp"] != "2" || task["NoNewPrivs"] != "1" {
				t.Errorf("thread %s of %s: Seccomp %s, NoNewPrivs %s", task["Pid"], c.unit, task["Seccomp"], task["NoNewPrivs"])
			}
		}
		// The script prints the devices that a process in the service's control group can open, and
		// the files that a process in the service's mount namespace can write.
		const attempt = `group=/sys/fs/cgroup$1 pid=$2; shift 2
			(echo 0 >"$group/cgroup.procs" && for d; do (: <"$d") && echo "$d"; done)
			nsenter --mount --root --wd --target "$pid" bash -c 'for d; do : >"$d" && echo "$d" && rm "$d"; done' - \
				{/etc/splitnic,/run,/run/splitnic,/sys/fs/cgroup,/tmp,/usr/local,/var}/new`
		args := []string{"bash", "-c", attempt, "-", c.show("ControlGroup"), c.show("MainPID"), "/dev/kmsg", macvtap}
		out, _ := s.try(append(args, devices...)...)
		want := append(c.devices, "/run/splitnic/new", "/tmp/new")
		got := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return !strings.HasPrefix(line, "/") })
		if !slices.Equal(got, want) {
			t.Errorf("%s can use %q, and not %q:\n%s", c.unit, got, want, out)
		}
	}
}

// tap returns the name of the character device of the I/O unit's macvtap.
func (s *services) tap(t *testing.T) string {
	t.Helper()
	var u unitStatus
	if !s.unit.statusInto(&u) || len(u.Hosts) != 1 {
		t.Fatal("the I/O unit has no host")
	}
	return fmt.Sprintf("tap%d", testenv.Link(t, "", u.Hosts[0].Interface).Attrs().Index)
}

// reload makes the I/O unit reload its files, without and with a mistake. The process has to stay.
func (s *services) reload(t *testing.T) {
	pid := s.unit.show("MainPID")
	hosts := strings.TrimSpace(s.run("cat", "/etc/splitnic/hosts"))
	reloaded := func(what string, done, failed, keys int) {
		t.Helper()
		s.unit.do("reload")
		var st trustStatus
		eventually(t, func() bool {
			st = trustStatus{}
			r := &st.Security.Reload
			return s.unit.statusInto(&st) && r.Done == done && r.Failed == failed && st.Security.Keys == keys
		}, "%s; it is %+v", what, &st)
		if st.Security.Reload.Failed > 0 && st.Security.Reload.Error == "" {
			t.Errorf("%s: the status does not say why", what)
		}
	}
	another := strings.TrimSpace(s.run("splitnic", "keygen", "--out", "/etc/keys/another.pem"))
	s.write("/etc/splitnic/hosts", hosts+"\nanother="+another+"\n")
	reloaded("a reload with another key", 1, 0, 2)
	s.write("/etc/splitnic/hosts", hosts+"\nanother=nonsense\n")
	reloaded("a reload with a mistake", 1, 1, 2)
	s.write("/etc/splitnic/hosts", hosts+"\n")
	s.unit.is("ActiveState", "active")
	if got := s.unit.show("MainPID"); got != pid {
		t.Errorf("the process was %s and is %s", pid, got)
	}
}

// movable moves the netdevice to another network namespace, with the drop-in of docs/deploy.md for
// movable netdevices. The netdevice has to survive restarts of the host there.
func (s *services) movable(t *testing.T) {
	ns := testenv.NetNS(t)
	s.host.edit(credential + "CapabilityBoundingSet=CAP_SYS_ADMIN\nRestrictNamespaces=net\n")
	s.write("/etc/splitnic/sn0.yaml", hostConfig+"movable: true\n")
	s.host.do("restart")
	s.connected()
	run(t, "ip", "link", "set", "sn0", "netns", ns)
	testenv.Address(t, ns, "sn0", addr(1)+"/24")
	testenv.Up(t, ns, "sn0")
	index := testenv.Link(t, ns, "sn0").Attrs().Index
	for range 2 {
		s.connected()
		ping(t, ns, addr(0), 2, 56)
		s.host.do("restart")
	}
	s.connected()
	if got := testenv.Link(t, ns, "sn0").Attrs().Index; got != index {
		t.Errorf("sn0 is another netdevice: its index was %d and is %d", index, got)
	}
}

// stop stops both endpoints and checks that nothing is left.
func (s *services) stop(t *testing.T, before []string) {
	s.host.do("stop")
	if got := s.host.show("NFileDescriptorStore"); got != "0" {
		t.Errorf("%s descriptors are in the store of a service that has stopped", got)
	}
	eventually(t, func() bool {
		var u unitStatus
		return s.unit.statusInto(&u) && len(u.Hosts) == 0
	}, "the I/O unit without a host")
	s.unit.do("stop")
	for _, service := range []service{s.host, s.unit} {
		for property, want := range map[string]string{"ActiveState": "inactive", "Result": "success", "StatusText": ""} {
			if got := service.show(property); got != want {
				t.Errorf("%s of %s is %q, and not %q", property, service.unit, got, want)
			}
		}
	}
	eventually(t, func() bool { return slices.Equal(testenv.Links(t, ""), before) }, "the netdevices %q; there are %q",
		before, testenv.Links(t, ""))
	if left := s.run("ls", "/run/splitnic"); left != "" {
		t.Errorf("left in /run/splitnic: %s", left)
	}
}

// TestRDMASystemdDevices denies devices to the services, whose error messages have to be explained in
// docs/troubleshooting.md.
func TestRDMASystemdDevices(t *testing.T) {
	s := newServices(t)
	const none = "DeviceAllow=\n"
	for _, c := range []struct{ name, allow string }{
		{"no RDMA device", "DeviceAllow=/dev/net/tun rw\n"},
		{"no tun", "DeviceAllow=char-infiniband* rw\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.host.edit(credential + none + c.allow)
			if out, err := s.try("systemctl", "start", s.host.unit); err == nil {
				t.Errorf("the host has started:\n%s", out)
			}
			s.host.is("ExecMainStatus", strconv.Itoa(exitPermission))
			s.host.do("stop")
			testenv.Ended(t, exitPermission, strings.TrimPrefix(s.host.last("splitnic: "), "splitnic: "))
		})
	}
	t.Run("no macvtap", func(t *testing.T) {
		s.host.edit(credential)
		s.unit.edit("[Service]\n" + none + "DeviceAllow=char-infiniband* rw\n")
		s.unit.do("start")
		s.host.do("start")
		_, reason, _ := strings.Cut(s.unit.last(`msg="host refused"`), " error=")
		reason, err := strconv.Unquote(reason)
		if err != nil {
			t.Fatal(err)
		}
		testenv.Explained(t, reason)
		warnings := s.run("journalctl", "--no-pager", "--output=cat", "--unit="+s.unit.unit, "--priority=warning..warning")
		if !strings.Contains(warnings, `msg="host refused"`) || strings.Contains(warnings, "level=INFO") {
			t.Errorf("the journal's warnings:\n%s", warnings)
		}
	})
}
