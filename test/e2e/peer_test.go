package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// python is the distribution's interpreter. Others do not find the distribution's packages.
const python = "/usr/bin/python3"

// peerProgram is a peer that was written only from docs/protocol.md.
const peerProgram = "../../examples/peer/peer.py"

// needPeer requires the programs and packages that peerProgram needs.
func needPeer(t testing.TB) {
	t.Helper()
	testenv.NeedTools(t, python, "tc")
	imports := "import pyverbs.qp, OpenSSL.SSL, cryptography.x509"
	if out, err := exec.CommandContext(t.Context(), python, "-c", imports).CombinedOutput(); err != nil {
		testenv.Missing(t, "tools", "python3-pyverbs, -openssl or -cryptography is missing: %v: %s", err, out)
	}
}

// otherPeer is a running process of peerProgram.
type otherPeer struct {
	t    testing.TB
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{} // closed when the process has ended
}

// startPeer starts peerProgram. The process is killed after four times the patience, or when the
// test ends.
func startPeer(t testing.TB, args ...string) *otherPeer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	p := &otherPeer{t: t, done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, python, append([]string{"-B", peerProgram,
		"--peer-timeout", "10", "--handshake-timeout", fmt.Sprint(patience.Seconds())}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // succeeds checks the exit status
	}()
	t.Cleanup(func() {
		cancel()
		<-p.done
	})
	return p
}

// wait waits until the program has ended, and returns its exit status and what it has printed.
func (p *otherPeer) wait() (int, string) {
	<-p.done
	return p.cmd.ProcessState.ExitCode(), p.out.String()
}

// succeeds waits until the program has ended, and checks that its exit status is 0.
func (p *otherPeer) succeeds() {
	p.t.Helper()
	if status, out := p.wait(); status != 0 {
		p.t.Errorf("%q ended with status %d:\n%s", p.cmd.Args[2:], status, out)
	}
}

// startPeerHost starts peerProgram as a host of the fixture.
func (r *fixture) startPeerHost(t testing.TB, flags ...string) *otherPeer {
	t.Helper()
	args := []string{"--device", hostDevice, "--key", r.keys.host, "--trust", r.keys.unitPrint, "--mode", r.mode}
	args = append(args, flags...)
	return startPeer(t, append(args, unitAddress, addr(1), addr(0))...)
}

// peerHost runs peerProgram as a host of the fixture, and waits until it has succeeded.
func (r *fixture) peerHost(t testing.TB, flags ...string) {
	t.Helper()
	r.startPeerHost(t, flags...).succeeds()
}

// lossy makes the fabric drop percent of the packets in both directions until the test ends.
func lossy(t testing.TB, percent int) {
	t.Helper()
	for _, port := range []string{fabricPort, "sp1"} {
		run(t, "tc", "-n", fabricNS, "qdisc", "add", "dev", port, "root", "netem", "loss", strconv.Itoa(percent)+"%")
		t.Cleanup(func() {
			if out, err := exec.Command("tc", "-n", fabricNS, "qdisc", "del", "dev", port, "root").CombinedOutput(); err != nil {
				t.Errorf("heal %s: %v: %s", port, err, out)
			}
		})
	}
}

func TestRDMAPeerFromTheDocument(t *testing.T) {
	needFabric(t)
	needPeer(t)
	inEachMode(t, "macvtap", func(t *testing.T, r *fixture) {
		if r.mode == "imm" || r.mode == "indicate" {
			// The I/O unit has to ask for the return of unused pools that it had requested.
			t.Run("as said", func(t *testing.T) { r.peerHost(t, "--wait-flush") })
		} else {
			t.Run("as said", func(t *testing.T) { r.peerHost(t) })
		}
		t.Run("scarce", func(t *testing.T) { r.peerHost(t, "--elements", "2", "--pools", "1", "--count", "100") })
		switch r.mode {
		case "imm":
			t.Run("not to be named", func(t *testing.T) { r.peerHost(t, "--first-reference", "300", "--count", "100") })
		case "send-uc":
			t.Run("lossy", func(t *testing.T) {
				lossy(t, 3)
				r.peerHost(t, "--count", "100")
			})
		}
	}, "--advanced.pool-idle", "1s")
}

