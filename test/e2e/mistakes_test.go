package e2e

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// The documented exit statuses.
const (
	exitFailure    = 1
	exitUsage      = 2
	exitMissing    = 3
	exitPermission = 4
	exitKeys       = 5
	exitInUse      = 6
	exitVersion    = 7
)

// mistake is a command line that must fail.
type mistake struct {
	name   string
	args   []string
	status int
	words  []string // words that the error message must have
}

// fails runs the command with the arguments of the mistake. It has to end by itself, with the exit
// status and an error message that has the words.
func (m mistake) fails(t *testing.T, command ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args := append(command[1:len(command):len(command)], testenv.Advanced(t, m.args)...)
	cmd := exec.CommandContext(ctx, command[0], args...)
	cmd.Cancel = func() error { return errors.Join(errStillRuns, cmd.Process.Kill()) }
	var out bytes.Buffer
	cmd.Stderr = &out
	err := cmd.Run()
	if ctx.Err() != nil || errors.Is(err, errStillRuns) {
		t.Fatalf("%q still runs after %v:\n%s", args, patience, &out)
	}
	checkFailure(t, cmd.ProcessState.ExitCode(), out.String(), m.status, m.words...)
}

var errStillRuns = errors.New("still runs")

// write makes a file with the text and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLogWithoutReader starts daemons whose standard error is a pipe without a reader. They have to
// continue, here until they find that the device is missing. They must not end by SIGPIPE: systemd
// takes that for a clean exit and does not restart the service.
func TestLogWithoutReader(t *testing.T) {
	bin := needBinary(t)
	for _, args := range [][]string{
		{"host", "--iounit", "192.0.2.1"},
		{"agent", "--state", t.TempDir()},
		{"iounit", "--lan", "vhost-user:" + t.TempDir()},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, append(args, "--insecure", "--device", "none0")...) // a warning
		cmd.Stderr = w
		err = cmd.Run()
		w.Close()
		if got := cmd.ProcessState.ExitCode(); got != exitMissing {
			t.Errorf("%s ends with %v", args[0], err)
		}
	}
}

// TestStoppedAtStart sends SIGTERM to daemons that still read their configuration, from a pipe. They
// have to end. The signal must not get lost when the program executes itself again with fewer
// privileges.
func TestStoppedAtStart(t *testing.T) {
	bin := needBinary(t)
	const host = "iounit: [192.0.2.1]\n"
	for command, config := range map[string]string{"host": host, "agent": host, "iounit": "lan: eth1\n"} {
		pipe := filepath.Join(t.TempDir(), "pipe.yaml")
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin, command, "--config", pipe, "--insecure")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the daemon has opened the pipe
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_, _ = w.WriteString(config) // fails if the daemon has ended
		w.Close()
		_ = cmd.Wait() // an error, because the daemon ends by the signal
		if ctx.Err() != nil {
			t.Errorf("%s still runs %v after SIGTERM", command, patience)
		}
	}
}

// TestStoppedCheck sends SIGTERM to a check that waits for its file, a pipe. It has to end.
func TestStoppedCheck(t *testing.T) {
	bin := needBinary(t)
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "check", "host", pipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the check has opened the pipe
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // an error, because the check ends by the signal
	if ctx.Err() != nil {
		t.Errorf("it still runs %v after SIGTERM", patience)
	}
}

