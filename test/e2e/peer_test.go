package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
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
	testenv.NeedTools(t, python, "openssl", "tc")
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import pyverbs.qp").CombinedOutput(); err != nil {
		testenv.Missing(t, "tools", "the package python3-pyverbs is missing: %v: %s", err, out)
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

// succeeds waits until the program has ended, and checks that its exit status is 0.
func (p *otherPeer) succeeds() {
	p.t.Helper()
	<-p.done
	if status := p.cmd.ProcessState.ExitCode(); status != 0 {
		p.t.Errorf("%q ended with status %d:\n%s", p.cmd.Args[2:], status, p.out.Bytes())
	}
}

// peerHost runs peerProgram as a host of the fixture, and waits until it has succeeded.
func (r *fixture) peerHost(t testing.TB, flags ...string) {
	t.Helper()
	args := []string{"--device", hostDevice, "--key", r.keys.host, "--trust", r.keys.unitPrint, "--mode", r.mode}
	args = append(args, flags...)
	startPeer(t, append(args, unitAddress, addr(1), addr(0))...).succeeds()
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

func TestRDMAPeerServes(t *testing.T) {
	bin := needFabric(t)
	needPeer(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := &fixture{t: t, bin: bin, dir: t.TempDir(), mode: mode}
			r.keys, r.sockets = makeKeys(t, r.dir), r.dir
			cert := filepath.Join(r.dir, "host.crt")
			run(t, "openssl", "req", "-x509", "-new", "-key", r.keys.host, "-subj", "/CN=host", "-days", "30", "-out", cert)
			unit := startPeer(t, "--device", unitDevice, "--key", r.keys.unit, "--peer-cert", cert, "--mode", mode,
				"--serve", unitAddress, addr(0))
			h := r.host(t, "--cert", cert, "--advanced.handshake-timeout", patience.String())
			ping(t, h.ns, addr(0), 3, 0)
			ping(t, h.ns, addr(0), 3, 56)
			ping(t, h.ns, addr(0), 30, 1400)
			h.stop()
			unit.succeeds()
		})
	}
}
