package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestErrdoc runs the program with mistakes of new users in flags and files that it detects without
// an RDMA device. docs/troubleshooting.md has to explain each error message.
func TestErrdoc(t *testing.T) {
	bin, dir := needBinary(t), t.TempDir()
	k := makeKeys(t, dir)
	host := func(args ...string) []string {
		return append([]string{"host", "--iounit", "192.0.2.1", "--key", k.host, "--trust", k.unitPrint}, args...)
	}
	keyed := func(key string) []string {
		return []string{"host", "--iounit", "192.0.2.1", "--key", key, "--trust", k.unitPrint}
	}
	iounit := func(args ...string) []string {
		return append([]string{"iounit", "--lan", "nonic0", "--key", k.unit, "--trust", k.hostPrint}, args...)
	}
	policy := func(name, text string) []string { return iounit("--policy", write(t, dir, name, text)) }
	config := func(name, text string) []string { return []string{"host", "--config", write(t, dir, name, text)} }
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	other, certificate := strangersKey(t)
	missing := filepath.Join(dir, "missing")
	empty := write(t, dir, "empty", "")
	text, err := os.ReadFile(k.host)
	if err != nil {
		t.Fatal(err)
	}
	readable := write(t, dir, "readable.pem", string(text))
	if err := os.Chmod(readable, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, m := range []mistake{
		{"key is a directory", keyed(dir), exitKeys, nil},
		{"key is empty", keyed(empty), exitKeys, nil},
		{"key for all to read", keyed(readable), exitKeys, nil},
		{"key is damaged", keyed(write(t, dir, "damaged.pem", block("PRIVATE KEY", []byte{1, 2, 3}))), exitKeys, nil},
		{"key of another format", keyed(write(t, dir, "ec.pem", block("EC PRIVATE KEY", other))), exitKeys, nil},
		{"key of another kind", keyed(write(t, dir, "p256.pem", block("PRIVATE KEY", other))), exitKeys, nil},
		{"keygen into a directory", []string{"keygen", "--out", dir}, exitKeys, nil},
		{"keygen below a file", []string{"keygen", "--out", filepath.Join(empty, "key.pem")}, exitKeys, nil},
		{"keygen where nothing can be made", []string{"keygen", "--out", "/proc/none/key.pem"}, exitMissing, nil},

		{"directory of the socket is missing", host("--status-socket", missing+"/x.sock"), exitMissing,
			[]string{"--status-socket", "mkdir -p " + missing}},
		{"directory of the state is missing", host("--state", missing), exitMissing, []string{"mkdir -p " + missing}},
		{"directory of an I/O unit's socket is missing", iounit("--status-socket", missing+"/x.sock"), exitMissing,
			[]string{"--status-socket", "mkdir -p " + missing}},

		{"alias in the configuration", config("alias.yaml", "iounit: *a\n"), exitUsage, []string{"quotation marks"}},

		{"certificate is missing", host("--cert", missing), exitKeys, nil},
		{"certificate is none", host("--cert", empty), exitKeys, nil},
		{"certificate is damaged", host("--cert", write(t, dir, "damaged.crt", block("CERTIFICATE", []byte{1}))), exitKeys,
			nil},
		{"certificate of another key", host("--cert", write(t, dir, "other.crt", block("CERTIFICATE", certificate))),
			exitKeys, nil},
		{"authority is none", host("--ca", empty), exitKeys, nil},
		{"trust file is a directory", host("--trust-file", dir), exitKeys, nil},
		{"trust file with rubbish", host("--trust-file", write(t, dir, "trust", "# hosts\nalpha\n")), exitKeys, nil},
		{"not a fingerprint", []string{"host", "--iounit", "192.0.2.1", "--key", k.host, "--trust", "x"}, exitUsage, nil},
		{"name of a trusted key", host("--trust", "a b="+k.unitPrint), exitUsage, nil},
		{"trusted under two names", host("--trust", "b="+k.hostPrint, "--trust", "c="+k.hostPrint), exitUsage, nil},
		{"the program's whole file for a trust file", host("--trust-file", bin), exitKeys, nil},

		{"configuration is a directory", []string{"host", "--config", dir}, exitUsage, nil},
		{"configuration is a program", []string{"host", "--config", bin}, exitUsage, nil},
		{"configuration is empty", []string{"host", "--config", empty}, exitUsage, nil},
		{"configuration is a list", config("list.yaml", "- iounit\n"), exitUsage, nil},
		{"configuration of two documents", config("two.yaml", "iounit: 192.0.2.1\n---\nname: sn1\n"), exitUsage, nil},
		{"configuration with a mistyped key", config("mistyped.yaml", "iounit: 192.0.2.1\nnam: sn1\n"), exitUsage, nil},
		{"configuration without a value", config("novalue.yaml", "iounit: 192.0.2.1\nmetrics:\n"), exitUsage, nil},

		{"metrics' file without metrics", host("--metrics-config", empty), exitUsage, nil},
		{"metrics' file is missing", host("--metrics", "127.0.0.1:0", "--metrics-config", missing), exitMissing, nil},
		{"metrics' file with a mistake", host("--metrics", "127.0.0.1:0", "--metrics-config",
			write(t, dir, "web.yml", "tls: yes\nusers: no\n")), exitUsage, nil},

		{"policy is missing", iounit("--policy", missing), exitMissing, nil},
		{"policy is a directory", iounit("--policy", dir), exitUsage, nil},
		{"policy is no YAML", policy("noyaml.yaml", "hosts: [\n"), exitUsage, nil},
		{"policy is empty", policy("empty.yaml", "\n"), exitUsage, nil},
		{"policy is a list", policy("list.yaml", "- a\n- b\n"), exitUsage, nil},
		{"policy with an unknown key", policy("key.yaml", "guests:\n  a: {}\n"), exitUsage, nil},
		{"policy with an unknown word", policy("word.yaml", "default:\n  mtu: 1500\n"), exitUsage, nil},
		{"policy of two documents", policy("two.yaml", "default: {}\n---\ndefault: {}\n"), exitUsage, nil},
		{"policy with a host twice", policy("twice.yaml", "hosts:\n  a: {}\n  A: {}\n  "+k.hostPrint+": {}\n  a b: {}\n"),
			exitUsage, nil},
		{"policy with a bad address", policy("mac.yaml", "default:\n  macs: 02:aa\n"), exitUsage, nil},
		{"policy with a bad prefix", policy("prefix.yaml", "default:\n  macs: 01:aa:*\n"), exitUsage, nil},
		{"policy with a bad VLAN", policy("vlan.yaml", "default:\n  vlans: [5, 5000]\n"), exitUsage, nil},
		{"policy with a bad answer", policy("yes.yaml", "default:\n  promiscuous: perhaps\n"), exitUsage, nil},
		{"policy with a bad group", policy("share.yaml", "default:\n  share: [a, b]\n"), exitUsage, nil},
		{"policy with a bad IP address", policy("ip.yaml", "default:\n  ips: 192.0.2.1/24\n"), exitUsage, nil},
		{"policy with a bad number of packets", policy("pps.yaml", "default:\n  max-tx-pps: 7\n"), exitUsage, nil},
		{"policy with a bad number", policy("number.yaml", "default:\n  max-queues: 0\n"), exitUsage, nil},
		{"policy with a bad rate", policy("rate.yaml", "default:\n  max-tx-rate: 10MBps\n"), exitUsage, nil},
		{"policy with a rate without a unit", policy("unit.yaml", "default:\n  max-rx-rate: 500\n"), exitUsage, nil},
		{"policy with a bad size", policy("size.yaml", "default:\n  max-memory: much\n"), exitUsage, nil},

		{"LAN without bridge", iounit("--lan", "tap:"), exitUsage, nil},
		{"memory without a unit", iounit("--max-memory", "lots"), exitUsage, nil},
		{"no memory", iounit("--max-memory", "0"), exitUsage, nil},
		{"too little memory", iounit("--max-memory", "2"), exitUsage, nil},
		{"unit's name", iounit("--name", "a b"), exitUsage, nil},
		{"unknown mode", host("--mode", "teleport"), exitUsage, nil},
		{"mode twice", host("--mode", "imm,imm"), exitUsage, nil},
		{"no mode", iounit("--modes", ""), exitUsage, nil},
		{"time without a unit", host("--peer-timeout", "5"), exitUsage, nil},
		{"no handshake", host("--advanced.handshake-timeout", "0"), exitUsage, nil},
		{"pools", host("--advanced.max-pools", "1"), exitUsage, nil},
		{"idle pools", host("--advanced.pool-idle", "0"), exitUsage, nil},
		{"offloads that need others", host("--offloads", "tso4"), exitUsage, nil},
		{"moderation", host("--advanced.cq-moderation", "16"), exitUsage, nil},
		{"service level", host("--advanced.service-level", "16"), exitUsage, nil},
		{"latency DSCP", host("--latency-queue", "--advanced.latency-dscp", "fast"), exitUsage, nil},
		{"latency size", host("--advanced.latency-size", "-1"), exitUsage, nil},
		{"latency service level", host("--advanced.latency-service-level", "16"), exitUsage, nil},
		{"no room for the latency queue", host("--latency-queue", "--queues", "16"), exitUsage, nil},
		{"device's name", host("--name", "a-name-too-long-for-linux"), exitUsage, nil},
		{"unlawful name", host("--name", "a/b"), exitUsage, nil},
		{"name with a format", host("--name", "sn%s"), exitUsage, nil},
		{"no place in the queue", host("--advanced.txqueuelen", "-1"), exitUsage, nil},
		{"no index", host("--gid-index", "-2"), exitUsage, nil},
		{"no address of a unit", []string{"host", "--iounit", "http://10.0.0.1"}, exitUsage, nil},
		{"no port of a unit", []string{"host", "--iounit", "10.0.0.1:99999"}, exitUsage, nil},
		{"metrics", host("--metrics", "9580"), exitUsage, nil},
		{"port alone to listen on", iounit("--listen", "7580"), exitUsage, nil},

		{"never to go back", host("--fail-back", "-1s"), exitUsage, nil},
		{"standby of one", host("--standby"), exitUsage, nil},

		{"stats of nobody", []string{"stats", "nobody"}, exitMissing, nil},
		{"reset of two", []string{"reset", "sn0", "sn1"}, exitUsage, nil},
		{"change without a number", []string{"host", "handlers", missing, "--budget", "many"}, exitUsage, nil},
		{"change to no handler", []string{"host", "handlers", missing, "--assign", "1=fast"}, exitUsage, nil},
		{"change of no host", []string{"iounit", "handlers", "--budget", "1=5"}, exitUsage, nil},
		{"pages nowhere", []string{"man", filepath.Join(empty, "man")}, exitFailure, nil},
		{"doctor of nothing", []string{"doctor", "--device", "nodev0"}, exitMissing, nil},
	} {
		t.Run(m.name, func(t *testing.T) { m.fails(t, bin) })
	}
}

// strangersKey returns a private key of another type than Ed25519, and a certificate for it.
func strangersKey(t testing.TB) (key, certificate []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if key, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), NotAfter: time.Now().Add(time.Hour)}
	if certificate, err = x509.CreateCertificate(rand.Reader, template, template, private.Public(), private); err != nil {
		t.Fatal(err)
	}
	return key, certificate
}

