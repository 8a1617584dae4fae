package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// packagesDir is the output directory of deploy/packages/prepare.
const packagesDir = "../../build/packages-test"

// newCleanMachine makes a machine with a clean root directory of Debian, which has both versions of
// the packages in /packages. It boots systemd if systemd is true.
func newCleanMachine(t testing.TB, systemd bool) *machine {
	t.Helper()
	testenv.NeedRoot(t)
	testenv.NeedTools(t, "bash", "nsenter", "pivot_root", "unshare")
	root, err := filepath.EvalSymlinks(filepath.Join(packagesDir, "root"))
	if err != nil {
		testenv.Missing(t, "splitnic", "what deploy/packages/prepare makes is missing: %v", err)
	}
	packages, err := filepath.Abs(packagesDir)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{t.TempDir(), root, packages}
	if systemd {
		args = append(args, newControlGroup(t))
	}
	m := startMachine(t, "./clean.sh", args...)
	if systemd {
		m.booted()
	} else {
		m.comesUp("sh", "-c", "[ -e /packages/new ] && [ ! -e /upper ]")
	}
	return m
}

// packageFile returns the file name of the package of a version, for this machine's architecture.
func packageFile(t testing.TB, version, extension string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(packagesDir, version, "*."+extension))
	if err != nil || len(names) != 1 {
		t.Fatalf("the packages are %q: %v", names, err)
	}
	return filepath.Base(names[0])
}

// apt runs an apt command as a user types it, in the directory of a version's packages, and returns
// its output. Standard input is empty, so that questions are not answered.
func (m *machine) apt(version, command string) string {
	m.t.Helper()
	return m.run("sh", "-c", "cd /packages/"+version+" && exec "+command+" </dev/null")
}

// typed matches the commands in README.md that a user types, with the machine for each.
var typed = regexp.MustCompile(`(?m)^    (unit|host)# (.*?)(?:  +# .*)?$`)

// anyPackage matches the name of a package, in README.md that of some checkout.
var anyPackage = regexp.MustCompile(`splitnic_\S+\.deb`)

// announced matches the message of a package that has made a key. Lines of apt may end with CR LF, as
// in a terminal.
var announced = regexp.MustCompile(`(?m)^splitnic: the fingerprint of this machine's key is (sha256:\S+)\s`)

// TestPackagesReadme runs the commands of README.md from the installation of the packages to the
// first ping. All have to succeed.
func TestPackagesReadme(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := typed.FindAllStringSubmatch(string(text), -1)
	if len(commands) == 0 || len(commands) > 6 {
		t.Fatalf("README.md has %d commands from the packages to a ping: %q", len(commands), commands)
	}
	needFabric(t)
	lan := testenv.NetNS(t)
	testenv.Veth(t, "", "eth1", lan, "lan0")
	testenv.Address(t, lan, "lan0", addr(0)+"/24")
	machines := map[string]*machine{"unit": newCleanMachine(t, false), "host": newCleanMachine(t, false)}
	devices := map[string]string{"unit": unitDevice, "host": hostDevice}
	// Pairs of a text in README.md and its replacement at this site.
	here := []string{"10.0.0.1", unitAddress, "192.0.2.10/24", addr(1) + "/24", "192.0.2.1", addr(0)}
	pings := 0
	for _, c := range commands {
		on, command := c[1], c[2]
		m := machines[on]
		command = strings.NewReplacer(append(here, "mlx5_0", devices[on])...).Replace(command)
		command = anyPackage.ReplaceAllLiteralString(command, packageFile(t, "new", "deb"))
		t.Logf("%s# %s", on, command)
		switch words := strings.Fields(command); words[0] {
		case "apt":
			out := m.apt("new", command)
			found := announced.FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("the package does not say the fingerprint of the key:\n%s", out)
			}
			here = append(here, "sha256:"+strings.ToUpper(on), found[1])
		case "splitnic":
			m.foreground(on, words)
		case "ip":
			m.comesUp("ip", "link", "show", "sn0")
			m.run(words...)
		case "ping":
			var h hostStatus
			s := service{m, "", "/run/splitnic/host-sn0.sock"}
			eventually(t, func() bool { return s.statusInto(&h) && h.State == "connected" }, "a session")
			m.run(words...)
			pings++
		default:
			t.Errorf("README.md has the command %q, which nobody here can type", command)
		}
	}
	if pings != 1 {
		t.Errorf("README.md has %d pings at the end", pings)
	}
}

