package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
)

// held is a TCP connection from a host to the LAN that is used before and after a failure.
type held struct {
	c        *net.TCPConn
	received chan []byte // the data that the LAN's end has received, when the connection is closed
	sent     []byte
}

// hold opens a connection and sends data on it.
func hold(t testing.TB, r *fixture, h *node) *held {
	t.Helper()
	l := testenv.ListenTCP(t, r.lan, addr(0))
	k := &held{received: make(chan []byte, 1)}
	go func() {
		defer close(k.received)
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		defer c.Close()
		if c.SetDeadline(time.Now().Add(3*patience)) != nil {
			return
		}
		b, err := io.ReadAll(c)
		if err != nil {
			return // the host's end notices that no checksum comes back
		}
		sum := sha256.Sum256(b)
		_, _ = c.Write(sum[:])
		k.received <- b
	}()
	c, err := dialTCP(h.ns, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	k.c = c
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(3 * patience)); err != nil {
		t.Fatal(err)
	}
	k.send(t)
	return k
}

// send writes more data.
func (k *held) send(t testing.TB) {
	t.Helper()
	b := pattern(512<<10, len(k.sent))
	k.sent = append(k.sent, b...)
	if _, err := k.c.Write(b); err != nil {
		t.Errorf("the connection did not survive: %v", err)
	}
}

// check closes the connection and checks that the LAN's end has received what the host sent.
func (k *held) check(t testing.TB) {
	t.Helper()
	err := k.c.CloseWrite()
	sum, readErr := []byte(nil), error(nil)
	if err == nil {
		sum, readErr = io.ReadAll(k.c)
	}
	if err := errors.Join(err, readErr); err != nil {
		t.Fatalf("the connection did not survive: %v", err)
	}
	want := sha256.Sum256(k.sent)
	got := <-k.received
	if !bytes.Equal(got, k.sent) || !bytes.Equal(sum, want[:]) {
		t.Errorf("the LAN got %d bytes, the host sent %d, and they are not the same", len(got), len(k.sent))
	}
}

// macvtaps returns the names of the hosts' netdevices in the card's network namespace.
func (r *fixture) macvtaps() []string {
	return slices.DeleteFunc(links(r.t, r.card), func(name string) bool { return name == "eth1" })
}

// reference is a netdevice in a host's network namespace that loses carrier when a bare TCP
// connection to the I/O unit ends. That is the least work with which a host can notice the end of
// the I/O unit, so it shows how fast the machine is.
type reference struct{ ns string }

const referenceDev = "ref0"

