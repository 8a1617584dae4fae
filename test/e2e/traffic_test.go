package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// pattern returns n bytes that depend on seed.
func pattern(n, seed int) []byte {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], uint64(seed))
	b := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// dialTCP connects from ns. The connection has a deadline of twice the patience.
func dialTCP(ns, to string) (*net.TCPConn, error) {
	var c net.Conn
	err := netns.Do(ns, func() (err error) {
		c, err = (&net.Dialer{Timeout: patience}).Dial("tcp", to)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), c.SetDeadline(time.Now().Add(2 * patience))
}

// echoTCP starts a server in ns and returns its address. The server reads each connection to the end
// of the stream and then sends the data back.
func echoTCP(t testing.TB, ns, at string) string {
	t.Helper()
	l := testenv.ListenTCP(t, ns, at)
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return // the listener is closed at the end of the test
			}
			go func() {
				defer c.Close()
				if c.SetDeadline(time.Now().Add(2*patience)) != nil {
					return
				}
				b, err := io.ReadAll(c)
				if err == nil {
					_, _ = c.Write(b) // the client detects missing data
				}
			}()
		}
	}()
	return l.Addr().String()
}

// manyConnections opens n concurrent connections from namespace client to an echo server, and
// exchanges size bytes on each.
func manyConnections(t testing.TB, client, server string, n, size int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			sent := pattern(size, i)
			c, err := dialTCP(client, server)
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			defer c.Close()
			_, err = c.Write(sent)
			got, readErr := []byte(nil), error(nil)
			if err = errors.Join(err, c.CloseWrite()); err == nil {
				got, readErr = io.ReadAll(c)
			}
			if err = errors.Join(err, readErr); err != nil {
				t.Errorf("connection %d: %v", i, err)
			} else if !bytes.Equal(got, sent) {
				t.Errorf("connection %d: %d bytes came back, not the %d that were sent", i, len(got), len(sent))
			}
		})
	}
	wg.Wait()
}