// peerCiphers has a cipher for each transfer mode. The peer begins epochs so early that the sessions
// of these tests have several of them.
var peerCiphers = map[string]string{
	"imm": "aes-128-gcm", "indicate": "aes-256-gcm", "send": "chacha20-poly1305", "send-uc": "aes-128-gcm",
}

func TestRDMAPeerEncrypts(t *testing.T) {
	needFabric(t)
	needPeer(t)
	r := makeFixture(t, "macvtap", "--encrypt", "required")
	logged := r.logKeys()
	r.startUnit()
	r.inEachMode(t, func(t *testing.T, r *fixture) {
		r.peerHost(t, "--cipher", peerCiphers[r.mode])
		logged(t, peerCiphers[r.mode])
		switch r.mode {
		case "imm":
			t.Run("not to be named", func(t *testing.T) { r.peerHost(t, "--first-reference", "300", "--count", "100") })
			t.Run("refused", func(t *testing.T) {
				status, out := r.startPeerHost(t, "--encrypt", "no").wait()
				if status == 0 || !strings.Contains(out, "refuse: encryption:") {
					t.Errorf("a host that encrypts nothing ended with status %d:\n%s", status, out)
				}
			})
		case "send-uc":
			t.Run("lossy", func(t *testing.T) {
				lossy(t, 3)
				r.peerHost(t, "--count", "300")
			})
		}
	})
}

// logKeys has the processes of the fixture write a key log. The returned function checks that its last
// line is about a session with a cipher.
func (r *fixture) logKeys() func(t testing.TB, cipher string) {
	file := filepath.Join(r.dir, "keys.log")
	r.env = append(r.env, "SSLKEYLOGFILE="+file)
	return func(t testing.TB, cipher string) {
		t.Helper()
		b, err := os.ReadFile(file)
		lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		words := strings.Fields(lines[len(lines)-1])
		if err != nil || len(words) != 4 || words[0] != "SPLITNIC_FRAMES" || words[2] != cipher || len(words[3]) != 64 {
			t.Errorf("key log of a session with %s: %q, %v", cipher, lines, err)
		}
	}
}

func TestRDMAPeerServes(t *testing.T) {
	bin := needFabric(t)
	needPeer(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { peerServes(t, bin, mode, nil, nil) })
		t.Run(mode+" encrypted", func(t *testing.T) {
			peerServes(t, bin, mode, []string{"--cipher", peerCiphers[mode]}, []string{"--encrypt", "required"})
		})
	}
}

// peerServes runs peerProgram as an I/O unit of a host, both with further flags, and pings it.
func peerServes(t *testing.T, bin, mode string, unitFlags, hostFlags []string) {
	t.Helper()
	r := &fixture{t: t, bin: bin, dir: t.TempDir(), mode: mode}
	r.keys, r.sockets = makeKeys(t, r.dir), r.dir
	logged := r.logKeys()
	args := []string{"--device", unitDevice, "--key", r.keys.unit, "--trust", r.keys.hostPrint, "--mode", mode, "--serve"}
	args = append(args, unitFlags...)
	unit := startPeer(t, append(args, unitAddress, addr(0))...)
	h := r.host(t, append(hostFlags, "--advanced.handshake-timeout", patience.String())...)
	ping(t, h.ns, addr(0), 3, 0)
	ping(t, h.ns, addr(0), 3, 56)
	ping(t, h.ns, addr(0), 30, 1400)
	if len(unitFlags) > 0 {
		logged(t, peerCiphers[mode])
	}
	h.stop()
	unit.succeeds()
}