// TestMistakes runs the program with mistakes that it detects without an RDMA device.
func TestMistakes(t *testing.T) {
	bin, dir := needBinary(t), t.TempDir()
	k := makeKeys(t, dir)
	host := func(args ...string) []string {
		return append([]string{"host", "--iounit", "192.0.2.1", "--key", k.host, "--trust", k.unitPrint}, args...)
	}
	iounit := func(args ...string) []string {
		return append([]string{"iounit", "--key", k.unit, "--trust", k.hostPrint}, args...)
	}
	badKey := write(t, dir, "badkey.yaml", "iounit: 192.0.2.1\nunit-address: 192.0.2.1\n")
	badValue := write(t, dir, "badvalue.yaml", "iounit: 192.0.2.1\nmax-mtu: plenty\n")
	badYAML := write(t, dir, "bad.yaml", "iounit: [192.0.2.1\nname: \"sn0\n")
	notKey := write(t, dir, "notkey.pem", "nothing\n")
	_, certificate := strangersKey(t)
	authority := write(t, dir, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	missing := filepath.Join(dir, "missing")
	openKey := filepath.Join(dir, "open.pem")
	run(t, bin, "keygen", "--out", openKey)
	if err := os.Chmod(openKey, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, m := range []mistake{
		{"unknown command", []string{"hosts"}, exitUsage, []string{"hosts"}},
		{"unknown subcommand", []string{"bench", "bandwidth"}, exitUsage, []string{"bandwidth"}},
		{"unknown flag", host("--speed"), exitUsage, []string{"--speed"}},
		{"mistyped flag", host("--queus", "2"), exitUsage, []string{"--queus", "--queues"}},
		{"time without a unit of a flag", host("--peer-timeout", "5"), exitUsage, []string{"--peer-timeout", "5s"}},
		{"flag that is a key now", host("--qp-timeout", "14"), exitUsage,
			[]string{"advanced.qp-timeout", "splitnic-host(8)"}},
		{"unknown flag of the I/O unit", iounit("--speed"), exitUsage, []string{"--speed"}},
		{"argument", host("sn0"), exitUsage, []string{"sn0"}},
		{"mistyped subcommand", []string{"host", "failovr"}, exitUsage, []string{"failovr", "failover"}},
		{"no I/O unit", []string{"host"}, exitUsage, []string{"--iounit"}},
		{"no name for DNS", []string{"host", "--iounit", "srv:a b"}, exitUsage, []string{"--iounit", `"srv:a b"`}},
		{"empty I/O unit", []string{"host", "--iounit", ""}, exitUsage, []string{"--iounit"}},
		{"no LAN", iounit(), exitUsage, []string{"--lan"}},
		{"unknown kind of LAN", iounit("--lan", "bridge:eth1"), exitUsage, []string{"bridge"}},
		{"LAN without card", iounit("--lan", "macvtap:"), exitUsage, []string{"macvtap:"}},
		{"relative switch", iounit("--lan", "vhost-user:x"), exitUsage, []string{"vhost-user:/DIRECTORY"}},
		{"long switch", iounit("--lan", "vhost-user:/"+strings.Repeat("x", 89)), exitUsage, []string{"89", "90"}},
		{"switch in a namespace", iounit("--lan", "vhost-user:/x", "--netns", "n"), exitUsage, []string{"--netns"}},
		{"missing switch", iounit("--lan", "vhost-user:"+missing), exitMissing, []string{missing, "mkdir -p"}},
		{"switch that is a file", iounit("--lan", "vhost-user:"+notKey), exitMissing, []string{notKey}},
		{"missing card", iounit("--lan", "macvtap:nonic0"), exitMissing, []string{"nonic0"}},
		{"loopback device", iounit("--lan", "lo"), exitUsage, []string{"lo", "Ethernet"}},
		{"not a MAC address", host("--mac", "02:00:5e"), exitUsage, []string{"--mac", "02:00:5e"}},
		{"multicast MAC address", host("--mac", "01:00:5e:00:00:01"), exitUsage, []string{"01:00:5e:00:00:01"}},
		{"no MAC address", host("--mac", "00:00:00:00:00:00"), exitUsage, []string{"00:00:00:00:00:00"}},
		{"MTU too small", host("--max-mtu", "20"), exitUsage, []string{"--max-mtu", "20"}},
		{"MTU is no number", host("--max-mtu", "plenty"), exitUsage, []string{"--max-mtu", "plenty"}},
		{"unknown port", host("--port", "tun"), exitUsage, []string{"--port", "tun"}},
		{"unknown option of a port", host("--port", "vhost-user:/s,x"), exitUsage, []string{"client"}},
		{"relative port", host("--port", "vhost-user:s"), exitUsage, []string{"begin with /"}},
		{"long port", host("--port", "vhost-user:/"+strings.Repeat("x", 107)), exitUsage, []string{"107", "108"}},
		{"zero copy without port", host("--advanced.vhost-zero-copy", "2G"), exitUsage,
			[]string{"advanced.vhost-zero-copy", "--port"}},
		{"port that persists", host("--port", "vhost-user:/s", "--persist"), exitUsage, []string{"--persist", "--port"}},
		{"unknown offload", host("--offloads", "csum,teleport"), exitUsage, []string{"teleport"}},
		{"retries for ever", host("--advanced.qp-retries", "7"), exitUsage, []string{"advanced.qp-retries", "7"}},
		{"timeout", host("--advanced.qp-timeout", "32"), exitUsage, []string{"advanced.qp-timeout", "32"}},
		{"impatience", host("--peer-timeout", "100ms", "--advanced.keep-alive", "200ms"), exitUsage, []string{"100ms"}},
		{"log level", host("--log-level", "loud"), exitUsage, []string{"loud"}},
		{"log format", iounit("--lan", "eth1", "--log-format", "xml"), exitUsage, []string{"xml"}},
		{"max hosts", iounit("--lan", "eth1", "--max-hosts", "0"), exitUsage, []string{"--max-hosts", "0"}},
		{"queues", iounit("--lan", "eth1", "--queues", "-1"), exitUsage, []string{"--queues", "-1"}},
		{"too many queues of a host", host("--queues", "100000"), exitUsage, []string{"--queues", "100000"}},
		{"no queues of a host", host("--queues", "0"), exitUsage, []string{"--queues", "0"}},
		{"insecure with keys", host("--insecure"), exitUsage, []string{"--insecure", "--trust"}},
		{"unit twice", host("--iounit", "192.0.2.1:7580"), exitUsage, []string{"192.0.2.1:7580", "twice"}},
		{"name without authority", host("--iounit-name", "gw1"), exitUsage, []string{"--iounit-name", "--ca"}},
		{"name that cannot be", host("--iounit-name", "gw 1", "--ca", authority), exitUsage,
			[]string{"--iounit-name", "gw 1"}},
		{"not a fingerprint", host("--trust", "sha256:short"), exitUsage, []string{"--trust", "splitnic keygen"}},
		{"no key", []string{"host", "--iounit", "192.0.2.1", "--trust", k.unitPrint, "--key", missing}, exitKeys,
			[]string{missing, "splitnic keygen --out"}},
		{"not a key", []string{"iounit", "--lan", "vhost-user:" + dir, "--trust", k.hostPrint, "--key", notKey}, exitKeys,
			[]string{notKey}},
		{"key that others read", []string{"iounit", "--lan", "vhost-user:" + dir, "--trust", k.hostPrint, "--key", openKey},
			exitKeys, []string{openKey, "chmod 600"}},
		{"neither card nor key", []string{"iounit", "--lan", "nonic0", "--trust", k.hostPrint, "--key", missing}, exitMissing,
			[]string{"nonic0"}},
		{"no list of revoked keys", host("--revoked", missing), exitKeys, []string{missing}},
		{"a list of revoked keys that is none", host("--revoked", notKey), exitKeys, []string{notKey + ":1"}},
		{"nobody to reload", []string{"reload", missing}, exitMissing, []string{missing}},
		{"keygen into an open key", []string{"keygen", "--out", openKey}, exitKeys, []string{openKey, "chmod 600"}},
		{"nobody trusted", []string{"host", "--iounit", "192.0.2.1", "--key", k.host}, exitKeys, []string{"--trust"}},
		{"no trust file", host("--trust-file", missing), exitKeys, []string{missing}},
		{"no authority", host("--ca", missing), exitKeys, []string{missing}},
		{"no configuration", []string{"host", "--config", missing}, exitMissing, []string{missing}},
		{"unknown key in the configuration", []string{"host", "--config", badKey}, exitUsage,
			[]string{badKey, "unit-address"}},
		{"value in the configuration", []string{"host", "--config", badValue}, exitUsage,
			[]string{badValue, "max-mtu", "plenty"}},
		{"broken configuration", []string{"iounit", "--config", badYAML}, exitUsage, []string{badYAML, "2:"}},
		{"nobody to ask for a status", []string{"status", missing}, exitMissing, []string{missing}},
		{"bench that serves nobody", []string{"bench", "bw", "--serve-forever"}, exitUsage,
			[]string{"--serve-forever", "--listen"}},
		{"bench of the other end", []string{"bench", "lat", "--listen", ":0", "--size", "64"}, exitUsage,
			[]string{"--size", "other node"}},
		{"bench without a secret", []string{"bench", "pps", "192.0.2.1"}, exitUsage,
			[]string{"SPLITNIC_BENCH_SECRET", "--secret-file"}},
		{"bench of a bad secret", []string{"bench", "bw", "--secret", "guess", "192.0.2.1"}, exitUsage,
			[]string{"--secret", "20"}},
		{"doctor's peer", []string{"doctor", "--peer", "gateway"}, exitUsage, []string{"gateway"}},
	} {
		t.Run(m.name, func(t *testing.T) { m.fails(t, bin) })
	}
}

// TestConfigurationFile checks that a flag overrides the configuration file, and the file the
// default. It uses values that are refused, so that the error message has the value in use.
func TestConfigurationFile(t *testing.T) {
	bin, dir := needBinary(t), t.TempDir()
	file := write(t, dir, "host.yaml", "iounit: [192.0.2.1, 192.0.2.2]\nmax-mtu: 21\n")
	mistake{"file", []string{"host", "--config", file}, exitUsage, []string{"--max-mtu 21"}}.fails(t, bin)
	mistake{"flag", []string{"host", "--config", file, "--max-mtu", "22"}, exitUsage, []string{"--max-mtu 22"}}.fails(t,
		bin)
}

// TestRDMAMistakes runs the program with mistakes on a machine that has RDMA devices, beside a host
// and an I/O unit that must not be affected.
func TestRDMAMistakes(t *testing.T) {
	testenv.NeedTools(t, "setpriv")
	r := newFixture(t, "macvtap")
	h := r.host(t)
	bin, free := r.bin, testenv.NetNS(t)
	host := func(args ...string) []string {
		return append([]string{
			"host", "--iounit", unitAddress, "--device", hostDevice, "--netns", free, "--host-name", "other",
			"--key", r.keys.host, "--trust", r.keys.unitPrint, "--status-socket", filepath.Join(t.TempDir(), "status"),
		}, args...)
	}
	iounit := func(args ...string) []string {
		return append([]string{
			"iounit", "--device", unitDevice, "--listen", unitAddress + ":7581", "--lan", "macvtap:eth1", "--netns", r.card,
			"--key", r.keys.unit, "--trust", r.keys.hostPrint, "--status-socket", filepath.Join(t.TempDir(), "status"),
		}, args...)
	}
	stranger := makeKeys(t, t.TempDir())
	run(t, "ip", "-n", free, "link", "add", "taken0", "type", "dummy")
	run(t, "ip", "-n", r.card, "link", "add", "eth2", "type", "dummy")
	for _, m := range []mistake{
		{"missing device", host("--device", "nodev0"), exitMissing, []string{"nodev0"}},
		{"missing device of the I/O unit", iounit("--lan", "eth2", "--device", "nodev0"), exitMissing, []string{"nodev0"}},
		{"which device", host("--device", ""), exitUsage, []string{"--device", hostDevice}},
		{"missing network namespace", host("--netns", "nons"), exitMissing, []string{"nons"}},
		{"missing network namespace of the I/O unit", iounit("--netns", "nons"), exitMissing, []string{"nons"}},
		{"name too long", host("--name", "a-name-too-long-for-linux"), exitUsage, []string{"a-name-too-long-for-linux"}},
		{"name in use", host("--name", "taken0"), exitInUse, []string{"taken0"}},
		{"name in use by another host", host("--netns", h.ns), exitInUse, []string{"sn0"}},
		{"port in use", iounit("--lan", "eth2", "--listen", unitAddress), exitInUse, []string{unitAddress + ":7580"}},
		{"card in use", iounit(), exitInUse, []string{"eth1"}},
		{"card in use another way", iounit("--lan", "packet:eth1"), exitInUse, []string{"eth1"}},
		{"address of another machine", iounit("--lan", "eth2", "--listen", "192.0.2.1:7580"), exitFailure,
			[]string{"192.0.2.1:7580"}},
		{"status socket in use", host("--status-socket", h.sock), exitInUse, []string{h.sock}},
		{"metrics port in use", host("--metrics", unitAddress+":7580"), exitInUse, []string{unitAddress + ":7580"}},
		{"I/O unit's key is not trusted", []string{
			"host", "--iounit", unitAddress, "--device", hostDevice, "--netns", free, "--status-socket", filepath.Join(
				t.TempDir(), "status"),
			"--key", r.keys.host, "--trust", stranger.unitPrint,
		}, exitKeys, []string{unitAddress, r.keys.unitPrint}},
		{"host's key is not trusted", host("--key", stranger.host), exitKeys, []string{unitAddress, stranger.hostPrint}},
		{"only the host is insecure", []string{
			"host", "--iounit", unitAddress, "--device", hostDevice, "--netns", free, "--status-socket", filepath.Join(
				t.TempDir(), "status"),
			"--insecure",
		}, exitKeys, []string{unitAddress, "--insecure"}},
	} {
		t.Run(m.name, func(t *testing.T) { m.fails(t, bin) })
	}
	without := func(capability string) []string { return []string{"setpriv", "--bounding-set", "-" + capability, bin} }
	for _, m := range []struct {
		mistake
		capability string
	}{
		{mistake{"host without CAP_NET_ADMIN", host("--name", "sn9"), exitPermission, []string{"CAP_NET_ADMIN"}},
			"net_admin"},
		{mistake{"host without CAP_SYS_ADMIN", host("--name", "sn9"), exitPermission, []string{"CAP_SYS_ADMIN"}},
			"sys_admin"},
		// The I/O unit needs the capability when a host connects, but has to report it at its start.
		{mistake{"I/O unit without CAP_NET_ADMIN", iounit("--lan", "eth2"), exitPermission,
			[]string{"CAP_NET_ADMIN", "eth2"}}, "net_admin"},
		{mistake{"I/O unit without CAP_NET_RAW", iounit("--lan", "packet:eth2"), exitPermission,
			[]string{"CAP_NET_RAW", "eth2"}}, "net_raw"},
	} {
		t.Run(m.name, func(t *testing.T) { m.fails(t, without(m.capability)...) })
	}
	t.Run("locked memory", func(t *testing.T) {
		testenv.NeedTools(t, "prlimit")
		command := append([]string{"prlimit", "--memlock=65536"}, without("ipc_lock")...)
		mistake{"", host("--name", "sn9"), exitPermission, []string{"CAP_IPC_LOCK"}}.fails(t, command...)
	})
	if names := links(t, free); len(names) != 1 {
		t.Errorf("what failed left devices: %v", names)
	}
	if u := r.unit.unitStatus(); len(u.Hosts) != 1 || u.Refused == 0 {
		t.Errorf("the I/O unit has %d hosts and refused %d", len(u.Hosts), u.Refused)
	}
	if s := h.hostStatus(); s.Sessions != 1 {
		t.Errorf("the mistakes of others ended the session of a host: %d sessions", s.Sessions)
	}
	ping(t, h.ns, addr(0), 2, 56)
}

// TestRDMAUnreachable starts a host whose I/O unit does not exist. The host has to keep trying, with
// the error in its status and a netdevice without carrier.
func TestRDMAUnreachable(t *testing.T) {
	bin, dir := needFabric(t), t.TempDir()
	k := makeKeys(t, dir)
	ns := testenv.NetNS(t)
	const nobody = "10.199.0.1:7599"
	d := start(t, bin, filepath.Join(dir, "host.sock"), filepath.Join(dir, "host.log"),
		"host", "--iounit", nobody, "--device", hostDevice, "--netns", ns, "--key", k.host, "--trust", k.unitPrint)
	var s hostStatus
	eventually(t, func() bool {
		if !d.running() {
			t.Fatal("the host gave up")
		}
		s = d.hostStatus()
		return strings.Contains(s.LastError, nobody)
	}, "a status with the error")
	if s.State != "connecting" || s.Sessions != 0 || s.Netdevice.Carrier || s.IOUnit.Address != nobody {
		t.Errorf("the status says %+v", s)
	}
	if testenv.Link(t, ns, "sn0") == nil || carrier(t, ns, "sn0") {
		t.Error("sn0 should be there, without carrier")
	}
	if took := d.stop(); !inTime(t, bin, took, time.Second) {
		t.Errorf("it ended %v after SIGTERM", took)
	}
}