// udpPair makes a socket in ns that is bound to address at, and a socket in namespace client that is
// connected to the first one.
func udpPair(t testing.TB, ns, at, client string) (server, peer *net.UDPConn) {
	t.Helper()
	err := netns.Do(ns, func() error {
		c, err := net.ListenPacket("udp", net.JoinHostPort(at, "0"))
		if err == nil {
			server = c.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	err = netns.Do(client, func() error {
		c, err := net.Dial("udp", server.LocalAddr().String())
		if err == nil {
			peer = c.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	for _, c := range []*net.UDPConn{server, peer} {
		if err := errors.Join(c.SetReadBuffer(4<<20), c.SetDeadline(time.Now().Add(2*patience))); err != nil {
			t.Fatal(err)
		}
	}
	return server, peer
}

// udpSizes sends datagrams of the given sizes from namespace client to an echo server in ns, several
// at a time, and compares the contents of the answers.
func udpSizes(t testing.TB, ns, at, client string, sizes []int) {
	t.Helper()
	const atOnce = 32
	server, c := udpPair(t, ns, at, client)
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return // the end of the test
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], from) // the client detects a missing answer
		}
	}()
	// The size identifies a datagram.
	text := pattern(65536, 1)
	b := make([]byte, 65536)
	for len(sizes) > 0 {
		batch := sizes[:min(atOnce, len(sizes))]
		sizes = sizes[len(batch):]
		missing := map[int]bool{}
		for _, size := range batch {
			missing[size] = true
			if _, err := c.Write(text[len(text)-size:]); err != nil {
				t.Fatalf("sending a datagram of %d bytes: %v", size, err)
			}
		}
		for len(missing) > 0 {
			n, err := c.Read(b)
			if err != nil {
				t.Fatalf("datagrams of these sizes did not come back: %v: %v", missing, err)
			}
			if !missing[n] {
				t.Fatalf("a datagram of %d bytes came back, which was not sent or came twice", n)
			}
			if !bytes.Equal(b[:n], text[len(text)-n:]) {
				t.Fatalf("a datagram of %d bytes was changed on its way", n)
			}
			delete(missing, n)
		}
	}
}

// sizesUpTo returns the multiples of step below n, n itself, and the sizes next to 0 and to n.
func sizesUpTo(n, step int) []int {
	sizes := []int{n - 2, n - 1, n}
	for s := range n - 2 {
		if s%step == 0 || s < 8 {
			sizes = append(sizes, s)
		}
	}
	return sizes
}

// badPackets returns the counters, except those that are 0, of packets that ns has discarded because
// of their checksum or header.
func badPackets(t testing.TB, ns string) map[string]int {
	t.Helper()
	bad := map[string]int{}
	note := func(name, value string) {
		if n, err := strconv.Atoi(value); err != nil {
			t.Fatalf("%s is %q", name, value)
		} else if n != 0 && (strings.Contains(name, "CsumErrors") || strings.Contains(name, "HdrErrors")) {
			bad[name] = n
		}
	}
	err := netns.Do(ns, func() error {
		v4, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		v6, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		lines := strings.Split(string(v4), "\n")
		for i := 0; i+1 < len(lines); i += 2 {
			names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
			for j := 1; j < len(names); j++ {
				note(strings.TrimSuffix(names[0], ":")+names[j], values[j])
			}
		}
		for line := range strings.Lines(string(v6)) {
			if f := strings.Fields(line); len(f) == 2 {
				note(f[0], f[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bad
}

// noBadPackets fails the test if one of the namespaces has discarded a packet because of its checksum
// or header.
func noBadPackets(t testing.TB, namespaces ...string) {
	t.Helper()
	for _, ns := range namespaces {
		if bad := badPackets(t, ns); len(bad) > 0 {
			t.Errorf("packets were discarded: %v", bad)
		}
	}
}

// hostKinds has the ways to run a host that differ in where the offloads of frames are carried out,
// or in the transfer mode.
var hostKinds = []struct {
	name  string
	flags []string
	bytes int64 // number of bytes to exchange in each direction
	raw   bool  // whether offloads are carried out before the host's frames cross the fabric
}{
	{"all offloads", nil, 6 << 20, false},
	{"no offloads", []string{"--offloads", "none"}, 2 << 20, true},
	{"plain", []string{"--advanced.plain=yes"}, 2 << 20, true},
	{"indicate", []string{"--mode", "indicate"}, 2 << 20, false},
	{"send", []string{"--mode", "send"}, 2 << 20, false},
}

func TestRDMATransfer(t *testing.T) {
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			r := newFixture(t, kind)
			testenv.NeedTools(t, "ethtool")
			// Now the kernel carries out all offloads before the card's driver gets a frame, and
			// frames arrive at lan0 as they would be on a wire.
			run(t, "ip", "netns", "exec", r.card, "ethtool", "-K", "eth1", "tx", "off")
			for _, hk := range hostKinds {
				t.Run(hk.name, func(t *testing.T) {
					if kind == "packet" && hk.raw {
						refusedByPacket(t, r, hk.flags...)
						return
					}
					h := r.host(t, hk.flags...)
					lan := checkFrames(t, r.lan, "lan0", 1500)
					var own *frameCheck
					if hk.raw {
						own = checkFrames(t, h.ns, "sn0", 1500)
					}
					testenv.Exchange(t, r.lan, addr(0), h.ns, hk.bytes)
					testenv.Exchange(t, h.ns, h.addr6(), r.lan, hk.bytes/4)
					manyConnections(t, h.ns, echoTCP(t, r.lan, addr(0)), 50, 20_000)
					udpSizes(t, r.lan, addr(0), h.ns, sizesUpTo(1472, 7))
					udpSizes(t, h.ns, h.addr6(), r.lan, sizesUpTo(1452, 31))
					udpSizes(t, r.lan, addr(0), h.ns, []int{1473, 2000, 8972, 30000, 65507})
					noBadPackets(t, r.lan, h.ns)
					lan.finish(1000)
					if own != nil {
						own.finish(1000)
					}
				})
			}
		})
	}
}

// refusedByPacket checks that a host without offloads is refused at a LAN interface of packet
// sockets, with an error that names an interface that works.
func refusedByPacket(t *testing.T, r *fixture, flags ...string) {
	n := r.newHost(t, flags...)
	select {
	case <-n.done:
	case <-time.After(patience):
		t.Fatal("the host was not refused")
	}
	n.failed(1, "packet", "macvtap:eth1")
}

// TestRDMASuperFrames checks that segmentation is left to the far side: frames that cross the fabric
// have to be much longer than frames that the network card sends.
func TestRDMASuperFrames(t *testing.T) { inEachMode(t, "macvtap", testSuperFrames) }

func testSuperFrames(t *testing.T, r *fixture) {
	h := r.host(t)
	// The size of TCP's super-frames depends on the pacing rate. This sets a minimum.
	err := netns.Do(h.ns, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/tcp_min_tso_segs", []byte("44"), 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := h.hostStatus().Traffic.Channels[0]
	l := testenv.ListenTCP(t, r.lan, addr(0))
	received := make(chan error, 1)
	const size = 8 << 20
	go func() {
		c, err := l.AcceptTCP()
		if err == nil {
			defer c.Close()
			var n int64
			if n, err = io.Copy(io.Discard, c); err == nil && n != size {
				err = fmt.Errorf("%d of %d bytes arrived", n, size)
			}
		}
		received <- err
	}()
	c, err := dialTCP(h.ns, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.CloseWrite(), <-received); err != nil {
		t.Fatal(err)
	}
	after := h.hostStatus().Traffic.Channels[0]
	frames, sent := after.TxFrames-before.TxFrames, after.TxBytes-before.TxBytes
	if sent < size {
		t.Errorf("%d bytes are counted of a stream of %d that has arrived", sent, size)
	}
	if mean := sent / max(frames, 1); mean < 10_000 {
		t.Errorf("frames to the I/O unit have %d bytes on average; expected more than 10000", mean)
	} else {
		t.Logf("%d frames of %d bytes on average", frames, mean)
	}
	u := r.unit.unitStatus().Hosts[0].Traffic.Channels[0]
	if u.RxDropped != 0 || u.RxOverMTU != 0 || after.TxTooLong != 0 {
		t.Errorf("frames were dropped: %+v, %+v", u, after)
	}
}

// setDeadline sets the receive timeout of a socket that the test polls.
func setDeadline(fd int, d time.Duration) error {
	tv := unix.NsecToTimeval(int64(d))
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
}
