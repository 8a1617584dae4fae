package session

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
)

// late is a connection on which the first write misses its deadline. Later writes, with a new
// deadline, do not.
type late struct {
	net.Conn
	past bool
}

func (l *late) Write(b []byte) (int, error) {
	if !l.past {
		l.past = true
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	return l.Conn.Write(b)
}

// delay makes the next write of a connection miss its deadline. The connection must not be in use.
func delay(c *Conn) {
	r := c.tls.NetConn().(*records)
	r.Conn = &late{Conn: r.Conn}
}

// TestLateRecord has one side miss the deadline with a message of the handshake. The other side
// must find its peer gone, and not report a forged record.
func TestLateRecord(t *testing.T) {
	for _, who := range []role{roleHost, roleUnit} {
		t.Run(who.String(), func(t *testing.T) {
			host, unit := friends(t)
			ln, _ := listen(t, ServerConfig{Security: unit})
			c, err := dial(t, ln, host)
			if err != nil {
				t.Fatal(err)
			}
			ctx := testContext(t)
			atHost := make(chan error, 1)
			go func() {
				_, err := c.Hello(ctx, testHello())
				if err == nil && who == roleHost {
					delay(c.Conn)
					err = c.Accept(ctx, testAccept())
				}
				atHost <- err
			}()
			s, err := ln.Accept(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if who == roleUnit {
				delay(s.Conn)
			}
			_, atUnit := s.Welcome(ctx, testWelcome())
			tooLate, other := <-atHost, atUnit
			if who == roleUnit {
				tooLate, other = other, tooLate
			}
			if !errors.Is(tooLate, os.ErrDeadlineExceeded) {
				t.Errorf("the one that is too late finds: %v", tooLate)
			}
			if !errors.Is(other, ErrPeerGone) || strings.Contains(other.Error(), "MAC") {
				t.Errorf("the other one finds: %v", other)
			}
		})
	}
}
