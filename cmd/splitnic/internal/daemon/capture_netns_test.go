package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// captured is a capture that is written to a file.
type captured struct {
	t      *testing.T
	file   string
	sock   string
	name   string
	done   chan error
	result capture.Status
}

// captureAt starts a capture at a socket, and returns when the capture runs.
func captureAt(t *testing.T, sock string, r CaptureRequest) *captured {
	t.Helper()
	r.Name = fmt.Sprint("test ", t.Name(), " ", sock)
	c := &captured{t: t, file: filepath.Join(t.TempDir(), "x.pcapng"), sock: sock, name: r.Name, done: make(chan error, 1)}
	w, err := os.Create(c.file)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		raw, err := statussock.Stream(context.Background(), sock, CommandCapture, r, w)
		if err == nil {
			err = json.Unmarshal(raw, &c.result)
		}
		c.done <- errors.Join(err, w.Close())
	}()
	// The capture has written the section header.
	testenv.Eventually(t, func() bool {
		i, err := os.Stat(c.file)
		return err == nil && i.Size() > 0
	}, "a capture at %s", sock)
	return c
}

// end ends the capture and expects no error.
func (c *captured) end() {
	c.t.Helper()
	_, err := statussock.DoWith(c.t.Context(), c.sock, CommandEndCapture, c.name)
	end := time.Now().Add(testenv.Patience)
	for errors.Is(err, statussock.ErrSilent) && time.Now().Before(end) { // a busy machine takes longer than users wait
		_, err = statussock.DoWith(c.t.Context(), c.sock, CommandEndCapture, c.name)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if err := <-c.done; err != nil {
		c.t.Fatal(err)
	}
}

// readBy runs a program that reads a capture, and returns the program's output.
func readBy(t *testing.T, name string, args ...string) string {
	t.Helper()
	var complaint bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, &complaint)
	}
	return string(out)
}

// lines returns a line of tshark for each frame that filter selects: the path, the direction and
// these fields.
func (c *captured) lines(filter string, fields ...string) []string {
	c.t.Helper()
	args := []string{"-r", c.file, "-Y", filter, "-T", "fields", "-E", "separator= "}
	for _, f := range append([]string{"frame.interface_name", "frame.packet_flags_direction"}, fields...) {
		args = append(args, "-e", f)
	}
	out := readBy(c.t, "tshark", args...)
	if out == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
}

