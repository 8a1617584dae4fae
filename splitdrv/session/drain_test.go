package session

import (
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestDrainGolden checks the encoding of the messages for draining an I/O unit.
func TestDrainGolden(t *testing.T) {
	for want, m := range map[string]any{
		`{"type":"drain","on":true}`:           drainMessage{typeDrain, true},
		`{"type":"drain","on":false}`:          drainMessage{typeDrain, false},
		`{"type":"stays","reason":"no other"}`: staysMessage{typeStays, "no other"},
	} {
		if b, err := json.Marshal(m); err != nil || string(b) != want {
			t.Errorf("%s, want %s, %v", b, want, err)
		}
	}
}

// TestDrainMessages has the I/O unit ask the host to leave, and withdraw that. The host answers
// that it stays. Its reason must arrive printable and not too long for a log.
func TestDrainMessages(t *testing.T) {
	h, u := friends(t)
	ln, _ := listen(t, ServerConfig{Security: u})
	c, err := Dial(testContext(t), ln.Addr().String(), ClientConfig{Security: h, HandshakeTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	asked, stays := make(chan bool, 1), make(chan string, 1)
	c.HandleDrain(func(on bool) { asked <- on })
	s := complete(t, ln, c, func(s *Server) { s.HandleStays(func(reason string) { stays <- reason }) })
	for _, on := range []bool{true, false} {
		if err := s.Drain(on, time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := <-asked; got != on {
			t.Errorf("%t arrives as %t", on, got)
		}
	}
	if err := c.Stays("no\nother"+strings.Repeat("r", 1000), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := <-stays; !strings.HasPrefix(got, "no?other") || len(got) > maxText {
		t.Errorf("%q", got)
	}
	if c.Err() != nil || s.Err() != nil {
		t.Errorf("%v, %v", c.Err(), s.Err())
	}
}

// TestDrainUnasked has a host send a message that only the I/O unit may send, and one of a
// feature that the session does not have. Each must end the session.
func TestDrainUnasked(t *testing.T) {
	for name, message := range map[string]string{
		"without the feature": `{"type":"stays","reason":"x"}`,
		"of the other side":   `{"type":"drain","on":true}`,
	} {
		host, unit := friends(t)
		ln, _ := listen(t, ServerConfig{Security: unit})
		c, s := establish(t, ln, host)
		c.writing.Lock()
		_, err := c.tls.Write(frame(message))
		c.writing.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := waitDone(t, s.Conn); !errors.Is(err, ErrUnexpected) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDrainTooOften has a host say many times that it stays. Messages above the rate limit must
// wait.
func TestDrainTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		s := &Server{Conn: newConn(near, insecure(t), roleHost, time.Now().Add(time.Hour), time.Second)}
		s.stream = near
		n := 0
		s.HandleStays(func(string) { n++ })
		began := time.Now()
		const times = drainBurst + 3*drainRate
		for range times {
			if err := s.hear(typeStays, []byte(`{"type":"stays"}`)); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); n != times || took < 3*time.Second-10*time.Millisecond || took > 4*time.Second {
			t.Errorf("%d messages in %v", n, took)
		}
	})
}

// TestByeWhileMessagesWait has an I/O unit say bye while a message of the host waits because of the
// limit. The bye must arrive, and the message is not handled any more.
func TestByeWhileMessagesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		s := &Server{Conn: newConn(near, insecure(t), roleHost, time.Now().Add(time.Hour), time.Second)}
		s.stream = near
		n := 0
		s.HandleStays(func(string) { n++ })
		s.workers.Go(s.runReader)
		for range drainBurst + 1 {
			if _, err := far.Write(frame(`{"type":"stays"}`)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the last message waits
		go s.Bye(CodeShuttingDown, "")
		synctest.Wait() // the message waits no longer, and the bye for its reader
		b, err := readFrame(far)
		if err == nil {
			err = decodeBye(b)
		}
		if bye, ok := errors.AsType[*ByeError](err); !ok || bye.Code != CodeShuttingDown {
			t.Errorf("%v, want a bye", err)
		}
		if n != drainBurst {
			t.Errorf("%d messages are handled, want %d", n, drainBurst)
		}
	})
}