func newReference(t *testing.T, ns string) *reference {
	t.Helper()
	dev, err := tap.Open(tap.Config{Name: referenceDev, NetNS: ns, Queues: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	if err := errors.Join(dev.Up(), dev.SetCarrier(true)); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", unitAddress+":7580")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		_, _ = io.Copy(io.Discard, c) // ends with an error if the I/O unit had not read all data
		if err := dev.SetCarrier(false); err != nil {
			t.Error(err)
		}
	}()
	return &reference{ns}
}

// loses waits until both dev and the reference, in the same network namespace, have lost carrier. It
// returns how long each took.
func (r *reference) loses(t *testing.T, dev string) (took, reference time.Duration) {
	t.Helper()
	h, err := netns.Handle(r.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	started := time.Now()
	lost := func(dev string, after *time.Duration) bool {
		if *after == 0 {
			if link, err := h.LinkByName(dev); err == nil && !hasCarrier(link) {
				*after = time.Since(started)
			}
		}
		return *after > 0
	}
	eventually(t, func() bool {
		theirs := lost(referenceDev, &reference)
		return lost(dev, &took) && theirs
	}, "the loss of the carrier")
	return took, reference
}

func TestRDMAKill(t *testing.T) {
	r := newFixture(t, "macvtap")
	h := r.host(t)
	t.Run("I/O unit", func(t *testing.T) {
		k := hold(t, r, h)
		before := r.macvtaps()
		reference := newReference(t, h.ns)
		r.unit.kill()
		took, theirs := reference.loses(t, "sn0")
		t.Logf("the carrier was lost after %v, that of the reference after %v", took, theirs)
		if most := within(50*time.Millisecond) + 2*theirs; took > most {
			t.Errorf("the carrier was lost %v after the I/O unit was killed, expected %v at most", took, most)
		}
		if s := h.hostStatus(); s.State != "connecting" || s.Netdevice.Carrier {
			t.Errorf("the status says %s, carrier %t", s.State, s.Netdevice.Carrier)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			k.send(t) // fills the socket's buffer and waits
		}()
		r.startUnit()
		h.waitCarrier(true)
		if after := r.macvtaps(); len(before) != 1 || !slices.Equal(after, before) {
			t.Errorf("devices on the network card: %v before, %v after", before, after)
		}
		<-sent
		k.send(t)
		k.check(t)
		if s := h.hostStatus(); s.Sessions != 2 || s.State != "connected" {
			t.Errorf("the status says %s, %d sessions", s.State, s.Sessions)
		}
	})
	t.Run("host", func(t *testing.T) {
		other := r.host(t)
		k := hold(t, r, other)
		h.kill()
		took := eventually(t, func() bool { return len(r.macvtaps()) == 1 }, "what the I/O unit had for the host to go")
		t.Logf("the I/O unit freed what the host had after %v", took)
		if !inTime(t, r.bin, took, time.Second) {
			t.Errorf("the I/O unit freed what a killed host had after %v", took)
		}
		if u := r.unit.unitStatus(); len(u.Hosts) != 1 || u.Hosts[0].Name != other.name {
			t.Errorf("the status shows %+v", u.Hosts)
		}
		eventually(t, func() bool { return testenv.Link(t, h.ns, "sn0") == nil }, "sn0 vanishing with its process")
		h.start()
		h.ready()
		ping(t, h.ns, addr(0), 2, 1000)
		k.send(t)
		k.check(t)
	})
	t.Run("at once back", func(t *testing.T) {
		// The I/O unit has had no time to notice the end of the host's process.
		h.kill()
		h.start()
		h.ready()
		ping(t, h.ns, addr(0), 2, 1000)
	})
	t.Run("both", func(t *testing.T) {
		r.unit.kill()
		h.kill()
		r.startUnit()
		h.start()
		h.ready()
		ping(t, h.ns, addr(0), 2, 1000)
	})
}

// rdmaResources returns the RDMA resources of the product's processes, a line for each.
func rdmaResources(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(userResources(t), func(line string) bool { return !strings.Contains(line, "comm splitnic") })
}

// userResources returns the RDMA resources of all processes, also those whose thread has ended: the
// kernel shows no process for these.
func userResources(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, kind := range []string{"qp", "cq", "mr", "pd", "ctx"} {
		out, err := exec.CommandContext(t.Context(), "rdma", "resource", "show", kind).Output()
		if err != nil {
			t.Fatalf("rdma resource show %s: %v", kind, err)
		}
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "comm [") { // of the kernel
				found = append(found, kind+" "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// checkStatus checks the output of `splitnic status` about all endpoints on the machine: as JSON, as
// a table, and in the long form.
func checkStatus(t testing.TB, r *fixture) {
	t.Helper()
	var all []struct {
		Role string `json:"role"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal([]byte(run(t, r.bin, "status", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	last := r.hosts[len(r.hosts)-1]
	if len(all) != 2 || all[0].Role != "host" || all[0].Name != last.name || all[1].Role != "iounit" ||
		all[1].Name != "unit" {
		t.Errorf("the status is about %+v", all)
	}
	run(t, r.bin, "wait", last.sock, "--connected", "--carrier")
	table := run(t, r.bin, "status")
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 7 ||
		!strings.HasPrefix(lines[1], "sn0 ") || !strings.Contains(lines[1], last.name) || !strings.HasPrefix(lines[4], "unit ") ||
		!strings.HasPrefix(lines[6], "  "+last.name) {
		t.Errorf("the status is not a line for each endpoint, and one for the host below the I/O unit:\n%s", table)
	}
	text := run(t, r.bin, "status", "-v")
	for _, want := range []string{last.name, last.mac(), "sn0", "mtu 1500", unitDevice, hostDevice, r.keys.hostPrint,
		r.keys.unitPrint} {
		if !strings.Contains(text, want) {
			t.Errorf("the status for people lacks %q:\n%s", want, text)
		}
	}
}

func TestRDMATerminate(t *testing.T) {
	testenv.NeedTools(t, "rdma", "find")
	r := newFixture(t, "macvtap")
	r.unit.stop()
	r.sockets = socketDir
	for _, first := range []string{"host", "I/O unit"} {
		t.Run(first+" first", func(t *testing.T) {
			if !r.unit.running() {
				r.startUnit()
			}
			h := r.host(t)
			if len(rdmaResources(t)) == 0 {
				t.Fatal("rdma resource shows nothing of a running product")
			}
			ping(t, h.ns, addr(0), 2, 1000)
			checkStatus(t, r)
			order := []*daemon{h.daemon, r.unit}
			if first != "host" {
				slices.Reverse(order)
			}
			for _, d := range order {
				took := d.stop()
				t.Logf("%s ended after %v", d.cmd.Args[1], took)
				if !inTime(t, r.bin, took, time.Second) {
					t.Errorf("%s ended %v after SIGTERM", d.cmd.Args[1], took)
				}
			}
			// The kernel may free some resources a moment after the process has ended.
			eventually(t, func() bool { return len(rdmaResources(t)) == 0 }, "the RDMA resources to go")
			if names := r.macvtaps(); len(names) != 0 {
				t.Errorf("left on the network card: %v", names)
			}
			if names := links(t, h.ns); len(names) != 0 {
				t.Errorf("left at the host: %v", names)
			}
			if out := run(t, "find", socketDir, "-type", "s"); out != "" {
				t.Errorf("left sockets: %s", out)
			}
		})
	}
}
