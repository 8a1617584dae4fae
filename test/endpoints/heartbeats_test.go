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

// TestHeartbeatsUnneeded has a session whose ends hear each other over the fabric: the
// bootstrap connection is silent in both directions, for longer than between heartbeats.
func TestHeartbeatsUnneeded(t *testing.T) {
	const keepAlive = time.Second
	// In each direction: the host's peer time-out is set below, and that of the I/O unit's
	// listener is the default.
	between := [2]time.Duration{time.Second, 180 * time.Millisecond}
	w := newWorld(t)
	w.unit(func(c *iounit.Config) { c.Messaging.KeepAlive = keepAlive })
	ln, err := net.Listen("tcp", testenv.Loopback()+":0")
	if err != nil {
		t.Fatal(err)
	}
	var last [2]atomic.Int64 // when something came, in each direction
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

// relay passes connections on to an address, and says when something comes: from who has
// connected (0), or from there (1).
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

// noting says when something is written.
type noting struct {
	io.Writer
	came func()
}

func (n noting) Write(b []byte) (int, error) {
	n.came()
	return n.Writer.Write(b)
}