// foreground starts a command on the machine, as in another terminal. The command is ended when the
// test ends.
func (m *machine) foreground(name string, words []string) {
	m.t.Helper()
	said, err := os.Create(filepath.Join(m.t.TempDir(), name))
	if err != nil {
		m.t.Fatal(err)
	}
	defer said.Close()
	args := []string{"--target", strconv.Itoa(m.pid), "--mount", "--uts", "--ipc", "--pid", "--root", "--wd", "--", "sh",
		"-c", `echo $$ >/run/` + name + `.pid && exec "$@"`, "-"}
	cmd := exec.Command("nsenter", append(args, words...)...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if out, err := m.try("sh", "-c", "kill $(cat /run/"+name+".pid)"); err != nil {
			m.t.Errorf("%q cannot be ended: %v: %s", words, err, out)
			_ = cmd.Process.Kill()
		}
		err := cmd.Wait()
		text, _ := os.ReadFile(said.Name())
		if err != nil || m.t.Failed() {
			m.t.Errorf("%q: %v\n%s", words, err, text)
		}
	})
}

// TestPackagesLife installs, upgrades, downgrades, removes and purges the .deb. A TCP connection
// through the netdevice has to survive the upgrade and the downgrade.
func TestPackagesLife(t *testing.T) {
	needFabric(t)
	m := newCleanMachine(t, true)
	before := testenv.Links(t, "")
	s := &services{machine: m, lan: testenv.NetNS(t)}
	s.host = service{m, "splitnic-host@sn0.service", "/run/splitnic/host-sn0.sock"}
	s.unit = service{m, "splitnic-iounit.service", "/run/splitnic/iounit-7580.sock"}
	both := []service{s.host, s.unit}
	testenv.Veth(t, "", "sneth1", s.lan, "lan0")
	testenv.Address(t, s.lan, "lan0", addr(0)+"/24")
	oldDeb, newDeb := "./"+packageFile(t, "old", "deb"), "./"+packageFile(t, "new", "deb")

	m.apt("old", "apt install "+oldDeb)
	for _, svc := range both {
		if out, _ := m.try("systemctl", "is-enabled", svc.unit); strings.TrimSpace(out) != "disabled" {
			t.Errorf("after the installation %s is %s", svc.unit, out)
		}
		if got := svc.show("ActiveState"); got != "inactive" {
			t.Errorf("after the installation %s is %s", svc.unit, got)
		}
	}
	key := m.run("splitnic", "keygen")
	s.write("/etc/splitnic/hosts", "machine="+key)
	s.write("/etc/splitnic/iounits", "unit="+key)
	s.write("/etc/splitnic/iounit.yaml", unitConfig)
	s.write("/etc/splitnic/sn0.yaml", hostConfig)
	s.write("/etc/splitnic/policy.yaml", "# of the administrator\n")
	s.host.do("enable", "--now")
	s.unit.do("enable", "--now")
	t.Cleanup(func() { _, _ = s.try("systemctl", "stop", s.host.unit, s.unit.unit) })
	s.connected()
	testenv.Address(t, "", "sn0", addr(1)+"/24")
	stream := startStreaming(t, s.lan, "", 20*time.Millisecond)
	stream.proceeds(t)
	want := setting(t, "")

	installed := func(svc service) bool {
		_, err := m.try("cmp", "--quiet", "/proc/"+svc.show("MainPID")+"/exe", "/usr/bin/splitnic")
		return err == nil
	}
	replace := func(t *testing.T, version, command string) {
		pids := []string{s.host.show("MainPID"), s.unit.show("MainPID")}
		out := m.apt(version, command)
		stream.proceeds(t)
		if got := []string{s.host.show("MainPID"), s.unit.show("MainPID")}; !slices.Equal(got, pids) {
			t.Errorf("the processes were %q, and are %q once the package is there", pids, got)
		}
		if installed(s.host) || installed(s.unit) {
			t.Errorf("the services run the new program before they are restarted")
		}
		if got := m.run("cat", "/etc/splitnic/sn0.yaml"); got != hostConfig {
			t.Errorf("the configuration has become %q", got)
		}
		if got := m.run("splitnic", "keygen"); got != key {
			t.Errorf("the key was %s and is %s", key, got)
		}
		if strings.Contains(out, "fingerprint") {
			t.Errorf("a key is announced again:\n%s", out)
		}
		// Run the command that the package prints.
		said := regexp.MustCompile(`(?m)^splitnic:   (systemctl restart .*?)\s*$`).FindStringSubmatch(out)
		if said == nil {
			t.Fatalf("the package does not say how to change over:\n%s", out)
		}
		m.run(strings.Fields(said[1])...)
		s.connected()
		stream.proceeds(t)
		if got := setting(t, ""); got != want {
			t.Errorf("sn0 was\n%sand is\n%s", want, got)
		}
		for i, svc := range both {
			if got := svc.show("MainPID"); got == pids[i] {
				t.Errorf("%s goes on with the old program after %s", svc.unit, said[1])
			}
			if !installed(svc) {
				t.Errorf("%s runs another program than the installed one after %s", svc.unit, said[1])
			}
		}
	}
	t.Run("upgrade", func(t *testing.T) {
		replace(t, "new", "apt install "+newDeb)
		if got := m.run("splitnic", "version"); got != "splitnic version v0.1.0\n" {
			t.Errorf("it says %s", got)
		}
	})
	t.Run("downgrade", func(t *testing.T) {
		replace(t, "old", "apt install --assume-yes --allow-downgrades "+oldDeb)
		if got := m.run("splitnic", "version"); got != "splitnic version v0.0.9\n" {
			t.Errorf("it says %s", got)
		}
	})
	t.Logf("%d bytes, all of them right, in one connection", stream.finish(t))

	links := func() string { return m.run("find", "/etc/systemd/system", "-name", "splitnic*") }
	t.Run("remove", func(t *testing.T) {
		m.run("apt", "remove", "--assume-yes", "splitnic")
		for _, svc := range both {
			if got := svc.show("ActiveState"); got != "inactive" {
				t.Errorf("%s is %s without its program", svc.unit, got)
			}
		}
		eventually(t, func() bool { return len(testenv.Links(t, "")) == len(before)+1 }, "netdevices to go; there are %q",
			testenv.Links(t, ""))
		if out, err := m.try("ls", "/usr/bin/splitnic"); err == nil {
			t.Errorf("there still is %s", out)
		}
		if got := m.run("cat", "/etc/splitnic/sn0.yaml"); got != hostConfig {
			t.Errorf("the configuration has become %q", got)
		}
		if links() == "" {
			t.Error("services are disabled, although the configuration is kept")
		}
	})
	t.Run("again", func(t *testing.T) {
		m.apt("new", "apt install "+newDeb)
		if got := m.run("splitnic", "keygen"); got != key {
			t.Errorf("the key was %s and is %s", key, got)
		}
	})
	t.Run("purge", func(t *testing.T) {
		m.run("apt", "purge", "--assume-yes", "splitnic")
		out, _ := m.try("find", "/etc/splitnic", "/run/splitnic", "/usr/bin/splitnic", "/usr/share/doc/splitnic", "-type",
			"f")
		left := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return !strings.HasPrefix(line, "/") })
		if !slices.Equal(left, []string{"/etc/splitnic/policy.yaml"}) {
			t.Errorf("left after a purge: %q", left)
		}
		if got := links(); got != "" {
			t.Errorf("left after a purge: %s", got)
		}
		if out, err := m.try("dpkg", "--status", "splitnic"); err == nil {
			t.Errorf("dpkg knows\n%s", out)
		}
	})
}