// TestBenchErrdoc is TestErrdoc for splitnic bench.
func TestBenchErrdoc(t *testing.T) {
	bin := needBinary(t)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, m := range []mistake{
		{"two addresses", []string{"bw", "10.0.0.1", "10.0.0.2"}, exitUsage, nil},
		{"no address to listen on", []string{"bw", "--listen="}, exitUsage, nil},
		{"both ends", []string{"bw", "--listen", ":1", "10.0.0.1"}, exitUsage, nil},
		{"the other's device", []string{"bw", "--listen", ":1", "--peer-device", "x"}, exitUsage, nil},
		{"a secret of nobody", []string{"bw", "--secret", "x"}, exitUsage, nil},
		{"two secrets", []string{"bw", "--secret", "x", "--secret-file", missing, "10.0.0.1"}, exitUsage, nil},
		{"no file with a secret", []string{"bw", "--secret-file", missing, "10.0.0.1"}, exitMissing, nil},
		{"poll and sleep", []string{"bw", "--poll", "--event"}, exitUsage, nil},
		{"all and one size", []string{"bw", "--all", "-s", "64"}, exitUsage, nil},
		{"no size", []string{"bw", "--size", "small"}, exitUsage, nil},
		{"no time", []string{"bw", "--timeout", "0s"}, exitUsage, nil},
		{"an address that is none", []string{"bw", "a:b:c"}, exitUsage, nil},
		{"size", []string{"bw", "-s", "23"}, exitUsage, nil},
		{"queues", []string{"bw", "-q", "17"}, exitUsage, nil},
		{"iterations", []string{"bw", "-n", "0"}, exitUsage, nil},
		{"iterations for queues", []string{"bw", "-q", "4", "-n", "3"}, exitUsage, nil},
		{"iterations and time", []string{"bw", "-n", "5", "-D", "1s"}, exitUsage, nil},
		{"duration", []string{"bw", "-D", "-1s"}, exitUsage, nil},
		{"doorbells", []string{"bw", "-l", "100000"}, exitUsage, nil},
		{"buffers", []string{"bw", "-t", "100000"}, exitUsage, nil},
		{"too few buffers", []string{"bw", "-l", "20", "-t", "21"}, exitUsage, nil},
	} {
		m.args = append([]string{"bench"}, m.args...)
		t.Run(m.name, func(t *testing.T) { m.fails(t, bin) })
	}
}

