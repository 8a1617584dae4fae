package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/verbs"
)

// one returns the only finding of a report, which has to be documented.
func one(t *testing.T, r report) finding {
	t.Helper()
	if len(r) != 1 {
		t.Fatalf("%d findings: %+v", len(r), r)
	}
	testenv.Explained(t, strings.TrimSpace(r[0].Check+" "+r[0].Found))
	return r[0]
}

func TestDoctorKernel(t *testing.T) {
	for release, want := range map[string]string{
		"6.1.0-56-amd64": "ok", "7.2.13": "ok", "10.0": "ok", "6.0.19": "warning", "5.15.0-91-generic": "warning",
		"plan9": "warning",
	} {
		var r report
		checkKernel(&r, release)
		if f := one(t, r); f.Status != want || !strings.Contains(f.Found, release) {
			t.Errorf("%s: %+v", release, f)
		}
	}
}

// tree makes files with these contents below a new directory, and returns the directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDoctorIOMMU(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"none in use":            {},
		"no device is behind it": {"class/iommu/dmar0": ""},
		"3 groups of devices (DMA-FQ 2, identity 1)": {"class/iommu/dmar0": "", "kernel/iommu_groups/0/type": "DMA-FQ\n",
			"kernel/iommu_groups/1/type": "identity\n", "kernel/iommu_groups/2/type": "DMA-FQ\n"},
	} {
		var r report
		checkIOMMU(&r, tree(t, files))
		if f := one(t, r); f.Status != "ok" || !strings.Contains(f.Found, want) {
			t.Errorf("%+v, want %q", f, want)
		}
	}
}

func TestDoctorMacvtap(t *testing.T) {
	for _, c := range []struct {
		lan, file, text, want string
	}{
		{"", "class/macvtap/tap7/dev", "", "ok"},
		{"eth1", "modules.dep", "kernel/drivers/net/macvtap.ko.xz: kernel/drivers/net/macvlan.ko.xz\n", "ok"},
		{"macvtap:eth1", "modules.builtin", "kernel/drivers/net/macvtap.ko\n", "ok"},
		{"eth1", "modules.dep", "kernel/drivers/net/macvlan.ko:\n", "error"},
		{"eth1", "other", "", "warning"},
		{"tap:br0", "modules.dep", "", ""},
	} {
		dir := tree(t, map[string]string{c.file: c.text})
		var r report
		checkModule(&r, c.lan, dir, dir)
		if c.want == "" {
			if len(r) > 0 {
				t.Errorf("%s: %+v", c.lan, r)
			}
			continue
		}
		if f := one(t, r); f.Status != c.want {
			t.Errorf("%s, %s: %+v", c.lan, c.file, f)
		}
	}
}

// TestDoctorReach connects to an I/O unit that exists, and to two that do not.
func TestDoctorReach(t *testing.T) {
	ln, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	gone, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for addr, want := range map[string]string{
		ln.Addr().String(): "ok", gone.Addr().String(): "error", "no-such-host.invalid": "error",
	} {
		var r report
		checkReach(t.Context(), &r, addr)
		f := one(t, r)
		if f.Status != want || !strings.Contains(f.Found, addr) || (want == "error") != (f.status == exit.Missing) {
			t.Errorf("%s: %+v", addr, f)
		}
	}
}

// TestDoctorDNS connects to the I/O units of a DNS answer, at most to mostReached of them.
func TestDoctorDNS(t *testing.T) {
	ln, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := netip.MustParseAddrPort(ln.Addr().String())
	unit := discovery.Record{Target: at.Addr().String(), Port: at.Port()}
	for _, c := range []struct {
		answer   discovery.Answer
		err      error
		findings int // besides the first one
		status   string
	}{
		{discovery.Answer{Records: []discovery.Record{unit}, TTL: time.Minute, Skipped: 1}, nil, 1, "ok"},
		{discovery.Answer{Records: manyRecords(unit)}, nil, mostReached, "ok"},
		{discovery.Answer{}, errors.New("SRV records of x: the name does not exist"), 0, "error"},
	} {
		var r report
		checkUnit(t.Context(), &r, "srv:x", func(_ context.Context, name string) (discovery.Answer, error) {
			if name != "x" {
				t.Errorf("asked for %s", name)
			}
			return c.answer, c.err
		})
		if f := one(t, r[:1]); f.Status != c.status || len(r) != 1+c.findings {
			t.Errorf("%+v", r)
		}
	}
}

// manyRecords returns twice mostReached records: unit, and the same with lower ports.
func manyRecords(unit discovery.Record) (list []discovery.Record) {
	for range 2 * mostReached {
		list = append(list, unit)
		unit.Port--
	}
	return list
}

func TestDoctorLAN(t *testing.T) {
	var r report
	if mtu := checkLAN(&r, "packet:snnone0", ""); mtu != usualMTU {
		t.Errorf("mtu %d", mtu)
	}
	if f := one(t, r); f.Status != "error" || f.status != exit.Missing || !strings.Contains(f.Found, "snnone0") {
		t.Errorf("%+v", f)
	}
	r = nil
	framesText(&r, "rxe0", 1024, 9000)
	if f := r[0]; f.Status != "ok" || !strings.Contains(f.Found, "9024 bytes is 9 packets") {
		t.Errorf("%+v", f)
	}
	framesText(&r, "rxe0", 4096, 1500)
	if f := r[1]; !strings.Contains(f.Found, "1524 bytes is 1 packet of") {
		t.Errorf("%+v", f)
	}
}

// TestDoctorChoosesADevice expects a role that uses one device to have one chosen.
func TestDoctorChoosesADevice(t *testing.T) {
	two := []verbs.DeviceInfo{{Name: "rxe0"}, {Name: "rxe1"}}
	for _, c := range []struct {
		role    string
		devices []verbs.DeviceInfo
		missing bool
	}{
		{"host", two, true}, {"iounit", two, true}, {"agent", two, false}, {"host", two[:1], false}, {"host", nil, false},
	} {
		var r report
		(&plannedRole{role: c.role}).choose(&r, c.devices)
		if len(r) > 0 != c.missing || c.missing && (r[0].Status != "error" || !strings.Contains(r[0].Fix, "rxe0|rxe1")) {
			t.Errorf("%s with %d devices: %+v", c.role, len(c.devices), r)
		}
	}
}

func TestDoctorMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"--role both":                     `--role "both": must be host, agent or iounit`,
		"--role host --lan eth1":          "--lan and --netns are for --role iounit",
		"--iounit 10.0.0.1":               "--iounit is for --role host or agent",
		"--role iounit --lan odd:eth1":    `unknown kind "odd"`,
		"--role host --iounit srv:a..b":   `"srv:a..b" is not a DNS name`,
		"--self-test --report x":          "--self-test and --report: give one of them",
		"--role iounit --iounit 10.0.0.1": "--iounit is for --role host",
	} {
		err := execute(t, append([]string{"doctor"}, strings.Fields(line)...)...)
		if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
			continue
		}
		testenv.Ended(t, exit.Usage, err.Error())
	}
	for _, role := range []string{"host", "agent"} {
		if err := (&plannedRole{role: role, iounits: []string{"10.0.0.1"}}).check(); err != nil {
			t.Errorf("an I/O unit of a planned %s: %v", role, err)
		}
	}
}