// TestNetnsCapture captures the frames of two cards and their I/O unit: those through the I/O
// unit, and those of a direct connection. It reads the captures with tshark.
func TestNetnsCapture(t *testing.T) {
	testenv.NeedTools(t, "ping", "tshark", "capinfos", "tcpdump")
	f := newAgentFixture(t, func(c *iounit.Config) { c.Direct, c.DirectAfter = true, 0 })
	unit := filepath.Join(t.TempDir(), "iounit-7580.sock")
	s, err := statussock.Serve(unit, func() any { return f.unit.Status() },
		captureCommands(f.unit.Captures(), "I/O unit", "test", slog.New(slog.DiscardHandler))...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ns [2]string
	for i, name := range []string{"alpha", "beta"} {
		ns[i] = testenv.NetNS(t)
		spec := cards.Spec{Name: name, Netdevice: "eth0", NetNS: ns[i], HostName: name}
		if _, err := f.client().Add(t.Context(), &spec); err != nil {
			t.Fatal(err)
		}
	}
	f.connected(2)
	sock := filepath.Join(filepath.Dir(f.sock), "host-alpha.sock")
	host := captureAt(t, sock, CaptureRequest{})
	other := captureAt(t, unit, CaptureRequest{Config: capture.Config{Paths: "host alpha *"}})
	for i := range ns {
		testenv.Address(t, ns[i], "eth0", fmt.Sprintf("10.78.0.%d/16", 2+i))
	}
	const pings = 3
	testenv.Run(t, ns[0], "ping", "-c", fmt.Sprint(pings), "-i", "0.05", "-s", "1000", "-W", "10", "10.78.0.1")
	if all := f.unit.Status().Captures; len(all) != 1 || all[0].Paths != "host alpha *" {
		t.Errorf("the I/O unit's status has captures %+v", all)
	}
	// Ping the other host until the frames use the direct connection.
	alpha := f.agent.present()[0]
	testenv.Eventually(t, func() bool {
		testenv.Run(t, ns[0], "ping", "-c", "2", "-i", "0.05", "-W", "10", "10.78.0.3")
		d := alpha.host.Status().Direct.Connections
		return len(d) == 1 && d[0].Counts.InFrames > 0 && d[0].Counts.OutFrames > 0
	}, "pings by a direct connection")
	host.end()
	other.end()

	both := func(c *captured, path string, out, in string) {
		t.Helper()
		var want []string
		for n := range pings {
			want = append(want, fmt.Sprintf("%s %s 8 %d", path, out, n+1), fmt.Sprintf("%s %s 0 %d", path, in, n+1))
		}
		if got := c.lines("icmp && ip.addr == 10.78.0.1", "icmp.type", "icmp.seq"); !slices.Equal(got, want) {
			t.Errorf("captured %q, want %q", got, want)
		}
	}
	const inbound, outbound = "0x00000001", "0x00000002"
	both(host, "uplink queue 0", outbound, inbound)
	both(other, "host alpha queue 0", inbound, outbound)
	direct := host.lines(`icmp && ip.addr == 10.78.0.3 && frame.interface_name == "direct beta"`, "icmp.type")
	for _, want := range []string{"direct beta " + outbound + " 8", "direct beta " + inbound + " 0"} {
		if !slices.Contains(direct, want) {
			t.Errorf("%q is not among what went directly: %q", want, direct)
		}
	}
	for _, line := range other.lines(`frame.interface_name contains "beta"`) {
		t.Errorf("%q is in a capture of alpha's path", line)
	}
	// capinfos and tcpdump read the capture as well.
	infos := readBy(t, "capinfos", host.file)
	for _, want := range []string{
		"Name = uplink queue 0", "Description = through I/O unit unit at ", "Name = direct beta",
		"Number of stat entries = 1",
		fmt.Sprintf("Number of packets:   %d\n", host.result.Frames), "Capture application: splitnic",
	} {
		if !strings.Contains(infos, want) {
			t.Errorf("capinfos does not say %q, but\n%s", want, infos)
		}
	}
	const reply = "10.78.0.1 > 10.78.0.2: ICMP echo reply"
	if all := readBy(t, "tcpdump", "-nr", host.file, "icmp"); !strings.Contains(all, reply) {
		t.Errorf("tcpdump reads\n%s", all)
	}
	if host.result.Dropped != 0 {
		t.Errorf("%+v: with a reader that reads", host.result)
	}
	if n := len(alpha.host.Status().Captures); n != 0 {
		t.Errorf("%d captures run when they have ended", n)
	}
}

// TestNetnsCaptureDropped captures frames that the policy of an I/O unit drops. It expects
// tshark to show the reason.
func TestNetnsCaptureDropped(t *testing.T) {
	testenv.NeedTools(t, "ping", "tshark")
	rules, err := policy.Parse("policy.yaml", []byte("default: {ips: 10.78.0.2}"))
	if err != nil {
		t.Fatal(err)
	}
	f := newAgentFixture(t, func(c *iounit.Config) { c.Policy = rules })
	unit := filepath.Join(t.TempDir(), "iounit-7580.sock")
	s, err := statussock.Serve(unit, func() any { return f.unit.Status() },
		captureCommands(f.unit.Captures(), "I/O unit", "test", slog.New(slog.DiscardHandler))...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ns := testenv.NetNS(t)
	spec := cards.Spec{Name: "alpha", Netdevice: "eth0", NetNS: ns, HostName: "alpha"}
	if _, err := f.client().Add(t.Context(), &spec); err != nil {
		t.Fatal(err)
	}
	f.connected(1)
	all := captureAt(t, unit, CaptureRequest{})
	for _, ip := range []string{"10.78.0.2", "10.78.0.3"} {
		testenv.Address(t, ns, "eth0", ip+"/16")
	}
	testenv.Run(t, ns, "ping", "-c", "1", "-W", "10", "10.78.0.1")
	// A ping from an address that the policy does not allow gets no answer.
	_ = testenv.Command(t, ns, "ping", "-c", "1", "-W", "1", "-I", "10.78.0.3", "10.78.0.1").Run()
	all.end()
	const from = `icmp.type == 8 && ip.src == 10.78.0.`
	if got := all.lines(from+"2", "frame.comment"); !slices.Equal(got, []string{"host alpha queue 0 0x00000001 "}) {
		t.Errorf("of a ping that passes there is %q", got)
	}
	got := all.lines(from+"3", "frame.comment")
	if len(got) != 2 || got[0] != "host alpha queue 0 0x00000001 " ||
		!strings.HasPrefix(got[1], "host alpha dropped 0x00000001 dropped: ") || !strings.Contains(got[1], "`ips`") {
		t.Errorf("of one that does not there is %q", got)
	}
}

// TestNetnsCaptureOffloads captures a TCP stream and expects its super-frames to be marked. Other
// captures end by themselves, or when their reader disconnects.
func TestNetnsCaptureOffloads(t *testing.T) {
	testenv.NeedTools(t, "tshark")
	f := newAgentFixture(t)
	ns := testenv.NetNS(t)
	if _, err := f.client().Add(t.Context(), &cards.Spec{Name: "alpha", Netdevice: "eth0", NetNS: ns}); err != nil {
		t.Fatal(err)
	}
	f.connected(1)
	testenv.Address(t, ns, "eth0", "10.78.0.2/16")
	sock := filepath.Join(filepath.Dir(f.sock), "host-alpha.sock")
	whole := captureAt(t, sock, CaptureRequest{Config: capture.Config{SnapLength: 100}})
	one := captureAt(t, sock, CaptureRequest{Config: capture.Config{Frames: 1}})
	timed := captureAt(t, sock, CaptureRequest{Duration: time.Nanosecond, Config: capture.Config{Paths: "none"}})
	gone, leave := context.WithCancel(t.Context())
	begun, left := make(chan bool, 1), make(chan error)
	go func() {
		_, err := statussock.Stream(gone, sock, CommandCapture, CaptureRequest{}, writerFunc(func(b []byte) (int, error) {
			select {
			case begun <- true:
			default:
			}
			return len(b), nil
		}))
		left <- err
	}()
	<-begun
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("an asker that goes: %v", err)
	}
	testenv.Exchange(t, f.lan, "10.78.0.1", ns, 1<<20)
	for _, c := range []*captured{one, timed} {
		if err := <-c.done; err != nil {
			t.Error(err)
		}
	}
	whole.end()
	if one.result.Frames != 1 || timed.result.Frames != 0 {
		t.Errorf("captured %+v and %+v, want 1 and 0 frames", one.result, timed.result)
	}
	large := whole.lines("tcp && frame.len > 2000 && frame.comment",
		"frame.packet_flags", "frame.cap_len", "frame.comment")
	const flags, comment = " 0x00000002 0x00000a02 100 ", "super-frame, to be cut into segments with 1448 bytes of payload"
	if !slices.Contains(large, "uplink queue 0"+flags+comment) {
		t.Errorf("of a stream these are captured: %q", large)
	}
	testenv.Eventually(t, func() bool { return len(f.agent.present()[0].host.Status().Captures) == 0 },
		"the end of the capture whose reader is gone")
}

type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

var _ io.Writer = writerFunc(nil)