// TestRDMAErrdoc is TestErrdoc for mistakes on a machine that has RDMA devices.
func TestRDMAErrdoc(t *testing.T) {
	testenv.NeedTools(t, "setpriv", "prlimit", "unshare", "mount", "rdma")
	bin, dir := needFabric(t), t.TempDir()
	k := makeKeys(t, dir)
	free, card := testenv.NetNS(t), testenv.NetNS(t)
	testenv.Veth(t, card, "eth1", free, "lan0")
	host := func(args ...string) []string {
		return append([]string{
			"host", "--iounit", unitAddress + ":1", "--device", hostDevice, "--netns", free, "--key", k.host, "--trust",
			k.unitPrint,
			"--status-socket", filepath.Join(dir, "host.sock"),
		}, args...)
	}
	iounit := func(args ...string) []string {
		return append([]string{
			"iounit", "--device", unitDevice, "--listen", unitAddress + ":7582", "--lan", "eth1", "--netns", card,
			"--key", k.unit, "--trust", k.hostPrint, "--status-socket", filepath.Join(dir, "unit.sock"),
		}, args...)
	}
	readOnly := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", 110))
	run(t, "ip", "-n", card, "link", "add", "br0", "type", "bridge")
	run(t, "ip", "-n", card, "link", "add", "eth2", "type", "dummy")
	run(t, "ip", "-n", card, "link", "set", "eth2", "master", "br0")
	others := makeKeys(t, t.TempDir()).host
	if err := os.Chown(others, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	for _, m := range []mistake{
		{"key of another user", host("--key", others), exitKeys, nil},
		{"status of nobody", []string{"status"}, exitMissing, nil},
		{"socket's path", host("--status-socket", long), exitFailure, nil},
		{"file in the place of the socket", host("--status-socket", k.host), exitFailure, nil},
		{"socket below a file", host("--status-socket", filepath.Join(k.host, "sock")), exitFailure, nil},
		{"index without a GID", host("--gid-index", "200"), exitMissing, nil},
		{"no such partition", host("--advanced.pkey", "0x8001"), exitMissing, nil},
		{"no such port", iounit("--ib-port", "2"), exitMissing, nil},
		{"host's name", host("--host-name", "a b"), exitUsage, nil},
		{"too many queues of the device", host("--queues", "17"), exitUsage, nil},
		{"bridge that is none", iounit("--lan", "tap:eth2"), exitUsage, nil},
		{"card in a bridge", iounit("--lan", "eth2"), exitInUse, nil},
		{"metrics elsewhere", host("--metrics", "192.0.2.1:80"), exitFailure, nil},
		{"name to listen on", iounit("--listen", "no such name"), exitFailure, nil},
	} {
		t.Run(m.name, func(t *testing.T) { m.fails(t, bin) })
	}
	// Each of these runs in a new mount namespace, which the script has changed.
	for _, m := range []struct {
		mistake
		script string
	}{
		{mistake{"nowhere to put the socket", host("--status-socket", socketDir+"/a/host.sock"), exitFailure, nil},
			"mkdir -p " + socketDir + " && mount -t tmpfs -o ro none " + socketDir},
		{mistake{"no space for the socket", host("--status-socket", filepath.Join(readOnly, "host.sock")), exitFailure, nil},
			"mount -t tmpfs -o nr_inodes=1 none " + readOnly},
		{mistake{"no tun", host(), exitMissing, nil}, "mount -t tmpfs none /dev/net"},
		{mistake{"tun that is a file", host(), exitFailure, nil}, "mount -t tmpfs none /dev/net && : >/dev/net/tun"},
		{mistake{"no verbs", host(), exitMissing, nil}, "mount -t tmpfs none /dev/infiniband"},
		{mistake{"no configuration to be read", []string{"host", "--config", "/proc/1/mem"}, exitUsage, nil}, "true"},
	} {
		t.Run(m.name, func(t *testing.T) {
			m.fails(t, "unshare", "-m", "sh", "-c", m.script+` && exec "$0" "$@"`, bin)
		})
	}
	without := func(capabilities string) []string {
		return []string{"setpriv", "--bounding-set", capabilities, bin}
	}
	t.Run("no permission to lock", func(t *testing.T) {
		r := newFixture(t, "macvtap")
		m := mistake{"", []string{
			"host", "--iounit", unitAddress, "--device", hostDevice, "--netns", free, "--host-name", "poor", "--name", "sn8",
			"--key", r.keys.host, "--trust", r.keys.unitPrint, "--status-socket", filepath.Join(dir, "poor.sock"),
		}, exitPermission, nil}
		m.fails(t, append([]string{"prlimit", "--memlock=65536"}, without("-ipc_lock")...)...)
	})
	t.Run("port that is reserved", func(t *testing.T) {
		mistake{"", iounit("--listen", unitAddress+":80"), exitPermission, nil}.fails(t, without("-net_bind_service")...)
	})
	t.Run("doctor without rights", func(t *testing.T) {
		command := append([]string{"prlimit", "--memlock=65536"},
			without("-net_admin,-net_raw,-ipc_lock,-sys_nice,-bpf,-sys_admin")...)
		doctorSays(t, exitPermission, append(command, "doctor"))
	})
	t.Run("doctor of a port that is down", func(t *testing.T) {
		run(t, "ip", "-n", fabricNS, "link", "set", fabricPort, "down")
		defer run(t, "ip", "-n", fabricNS, "link", "set", fabricPort, "up")
		eventually(t, func() bool {
			return exec.CommandContext(t.Context(), bin, "doctor", "--device", unitDevice).Run() != nil
		}, "a port that is down")
		doctorSays(t, exitMissing, []string{bin, "doctor", "--device", unitDevice})
	})
}

// doctorSays runs the command, which is `splitnic doctor` on this machine. It checks the exit
// status, and that docs/troubleshooting.md explains every warning and failure in the output.
func doctorSays(t *testing.T, status int, command []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit status is checked
	if status != 0 {
		checkFailure(t, cmd.ProcessState.ExitCode(), stderr.String(), status)
	} else if cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("exit status %d:\n%s%s", cmd.ProcessState.ExitCode(), &stdout, &stderr)
	}
	for line := range strings.Lines(stdout.String()) {
		if mark, said, _ := strings.Cut(strings.TrimSpace(line), " "); mark == "FAIL" || mark == "warn" {
			testenv.Explained(t, strings.Join(strings.Fields(said), " "))
		}
	}
}
