package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// capturing is a running `splitnic capture` that writes to a file.
type capturing struct {
	t         testing.TB
	cmd       *exec.Cmd
	file      string
	complaint strings.Builder
}

// capture starts `splitnic capture` at the daemon's status socket, and waits until it has begun.
func (d *daemon) capture(args ...string) *capturing {
	d.t.Helper()
	c := &capturing{t: d.t, file: filepath.Join(d.t.TempDir(), "x.pcapng")}
	c.cmd = exec.Command(d.bin, append([]string{"capture", d.sock, "--write", c.file}, args...)...)
	c.cmd.Stderr = &c.complaint
	if err := c.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	// The command writes the section header when it has begun.
	eventually(d.t, func() bool {
		i, err := os.Stat(c.file)
		return err == nil && i.Size() > 0
	}, "a capture at %s", d.sock)
	return c
}

// end interrupts the command, waits for its end, and returns its standard error.
func (c *capturing) end() string {
	c.t.Helper()
	if err := c.cmd.Process.Signal(unix.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("splitnic capture: %v: %s", err, &c.complaint)
	}
	return c.complaint.String()
}

// shows runs tshark on the captured frames that pass filter. It returns a line for each: the
// path, the direction and the ICMP type.
func (c *capturing) shows(filter string) []string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "tshark", "-n", "-r", c.file, "-Y", filter, "-T", "fields",
		"-E", "separator= ", "-e", "frame.interface_name", "-e", "frame.packet_flags_direction", "-e", "icmp.type")
	cmd.Env = append(os.Environ(), "HOME="+c.t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("tshark: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// TestRDMACapture runs `splitnic capture` at a host and at its I/O unit. The files have to have the
// host's echo messages through the I/O unit, and those over a direct connection, with the right
// path and direction.
func TestRDMACapture(t *testing.T) {
	testenv.NeedTools(t, "tshark", "tcpdump")
	r := newDirectFixture(t, false)
	a, b := r.host(t, onSecond...), r.host(t, onThird...)
	host, unit := a.capture("--filter", "icmp"), r.unit.capture("--path", "host "+a.name+" *", "--filter", "icmp")
	const pings = 3
	ping(t, a.ns, addr(0), pings, 1000)
	r.direct(true)
	eventually(t, func() bool {
		ping(t, a.ns, b.addr(), 1, 1000)
		return a.established(b) && b.established(a)
	}, "a direct connection")
	ping(t, a.ns, b.addr(), 1, 1000)
	said := host.end()
	if !strings.HasSuffix(said, " frames captured, 0 dropped\n") {
		t.Errorf("the command said %q", said)
	}
	unit.end()
	const inbound, outbound = " 0x00000001", " 0x00000002"
	check := func(c *capturing, path, out, in string) {
		t.Helper()
		want := slices.Repeat([]string{path + out + " 8", path + in + " 0"}, pings)
		if got := c.shows("icmp && ip.addr == " + addr(0)); !slices.Equal(got, want) {
			t.Errorf("captured %q, want %q", got, want)
		}
	}
	check(host, "uplink queue 0", outbound, inbound)
	check(unit, fmt.Sprintf("host %s queue 0", a.name), inbound, outbound)
	straight := host.shows("icmp && ip.addr == " + b.addr())
	for _, want := range []string{outbound + " 8", inbound + " 0"} {
		if want = "direct " + b.name + want; !slices.Contains(straight, want) {
			t.Errorf("%q is not among what went directly: %q", want, straight)
		}
	}
}
