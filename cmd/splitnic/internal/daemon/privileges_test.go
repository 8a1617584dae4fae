package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/tap/steer"
)

func TestPrivileges(t *testing.T) {
	base := caps(unix.CAP_NET_ADMIN, unix.CAP_IPC_LOCK, unix.CAP_SYS_NICE)
	host := base | caps(unix.CAP_NET_BROADCAST, unix.CAP_BPF)
	unit := base | caps(unix.CAP_NET_RAW)
	at := func(change func(*Host)) capSet {
		var c Host
		change(&c)
		return c.privileges().caps
	}
	unitAt := func(change func(*IOUnit)) capSet {
		c := IOUnit{Listen: ":7580", Kind: lan.Packet}
		change(&c)
		return c.privileges().caps
	}
	for name, c := range map[string]struct{ got, want capSet }{
		"host":           {at(func(*Host) {}), host},
		"netns":          {at(func(c *Host) { c.NetNS = "x" }), host | caps(unix.CAP_SYS_ADMIN)},
		"movable":        {at(func(c *Host) { c.Movable = true }), host | caps(unix.CAP_SYS_ADMIN)},
		"latency queue":  {at(func(c *Host) { c.Latency = &steer.Classes{} }), host},
		"vhost-user":     {at(func(c *Host) { c.Port.Path = "/run/vm1" }), host &^ caps(unix.CAP_BPF)},
		"high port":      {at(func(c *Host) { c.Metrics = ":9580" }), host},
		"low port":       {at(func(c *Host) { c.Metrics = ":80" }), host | caps(unix.CAP_NET_BIND_SERVICE)},
		"last low port":  {at(func(c *Host) { c.Metrics = ":1023" }), host | caps(unix.CAP_NET_BIND_SERVICE)},
		"lowest high":    {at(func(c *Host) { c.Metrics = ":1024" }), host},
		"unit":           {unitAt(func(*IOUnit) {}), unit},
		"unit, latency":  {unitAt(func(c *IOUnit) { c.Latency = &steer.Classes{} }), unit | caps(unix.CAP_BPF)},
		"bridge":         {unitAt(func(c *IOUnit) { c.Kind = lan.TAP }), unit | caps(unix.CAP_BPF)},
		"unit, low port": {unitAt(func(c *IOUnit) { c.Listen = "10.0.0.1:443" }), unit | caps(unix.CAP_NET_BIND_SERVICE)},
		"macvtap elsewhere": {
			unitAt(func(c *IOUnit) { c.Kind, c.NetNS = lan.Macvtap, "x" }),
			unit | caps(unix.CAP_BPF, unix.CAP_SYS_ADMIN, unix.CAP_MKNOD),
		},
	} {
		if c.got != c.want {
			t.Errorf("%s: %#x instead of %#x", name, c.got, c.want)
		}
	}
	c := IOUnit{Kind: lan.VhostUser, NIC: "/run/switch,client,mtu=9000"}
	if dirs := c.privileges().dirs; !slices.Contains(dirs, "/run/switch") {
		t.Errorf("directories for the sockets of a switch: %q", dirs)
	}
}

// droppedVar is the environment variable that makes a process of this test drop its privileges
// except those to read the file in the variable.
const droppedVar = "SPLITNIC_TEST_DROP"

// TestMain is this process, or runs the tests.
func TestMain(m *testing.M) {
	path := os.Getenv(droppedVar)
	if path == "" {
		status := m.Run()
		if err := os.RemoveAll(pluginsDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(status)
	}
	if err := dropAndTell(path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dropAndTell drops privileges, prints the status of each thread, and reads the file.
func dropAndTell(path string) error {
	if err := dropPrivileges(privileges{caps: caps(unix.CAP_NET_ADMIN), files: []string{path}}); err != nil {
		return err
	}
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		fmt.Println(string(text))
	}
	_, err = os.ReadFile(path)
	return err
}

// TestNetnsDropPrivileges examines every thread of a process that root has started. It expects
// the needed capabilities, and the one to read another user's file if there is such a file.
func TestNetnsDropPrivileges(t *testing.T) {
	testenv.NeedRoot(t)
	dir := t.TempDir()
	own, others := filepath.Join(dir, "own"), filepath.Join(dir, "others", "file")
	if err := os.Mkdir(filepath.Dir(others), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{own, others} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const nobody = 65534
	if err := os.Chown(filepath.Dir(others), nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]capSet{
		own:    caps(unix.CAP_NET_ADMIN),
		others: caps(unix.CAP_NET_ADMIN, unix.CAP_DAC_OVERRIDE),
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), droppedVar+"="+path)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		effective := 0
		for line := range strings.Lines(string(out)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			value = strings.TrimSpace(value)
			switch key {
			case "NoNewPrivs":
				if value != "1" {
					t.Error("a thread can gain privileges")
				}
			case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
				got, err := strconv.ParseUint(value, 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				if capSet(got)&^want != 0 || key == "CapEff" && capSet(got) != want {
					t.Errorf("%s: %s is %#x instead of %#x", filepath.Base(path), key, got, want)
				}
				if key == "CapEff" {
					effective++
				}
			}
		}
		if effective < 2 {
			t.Errorf("%d threads were looked at", effective)
		}
	}
}

// TestNetnsAsEndpoint expects a check to have the capabilities of an endpoint, and the thread to
// have those of the process again afterwards.
func TestNetnsAsEndpoint(t *testing.T) {
	testenv.NeedRoot(t)
	effective := func() capSet {
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			t.Fatal(err)
		}
		return capSet(data[0].Effective) | capSet(data[1].Effective)<<32
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := effective()
	if err := AsEndpoint(func() error {
		if got, want := effective(), caps(unix.CAP_BPF, unix.CAP_NET_ADMIN); got != want {
			t.Errorf("%#x instead of %#x", got, want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got := effective(); got != before {
		t.Errorf("%#x instead of %#x afterwards", got, before)
	}
}
