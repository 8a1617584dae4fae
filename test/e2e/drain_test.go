package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// TestRDMADrain drains the first I/O unit while a TCP connection is in use, and stops it: the host
// has to move to the second I/O unit without losing carrier. While the first I/O unit is away the
// host has to stay when the second one is drained. After the first one is restarted, the second one
// disconnects the host, which has to move back.
func TestRDMADrain(t *testing.T) {
	p := newPair(t)
	k := hold(t, p.fixture, p.host)
	watch := watchCarrier(t, p.host.ns)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		k.send(t)
	}()
	run(t, p.bin, "iounit", "drain", p.units[0].sock, "--wait", "--timeout", "1m")
	f := p.arrive(t, 1, false)
	if f.Count[uplink.ReasonDrain] != 1 || f.Reconnects != 0 {
		t.Errorf("the status counts %+v", f)
	}
	<-sent
	if n := watch.changes.Load(); n != 0 {
		t.Errorf("the carrier changed %d times", n)
	}
	if s := run(t, p.bin, "status", p.units[0].sock); !strings.Contains(s, "DRAINING: 0 left") {
		t.Errorf("the status does not say that it drains:\n%s", s)
	}
	p.units[0].stop()

	run(t, p.bin, "iounit", "drain", p.units[1].sock)
	eventually(t, func() bool { return p.status().IOUnit.Stays != "" }, "the host does not say that it stays")
	k.send(t)
	run(t, p.bin, "iounit", "undrain", p.units[1].sock)
	eventually(t, func() bool { return !p.status().IOUnit.Drains }, "the host is not told that it may stay")
	p.restart(0)
	// If the first I/O unit is slow to answer, the host connects to the second again.
	eventually(t, func() bool {
		s := p.status()
		if s.State == host.Connected && s.IOUnit.Address == secondAddress {
			// The command fails if the session has just ended.
			_ = exec.Command(p.bin, "iounit", "disconnect", s.Name, p.units[1].sock).Run()
		}
		return s.State == host.Connected && s.IOUnit.Address == unitAddress
	}, "the host goes to the first I/O unit")
	k.send(t)
}