// TestPackagesRPM installs, upgrades, downgrades and removes the .rpm with Debian's rpm.
func TestPackagesRPM(t *testing.T) {
	m := newCleanMachine(t, false)
	rpm := func(args ...string) string {
		// rpm does not know the packages that dpkg has installed, so dependencies are not checked.
		return m.run(append([]string{"rpm", "--nodeps", "--force-debian"}, args...)...)
	}
	file := func(version string) string { return "/packages/" + version + "/" + packageFile(t, version, "rpm") }
	exists := func(path string) bool {
		_, err := os.Lstat(filepath.Join(m.root, path))
		return err == nil
	}
	out := rpm("--install", file("old"))
	key := strings.TrimSpace(m.run("splitnic", "keygen"))
	if !strings.Contains(out, "the fingerprint of this machine's key is "+key) {
		t.Errorf("the package does not say the fingerprint of the key, %s:\n%s", key, out)
	}
	m.write("/etc/splitnic/sn0.yaml", hostConfig)
	const enabled = "/etc/systemd/system/multi-user.target.wants/splitnic-host@sn0.service"
	m.run("systemctl", "enable", "splitnic-host@sn0.service")
	if !exists(enabled) {
		t.Fatalf("there is no %s", enabled)
	}
	for _, c := range []struct{ how, version, says string }{
		{"--upgrade", "new", "splitnic version v0.1.0\n"},
		{"--upgrade --oldpackage", "old", "splitnic version v0.0.9\n"},
	} {
		out := rpm(append(strings.Fields(c.how), file(c.version))...)
		if strings.Contains(out, "fingerprint") {
			t.Errorf("a key is announced again:\n%s", out)
		}
		if got := m.run("splitnic", "version"); got != c.says {
			t.Errorf("after %s it says %q", c.how, got)
		}
		if got := strings.TrimSpace(m.run("splitnic", "keygen")); got != key {
			t.Errorf("the key was %s and is %s", key, got)
		}
		if got := m.run("cat", "/etc/splitnic/sn0.yaml"); got != hostConfig {
			t.Errorf("the configuration has become %q", got)
		}
		if !exists(enabled) {
			t.Errorf("a service is disabled by %s", c.how)
		}
	}
	rpm("--erase", "splitnic")
	for path, want := range map[string]bool{
		"/usr/bin/splitnic": false, "/usr/lib/systemd/system/splitnic-iounit.service": false, enabled: false,
		"/etc/splitnic/key.pem": true, "/etc/splitnic/sn0.yaml.rpmsave": true, "/etc/splitnic/sn0.yaml": false,
	} {
		if exists(path) != want {
			t.Errorf("%s: there is %v, and not %v", path, !want, want)
		}
	}
}
