package endpoints

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// recipe returns the block of docs/netdevice.md that begins with the path of a file.
func recipe(t *testing.T, path string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/netdevice.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "\n    # "+path+"\n")
	if !found {
		t.Fatalf("the page has no recipe for %s", path)
	}
	var text strings.Builder
	for line := range strings.Lines(block) {
		if line != "\n" && !strings.HasPrefix(line, "    ") {
			break
		}
		text.WriteString(strings.TrimPrefix(line, "    "))
	}
	return text.String()
}

// file writes a file, and makes its directory.
func file(t *testing.T, path string, mode os.FileMode, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// manage runs a network manager for ns, by manager.sh, until the test ends, and returns its process
// ID.
func manage(t *testing.T, ns, dir string, program ...string) (pid int) {
	t.Helper()
	testenv.NeedTools(t, "bash", "ip")
	cmd := testenv.Command(t, ns, "./manager.sh", append([]string{dir}, program...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGKILL) // ends all processes in its PID namespace
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", program[0], &said)
		}
	})
	return cmd.Process.Pid
}

// managed is a host with a netdevice whose addresses are set by a network manager.
type managed struct {
	*shared
	ns   string
	dev  *tap.Device
	cfg  tap.Config
	host *host.Host
	run  *running
	last mirror.Agreement
}

func newManaged(t *testing.T) *managed {
	m := &managed{shared: newShared(t, "macvtap", "default: {macs: any}"), ns: testenv.NetNS(t)}
	testenv.Address(t, m.lanNS, "lan0", "192.0.2.1/24")
	m.cfg = tap.Config{Name: "sn0", NetNS: m.ns, Queues: 1, Offloads: vnet.AllOffloads}
	var err error
	if m.dev, err = tap.Open(m.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.dev.Close() })
	return m
}

// start starts the host.
func (m *managed) start(t *testing.T, h host.History) {
	t.Helper()
	_, m.host, m.run = m.world.host("alpha", func(c *host.Config) {
		c.Netdev, c.KeepCarrier, c.History = host.TAP(m.dev), true, h
		c.OnAgreement = func(a mirror.Agreement) { m.last = a }
	})
	if err := m.dev.Up(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool { return m.host.Status().State == host.Connected }, "the host being connected")
}

