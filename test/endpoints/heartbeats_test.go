package endpoints

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// TestHeartbeatsUnneeded has a session whose endpoints receive keep-alives over the fabric. The
// bootstrap connection has to be silent in both directions, for longer than the interval between
// heartbeats.
func TestHeartbeatsUnneeded(t *testing.T) {
	const keepAlive = time.Second
	// Intervals between heartbeats in each direction: the host's peer time-out is set below, and
	// that of the I/O unit's listener is the default.
	between := [2]time.Duration{time.Second, 180 * time.Millisecond}
	w := newWorld(t)
	w.unit(func(c *iounit.Config) { c.Messaging.KeepAlive = keepAlive })
	ln, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	var last [2]atomic.Int64 // time of the last bytes in each direction
	began := time.Now()
	go relay(ln, w.addr, func(direction int) { last[direction].Store(int64(time.Since(began))) })
	t.Cleanup(func() { ln.Close() })
	w.addr = ln.Addr().String()
	_, h, _ := w.host("alpha", func(c *host.Config) {
		c.Messaging.KeepAlive, c.Messaging.PeerTimeout = keepAlive, 5*between[0]
	})
	testenv.Eventually(t, func() bool { return h.Status().State == host.Connected }, "the host being connected")
	for direction := range last {
		testenv.Eventually(t, func() bool {
			return time.Since(began)-time.Duration(last[direction].Load()) > 5*between[direction]/2
		}, "pause in direction %d", direction)
	}
}

// relay forwards connections to an address, and calls came when bytes arrive: with 0 if they are
// from the client, and with 1 if they are from the address.
func relay(ln net.Listener, to string, came func(direction int)) {
	for {
		from, err := ln.Accept()
		if err != nil {
			return
		}
		dest, err := net.Dial("tcp", to)
		if err != nil {
			from.Close()
			return
		}
		for direction, ends := range [][2]net.Conn{{from, dest}, {dest, from}} {
			go func() {
				defer ends[1].Close()
				_, _ = io.Copy(noting{ends[1], func() { came(direction) }}, ends[0])
			}()
		}
	}
}

// noting calls came at each write.
type noting struct {
	io.Writer
	came func()
}

func (n noting) Write(b []byte) (int, error) {
	n.came()
	return n.Writer.Write(b)
}
