package testenv

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ping sends a few echo requests from ns and fails the test if one is not
// answered.
func Ping(t testing.TB, ns, addr string, args ...string) {
	t.Helper()
	NeedTools(t, "ping")
	Run(t, ns, "ping", append([]string{"-q", "-c", "4", "-i", "0.02", "-W", "5", addr}, args...)...)
}

// ListenTCP listens in ns on a free port of addr, until the test ends.
func ListenTCP(t testing.TB, ns, addr string) *net.TCPListener {
	t.Helper()
	var l *net.TCPListener
	within(t, ns, func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 0)))
		return err
	})
	t.Cleanup(func() { l.Close() })
	return l
}

// Exchange opens a TCP connection from client to addr in server, moves n bytes
// in each direction, one after the other, and fails the test unless they
// arrive unchanged.
func Exchange(t testing.TB, server, addr, client string, n int64) {
	t.Helper()
	l := ListenTCP(t, server, addr)
	defer l.Close()
	deadline := time.Now().Add(2 * time.Minute)
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			if err := l.SetDeadline(deadline); err != nil {
				return err
			}
			c, err := l.AcceptTCP()
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(deadline)
			if err := receive(c, n, 1); err != nil {
				return fmt.Errorf("the server: %w", err)
			}
			return send(c, n, 2)
		}()
	}()
	var c net.Conn
	within(t, client, func() (err error) {
		d := net.Dialer{Deadline: deadline}
		c, err = d.Dial("tcp", l.Addr().String())
		return err
	})
	defer c.Close()
	c.SetDeadline(deadline)
	if err := send(c.(*net.TCPConn), n, 1); err != nil {
		t.Fatal(err)
	}
	err := receive(c, n, 2)
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
}

// stream returns n bytes that depend on seed only.
func stream(n int64, seed uint64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{byte(seed)}), n)
}

// receive reads to the end, and expects the bytes of send.
func receive(c io.Reader, n int64, seed uint64) error {
	got, want := sha256.New(), sha256.New()
	_, _ = io.Copy(want, stream(n, seed)) // neither end can fail
	if _, err := io.Copy(got, c); err != nil {
		return err
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		return errors.New("received something else than was sent")
	}
	return nil
}

func send(c *net.TCPConn, n int64, seed uint64) error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{c}, stream(n, seed), make([]byte, 256<<10)); err != nil {
		return err
	}
	return c.CloseWrite()
}

// UDPSegments sends n UDP super-frames of 40 segments of 1000 bytes from client to addr in server.
// It waits for each super-frame before it sends the next one, and returns how many bytes arrived.
func UDPSegments(t testing.TB, server, addr, client string, n int) int {
	t.Helper()
	var l, c *net.UDPConn
	within(t, server, func() (err error) {
		l, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(addr), 0)))
		return err
	})
	defer l.Close()
	within(t, client, func() (err error) {
		c, err = net.DialUDP("udp", nil, l.LocalAddr().(*net.UDPAddr))
		return err
	})
	defer c.Close()
	const segment, segments = 1000, 40
	setOption(t, c, unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment)
	got := 0
	buf := make([]byte, 65536)
	for range n {
		if _, err := c.Write(make([]byte, segment*segments)); err != nil {
			t.Fatal(err)
		}
		l.SetReadDeadline(time.Now().Add(Patience))
		for range segments {
			m, err := l.Read(buf)
			if err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
			got += m
		}
	}
	return got
}

// setOption sets an option of a socket.
func setOption(t testing.TB, c *net.UDPConn, level, option, value int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var optErr error
	err = raw.Control(func(fd uintptr) { optErr = unix.SetsockoptInt(int(fd), level, option, value) })
	if err != nil || optErr != nil {
		t.Fatal(err, optErr)
	}
}

// CsumErrors returns how many TCP and UDP packets were discarded in ns because
// of their checksum.
func CsumErrors(t testing.TB, ns string) int {
	t.Helper()
	var b []byte
	within(t, ns, func() (err error) {
		// /proc/net would be in the network namespace of the main thread.
		b, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	})
	total := 0
	lines := strings.Split(string(b), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j, name := range names {
			if name == "InCsumErrors" && (names[0] == "Tcp:" || names[0] == "Udp:") {
				v, err := strconv.Atoi(values[j])
				if err != nil {
					t.Fatal(fmt.Errorf("reading /proc/net/snmp: %w", err))
				}
				total += v
			}
		}
	}
	return total
}

// Loopback returns an address of the loopback device that no test of another process uses. So no
// other process can take a port that was free, or that a test has just closed.
func Loopback() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>16&0x7f, pid>>8&0xff, pid&0xff)
}