// restart lets the next host take over the netdevice, as a restarted service does.
func (m *managed) restart(t *testing.T) {
	t.Helper()
	if err := m.run.stop(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(uintptr(m.dev.Queues()[0].FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if m.dev, err = tap.Adopt(m.cfg, []int{fd}); err != nil {
		t.Fatal(err)
	}
	last := m.last
	m.start(t, host.History{Adopted: m.dev.Label().Adopted, Carrier: true, Agreement: &last})
}

// addressStays uses the address that a manager has set up, across restarts of the host and across a
// loss of the carrier that the manager has noticed, and expects the address to be there all the
// time. activate is called after a host has started.
func (m *managed) addressStays(t *testing.T, activate func(), noticed func(carrier bool) bool) {
	m.start(t, host.History{})
	activate()
	addresses := func() string { return testenv.Run(t, m.ns, "ip", "-4", "-o", "address", "show", "dev", "sn0") }
	testenv.Eventually(t, func() bool { return strings.Contains(addresses(), "192.0.2.10/24") }, "an address of sn0")
	seen, err := os.Create(filepath.Join(t.TempDir(), "addresses"))
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	changes := func() string {
		t.Helper()
		text, err := os.ReadFile(seen.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	monitor := testenv.Command(t, m.ns, "ip", "-4", "-o", "monitor", "address")
	monitor.Stdout = seen
	if err := monitor.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() bool {
		testenv.Run(t, m.ns, "ip", "address", "replace", "127.0.0.2/8", "dev", "lo")
		return changes() != ""
	}, "a monitor of addresses that listens")
	for range 2 {
		if err := transfer(m.ns, m.lanNS, "192.0.2.1", 1, 1<<20); err != nil {
			t.Fatal(err)
		}
		m.restart(t)
		activate()
	}
	for _, carrier := range []bool{false, true} {
		testenv.Eventually(t, func() bool {
			// This is repeated because the host sets the carrier a moment after it has connected.
			if err := m.dev.SetCarrier(carrier); err != nil {
				t.Fatal(err)
			}
			return noticed(carrier)
		}, "the manager noticing carrier %t", carrier)
	}
	if err := transfer(m.ns, m.lanNS, "192.0.2.1", 2, 1<<20); err != nil {
		t.Fatal(err)
	}
	_ = monitor.Process.Kill()
	_ = monitor.Wait()
	if strings.Contains(changes(), "Deleted") || !strings.Contains(addresses(), "192.0.2.10/24") {
		t.Errorf("the address did not stay:\n%s%s", changes(), addresses())
	}
}

// TestNetnsNetworkd sets up the address with systemd-networkd and the documented configuration.
func TestNetnsNetworkd(t *testing.T) {
	const networkd = "/lib/systemd/systemd-networkd"
	testenv.NeedRoot(t)
	testenv.NeedTools(t, networkd)
	m, dir := newManaged(t), t.TempDir()
	file(t, filepath.Join(dir, "networkd/50-sn0.network"), 0o644, recipe(t, "/etc/systemd/network/50-sn0.network"))
	manage(t, m.ns, dir, networkd)
	state := filepath.Join(dir, "netif/links", fmt.Sprint(testenv.Link(t, m.ns, "sn0").Attrs().Index))
	m.addressStays(t, func() {}, func(carrier bool) bool {
		text, err := os.ReadFile(state)
		return err == nil && strings.Contains(string(text), "CARRIER_STATE=no-carrier") != carrier
	})
}

// bus is the configuration of a D-Bus that permits everything to all who can reach its socket.
const bus = `<busconfig><type>system</type><listen>unix:path=%s/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
<allow user="*"/></policy></busconfig>`

// interfaceFlagCarrier is NM_DEVICE_INTERFACE_FLAG_CARRIER of NetworkManager's D-Bus API.
const interfaceFlagCarrier = 0x10000

// TestNetnsNetworkManager sets up the address with NetworkManager and the documented configuration.
// A restart of the host must not change an active connection.
func TestNetnsNetworkManager(t *testing.T) {
	testenv.NeedRoot(t)
	testenv.NeedTools(t, "dbus-daemon", "busctl", "nsenter")
	daemon, nmcli := testenv.Program(t, "usr/sbin/NetworkManager"), testenv.Program(t, "usr/bin/nmcli")
	m, dir := newManaged(t), t.TempDir()
	file(t, filepath.Join(dir, "bus.conf"), 0o600, fmt.Sprintf(bus, dir))
	file(t, filepath.Join(dir, "nm.conf"), 0o600, "[main]\nplugins=keyfile\ndhcp=internal\ndns=none\n"+
		"rc-manager=unmanaged\nsystemd-resolved=false\nauth-polkit=false\nno-auto-default=*\n[keyfile]\npath="+dir+"/connections\n")
	file(t, filepath.Join(dir, "connections/sn0.nmconnection"), 0o600,
		recipe(t, "/etc/NetworkManager/system-connections/sn0.nmconnection"))
	libraries, err := filepath.Glob(filepath.Join(filepath.Dir(daemon), "../lib/*-linux-gnu*"))
	if err != nil || len(libraries) == 0 {
		t.Fatalf("no libraries: %v", err)
	}
	t.Setenv("LD_LIBRARY_PATH", strings.Join(libraries, ":"))
	pid := manage(t, m.ns, dir, daemon, "--no-daemon", "--config", dir+"/nm.conf", "--config-dir", dir+"/none",
		"--system-config-dir", dir+"/none", "--state-file", "/run/nm.state")
	ask := func(command string) (string, error) {
		// NetworkManager looks up the client's process, so this runs in its PID namespace.
		cmd := exec.CommandContext(t.Context(), "nsenter", "--target", fmt.Sprint(pid), "--mount", "--pid", "/bin/sh", "-c",
			command)
		cmd.Env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+dir+"/bus",
			"PATH="+filepath.Dir(nmcli)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	override := recipe(t, "/etc/systemd/system/splitnic-host@sn0.service.d/override.conf")
	_, command, _ := strings.Cut(override, "ExecStartPost=-/bin/sh -c '")
	command, _, found := strings.Cut(strings.ReplaceAll(command, "%i", "sn0"), "'\n")
	if !found {
		t.Fatalf("no command in %q", override)
	}
	testenv.Eventually(t, func() bool {
		_, err := ask("nmcli connection show sn0")
		return err == nil
	}, "NetworkManager having read its connections")
	m.addressStays(t, func() {
		t.Helper()
		if out, err := ask(command); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}, func(carrier bool) bool {
		out, err := ask("busctl --address=$DBUS_SYSTEM_BUS_ADDRESS get-property org.freedesktop.NetworkManager " +
			"$(nmcli -g GENERAL.DBUS-PATH device show sn0) org.freedesktop.NetworkManager.Device InterfaceFlags")
		var flags uint32
		_, scanErr := fmt.Sscanf(out, "u %d", &flags)
		return err == nil && scanErr == nil && flags&interfaceFlagCarrier != 0 == carrier
	})
}

// TestNetnsIfupdown sets up the address with ifup and the documented configuration, as the udev
// rule does when a device appears. A restart of the host must not change an active interface.
// ifupdown has no daemon that could notice the carrier.
func TestNetnsIfupdown(t *testing.T) {
	testenv.NeedRoot(t)
	ifup := testenv.Program(t, "sbin/ifup")
	m, dir := newManaged(t), t.TempDir()
	interfaces := filepath.Join(dir, "interfaces")
	file(t, interfaces, 0o644, recipe(t, "/etc/network/interfaces.d/sn0"))
	m.addressStays(t, func() {
		t.Helper()
		testenv.Run(t, m.ns, ifup, "--interfaces="+interfaces, "--state-dir="+dir, "--no-scripts", "--allow=hotplug", "sn0")
	}, func(bool) bool { return true })
}
