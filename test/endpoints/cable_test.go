package endpoints

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// cable forwards bootstrap connections to an I/O unit. It can be cut, which breaks the
// connections as the death of a process does, and plugged in again.
type cable struct {
	t    *testing.T
	addr string
	to   string

	mu    sync.Mutex
	ln    net.Listener
	conns map[net.Conn]bool
	work  sync.WaitGroup

	passing sync.RWMutex // held for reading while bytes pass
	down    bool         // guarded by passing: nothing passes any more
}

func newCable(t *testing.T, to string) *cable {
	c := &cable{t: t, to: to, conns: map[net.Conn]bool{}, addr: testenv.Loopback() + ":0"}
	c.plug()
	t.Cleanup(c.cut)
	return c
}

func (c *cable) plug() {
	c.t.Helper()
	ln, err := net.Listen("tcp", c.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.addr = ln.Addr().String()
	c.mu.Lock()
	c.ln = ln
	c.mu.Unlock()
	c.lower(false)
	c.work.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", c.to)
			if err != nil {
				near.Close()
				continue
			}
			c.mu.Lock()
			cut := c.ln != ln
			c.conns[near], c.conns[far] = true, true
			c.mu.Unlock()
			var ways sync.WaitGroup
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				ways.Go(func() {
					c.pass(way[0], way[1])
					_ = way[0].(*net.TCPConn).CloseWrite()
				})
			}
			c.work.Go(func() {
				ways.Wait()
				near.Close()
				far.Close()
			})
			if cut {
				near.Close()
				far.Close()
			}
		}
	})
}

// pass forwards bytes until either connection ends, or the cable is cut.
func (c *cable) pass(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !c.write(to, buf[:n]) || err != nil {
			return
		}
	}
}

func (c *cable) write(to io.Writer, b []byte) bool {
	c.passing.RLock()
	defer c.passing.RUnlock()
	if c.down {
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

func (c *cable) lower(down bool) {
	c.passing.Lock()
	defer c.passing.Unlock()
	c.down = down
}

// cut cuts all connections at once. When the I/O unit finds one of them ended, nothing that it
// sends because of this gets through on the others.
func (c *cable) cut() {
	c.lower(true)
	c.mu.Lock()
	if c.ln != nil {
		c.ln.Close()
		c.ln = nil
	}
	for conn := range c.conns {
		conn.Close()
	}
	clear(c.conns)
	c.mu.Unlock()
	c.work.Wait()
}
