package endpoints

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// The memory of a hostile guest, with a ring of 64 descriptors, and the addresses that the guest
// declares for it.
const (
	guestSize  = 1 << 20
	guestAvail = 4 << 10
	guestUsed  = 8 << 10
	guestAt    = 1 << 32
	guestUser  = 1 << 40
	guestRing  = 64
)

// hostileGuest is a front end that violates the vhost-user protocol.
type hostileGuest struct {
	conn  *net.UnixConn
	file  int
	mem   []byte
	event int
}

// newHostileGuest connects to a device.
func newHostileGuest(path string) (_ *hostileGuest, err error) {
	g := &hostileGuest{file: -1, event: -1}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	if g.conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return nil, err
	}
	if err := g.conn.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
		return nil, err
	}
	if g.event, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, err
	}
	if g.file, err = unix.MemfdCreate("guest", unix.MFD_CLOEXEC); err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(g.file, guestSize); err != nil {
		return nil, err
	}
	g.mem, err = unix.Mmap(g.file, 0, guestSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return g, err
}

func (g *hostileGuest) close() {
	if g.conn != nil {
		g.conn.Close()
	}
	if g.mem != nil {
		_ = unix.Munmap(g.mem)
	}
	for _, fd := range []int{g.event, g.file} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// say sends a message whose body is 64-bit numbers, and fd unless that is negative.
func (g *hostileGuest) say(request uint32, fd int, body ...uint64) error {
	m := binary.LittleEndian.AppendUint32(nil, request)
	m = binary.LittleEndian.AppendUint32(m, 1)
	m = binary.LittleEndian.AppendUint32(m, uint32(8*len(body)))
	for _, n := range body {
		m = binary.LittleEndian.AppendUint64(m, n)
	}
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	_, _, err := g.conn.WriteMsgUnix(m, oob, nil)
	return err
}

// transmits starts the guest's transmit ring, as a correct front end does.
func (g *hostileGuest) transmits() error {
	const ring = 1
	for _, m := range []struct {
		request uint32
		fd      int
		body    []uint64
	}{
		{2, -1, []uint64{1 << 32}},                                                           // features: VERSION_1
		{5, g.file, []uint64{1, guestAt, guestSize, guestUser, 0}},                           // memory table
		{8, -1, []uint64{ring | guestRing<<32}},                                              // size
		{9, -1, []uint64{ring, guestUser, guestUser + guestUsed, guestUser + guestAvail, 0}}, // addresses
		{10, -1, []uint64{ring}},                                                             // base
		{13, g.event, []uint64{ring}},                                                        // call
		{12, g.event, []uint64{ring}},                                                        // kick
	} {
		if err := g.say(m.request, m.fd, m.body...); err != nil {
			return fmt.Errorf("message %d: %w", m.request, err)
		}
	}
	// The answer to the next message comes after all of these have been processed.
	if err := g.say(1, -1); err != nil {
		return err
	}
	_, err := io.ReadFull(g.conn, make([]byte, 20))
	return err
}

// descriptor writes a descriptor of the ring.
func (g *hostileGuest) descriptor(i int, addr uint64, length uint32, flags, next uint16) {
	d := g.mem[16*i:]
	binary.LittleEndian.PutUint64(d, addr)
	binary.LittleEndian.PutUint32(d[8:], length)
	binary.LittleEndian.PutUint16(d[12:], flags)
	binary.LittleEndian.PutUint16(d[14:], next)
}

// offers makes chains available, all of which begin with descriptor 0, and kicks the back end.
func (g *hostileGuest) offers(chains uint16) error {
	binary.LittleEndian.PutUint16(g.mem[guestAvail+2:], chains)
	_, err := unix.Write(g.event, binary.NativeEndian.AppendUint64(nil, 1))
	return err
}

// misdeeds are the violations, with a part of the reason for which the guest then loses its
// connection.
var misdeeds = []struct {
	name string
	does func(g *hostileGuest) error
	want string
}{
	{"an unknown message", func(g *hostileGuest) error { return g.say(99, -1) }, "message 99"},
	{"no message", func(g *hostileGuest) error {
		_, err := g.conn.Write([]byte(strings.Repeat("junk", 100)))
		return err
	}, "flags"},
	{"memory that is none", func(g *hostileGuest) error {
		return g.say(5, g.event, 1, guestAt, guestSize, guestUser, 0)
	}, "not of a file"},
	{"more chains than descriptors", func(g *hostileGuest) error { return g.offers(guestRing + 1) }, "chains are available"},
	{"an address without memory", func(g *hostileGuest) error {
		g.descriptor(0, 1, 100, 0, 0)
		return g.offers(1)
	}, "no memory"},
	{"a loop", func(g *hostileGuest) error {
		g.descriptor(0, guestAt+1<<16, 100, 1, 0)
		return g.offers(1)
	}, "more than 64 descriptors"},
	{"memory that it takes away", func(g *hostileGuest) error {
		g.descriptor(0, guestAt+1<<16, 100, 0, 0)
		if err := unix.Ftruncate(g.file, 0); err != nil {
			return err
		}
		_, err := unix.Write(g.event, binary.NativeEndian.AppendUint64(nil, 1))
		return err
	}, "its file was truncated"},
}

// TestHostileGuest lets a guest of one host violate each rule, again and again. The guest has to
// lose its connection each time, its host has to keep the session, and all frames of another host
// of the same I/O unit have to arrive meanwhile.
func TestHostileGuest(t *testing.T) {
	w := newWorld(t)
	w.unit()
	a := vhostuser.Address{Path: filepath.Join(t.TempDir(), "s")}
	d, err := vhostuser.Open(vhostuser.Config{
		Address: a, Pairs: 1, Offloads: vnet.AllOffloads, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	_, hostile, _ := w.host("alpha", func(c *host.Config) { c.Netdev = host.VhostUser("vm0", d) })
	honest, h, _ := w.host("beta")
	testenv.Eventually(t, func() bool {
		return hostile.Status().State == host.Connected && h.Status().State == host.Connected
	}, "sessions")
	honest.up(t)

	const rounds = 2
	for i := range rounds * len(misdeeds) {
		m := misdeeds[i%len(misdeeds)]
		done := make(chan error, 1)
		go func() { done <- misbehave(a.Path, m.does) }()
		for ended := false; !ended; {
			w.both(honest)
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("%s: %v", m.name, err)
				}
				ended = true
			default:
			}
		}
		testenv.Eventually(t, func() bool { return strings.Contains(d.Status().LastError, m.want) },
			"the end of a connection for %s, because of %q", m.name, m.want)
		if n := d.Status().Connections; n != i+1 {
			t.Fatalf("%s: %d connections of %d", m.name, n, i+1)
		}
	}
	w.both(honest)
	for name, s := range map[string]host.Status{"the hostile guest's": hostile.Status(), "the honest": h.Status()} {
		if s.State != host.Connected || s.Sessions != 1 {
			t.Errorf("%s host is %v in its session number %d", name, s.State, s.Sessions)
		}
	}
	if n := honest.losses(); n != 0 {
		t.Errorf("the honest host lost its carrier %d times", n)
	}
}

// misbehave calls does in a new connection, and waits until the connection is lost.
func misbehave(path string, does func(g *hostileGuest) error) error {
	g, err := newHostileGuest(path)
	if err != nil {
		return err
	}
	defer g.close()
	if err := g.transmits(); err != nil {
		return err
	}
	if err := does(g); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, g.conn); err != nil && !errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("it keeps its connection: %w", err)
	}
	return nil
}
