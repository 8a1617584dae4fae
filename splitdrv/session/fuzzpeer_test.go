package session

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// scriptedPeer is a connection in memory to a peer that sends prepared bytes, independent of
// what it receives.
type scriptedPeer struct {
	script []byte // all bytes that the peer sends
	chunk  int    // most bytes that one Read returns
	end    error  // error of Read after the last byte

	mu     sync.Mutex
	rest   []byte
	heard  []byte
	closed bool
}

func (p *scriptedPeer) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, net.ErrClosed
	case len(p.rest) == 0:
		return 0, p.end
	}
	n := copy(b, p.rest[:min(len(p.rest), p.chunk)])
	p.rest = p.rest[n:]
	return n, nil
}

func (p *scriptedPeer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	p.heard = append(p.heard, b...)
	return len(b), nil
}

func (p *scriptedPeer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

func (*scriptedPeer) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*scriptedPeer) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*scriptedPeer) SetDeadline(time.Time) error      { return nil }
func (*scriptedPeer) SetReadDeadline(time.Time) error  { return nil }
func (*scriptedPeer) SetWriteDeadline(time.Time) error { return nil }

// newScripted returns an authenticated connection to a peer that sends each line as a frame,
// followed by raw. how selects the chunk and the end of the scriptedPeer.
func newScripted(s *Security, peer role, lines string, raw []byte, how uint8) (*Conn, *scriptedPeer) {
	p := &scriptedPeer{
		chunk: []int{1, 3, 100, 1 << 20}[how&3],
		end: []error{io.EOF, os.ErrDeadlineExceeded, &net.OpError{Op: "read", Err: io.ErrClosedPipe},
			io.ErrUnexpectedEOF}[how>>2&3],
	}
	if lines != "" {
		for line := range strings.SplitSeq(lines, "\n") {
			p.rest = append(p.rest, frame(line)...)
		}
	}
	p.rest = append(p.rest, raw...)
	p.script = p.rest
	c := newConn(p, s, peer, time.Now().Add(time.Minute), time.Minute)
	c.useTLS(tls.Client(p, c.tlsConfig()))
	c.stream = p
	return c, p
}

// heardTypes returns the types of the messages that this side has sent.
func heardTypes(t *testing.T, p *scriptedPeer) []string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var types []string
	for r := bytes.NewReader(p.heard); r.Len() > 0; {
		b, err := readFrame(r)
		if err != nil {
			t.Fatalf("sent %q: %v", p.heard, err)
		}
		if len(b) == 0 {
			continue
		}
		name, err := messageType(b)
		if err != nil {
			t.Fatalf("sent %q: %v", b, err)
		}
		types = append(types, name)
	}
	return types
}

// finish checks a connection whose handshake has ended with err, closes it, and checks the final
// state. order has the types of the messages that this side sends in a successful handshake.
func finish(t *testing.T, c *Conn, p *scriptedPeer, err error, order ...string) {
	t.Helper()
	if err == nil {
		// The reader gets to the end of the script, unless it fails before.
		<-c.Done()
	} else if c.Err() == nil {
		t.Errorf("failed with %v and did not end", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-c.Done():
	default:
		t.Error("closed and not done")
	}
	if c.Err() == nil || errors.Is(c.Err(), errOwn) {
		t.Errorf("ended with %v", c.Err())
	}
	if !p.closed {
		t.Error("the socket is open")
	}
	types := heardTypes(t, p)
	if n := len(types); n > 0 && (types[n-1] == typeBye || types[n-1] == typeRefuse) {
		types = types[:n-1]
	}
	if len(types) > len(order) || !slices.Equal(types, order[:len(types)]) || err == nil && len(types) != len(order) {
		t.Errorf("sent %q, the handshake ended with %v", types, err)
	}
}

// looseMessage has the fields of a message that the fuzz targets themselves decode.
type looseMessage struct {
	Type     string          `json:"type"`
	Magic    string          `json:"magic"`
	Versions Versions        `json:"versions"`
	Version  int             `json:"version"`
	Mode     protocol.Mode   `json:"mode"`
	Modes    []protocol.Mode `json:"modes"`
	Queues   int             `json:"queues"`
	Pools    int             `json:"pools"`
	Receives int             `json:"control_receives"`
	Channels []struct {
		QPN uint32 `json:"qpn"`
	} `json:"channels"`
}

// loose decodes the first frames of a script, which must be of the given types.
func loose(script []byte, types ...string) ([]looseMessage, bool) {
	messages := make([]looseMessage, len(types))
	for i, want := range types {
		if len(script) < 4 {
			return nil, false
		}
		n := int(binary.BigEndian.Uint32(script))
		if len(script) < 4+n || json.Unmarshal(script[4:4+n], &messages[i]) != nil || messages[i].Type != want {
			return nil, false
		}
		script = script[4+n:]
	}
	return messages, true
}

// addresses reports whether m has queue pairs for this number of data channels, and enough
// control receives for a peer with this number of pools on each.
func (m *looseMessage) addresses(mode protocol.Mode, queues, pools int) bool {
	seen := make(map[uint32]bool)
	for _, c := range m.Channels {
		seen[c.QPN] = true
	}
	return len(seen) == queues+1 && len(m.Channels) == queues+1 && !seen[0] && !seen[1] &&
		m.Receives >= protocol.ControlReceives(mode, queues, pools)
}

// FuzzServer runs the I/O unit's side against hosts that send any messages in any order. There
// may be a session only after valid messages.
func FuzzServer(f *testing.F) {
	hello, accept, ready := helloWith(f, nil), changed(f, acceptMessage{typeAccept, testAccept()}, nil), `{"type":"ready"}`
	bye := changed(f, byeMessage{typeBye, CodeFailed, "x"}, nil)
	sends := helloWith(f, map[string]any{"modes": []string{"send-uc", "imm"}, "pools": 64})
	for i, s := range []string{
		"", hello, hello + "\n" + accept, hello + "\n" + accept + "\n" + ready, hello + "\n" + accept + "\n" + ready +
			"\n\n\n" + bye,
		hello + "\n" + bye, ready, accept, hello + "\n" + hello, hello + "\n" + ready, hello + "\n\n" + accept,
		hello + "\n" + accept + "\n" + ready + "\n" + ready,
		sends + "\n" + accept + "\n" + ready,
		hello + "\n" + changed(f, acceptMessage{typeAccept, testAccept()}, map[string]any{"type": "ready"}) + "\n" + ready,
		hello + "\n" + changed(f, acceptMessage{typeAccept, testAccept()}, map[string]any{"channels": testChannels(5, 2)}) +
			"\n" + ready,
	} {
		f.Add(s, []byte{0, 0, 0, 0}, uint8(i))
		f.Add(s, []byte{}, uint8(3))
	}
	security := insecure(f)
	f.Fuzz(func(t *testing.T, lines string, raw []byte, how uint8) {
		c, peer := newScripted(security, roleHost, lines, raw, how)
		ctx := context.Background()
		err := func() error {
			s, err := greet(ctx, c, nil)
			if err != nil {
				return err
			}
			h := s.Hello()
			w := testWelcome()
			w.Mode = ""
			for _, m := range h.Modes {
				if w.Mode == "" && m.Known() {
					w.Mode = m
				}
			}
			if w.Mode == "" {
				return errors.Join(errors.New("no mode"), s.Refuse(CodeMode, "none"))
			}
			w.Queues, w.Pools, w.MTU = min(h.Queues, 2), min(3, w.Mode.MaxPools()), h.MaxMTU
			w.Channels = testChannels(100, w.Queues+1)
			w.ControlReceives = protocol.ControlReceives(w.Mode, w.Queues, h.PoolsIn(w.Mode))
			if _, err := s.Welcome(ctx, w); err != nil {
				return err
			}
			if err := s.Ready(ctx); err != nil {
				return err
			}
			m, ok := loose(peer.script, typeHello, typeAccept, typeReady)
			if !ok || m[0].Magic != magic || m[0].Versions.Min > 1 || m[0].Versions.Max < 1 ||
				!slices.Contains(m[0].Modes, w.Mode) || m[0].Queues < w.Queues || m[0].Pools < 1 || m[0].Pools > 64 ||
				!m[1].addresses(w.Mode, w.Queues, w.Pools) {
				t.Errorf("established by %q", peer.script)
			}
			return nil
		}()
		finish(t, c, peer, err, typeWelcome, typeReady)
	})
}

// FuzzClient runs the host's side against I/O units that send any messages in any order. There
// may be a session only after valid messages.
func FuzzClient(f *testing.F) {
	hello := testHello()
	good := testWelcome()
	good.Version, good.Features, good.Offloads = 1, []string{"late"}, hello.Offloads
	message := welcomeMessage{typeWelcome, good}
	welcome, ready := changed(f, message, nil), `{"type":"ready"}`
	send := changed(f, message, map[string]any{"mode": "send", "pools": 1})
	refuse := changed(f, refuseMessage{typeRefuse, CodeFull, "x", Versions{}, true, 0}, nil)
	bye := changed(f, byeMessage{typeBye, CodeFailed, "x"}, nil)
	for i, s := range []string{
		"", refuse, bye, ready, welcome, welcome + "\n" + ready, welcome + "\n" + ready + "\n\n" + bye, welcome + "\n" +
			refuse,
		welcome + "\n" + welcome, welcome + "\n\n" + ready, welcome + "\n" + ready + "\n" + ready, send + "\n" + ready,
		changed(f, message, map[string]any{"type": "ready"}) + "\n" + ready,
		changed(f, message, map[string]any{"mode": "send-uc"}) + "\n" + ready,
		changed(f, message, map[string]any{"control_receives": 1}) + "\n" + ready,
		changed(f, refuseMessage{typeRefuse, CodeVersion, "x", Versions{2, 3}, false, 0}, nil),
	} {
		f.Add(s, []byte{255, 255, 255, 255}, uint8(i))
		f.Add(s, []byte{}, uint8(3))
	}
	security := insecure(f)
	f.Fuzz(func(t *testing.T, lines string, raw []byte, how uint8) {
		c, peer := newScripted(security, roleUnit, lines, raw, how)
		ctx := context.Background()
		cl := &Client{Conn: c}
		err := func() error {
			w, err := cl.Hello(ctx, hello)
			if err != nil {
				return err
			}
			if err := cl.Accept(ctx, Accept{
				ControlReceives: protocol.ControlReceives(w.Mode, w.Queues, w.Pools),
				Channels:        testChannels(200, w.Queues+1),
			}); err != nil {
				return err
			}
			if err := cl.Ready(ctx); err != nil {
				return err
			}
			m, ok := loose(peer.script, typeWelcome, typeReady)
			if !ok || m[0].Version != 1 || !m[0].Mode.Known() || !slices.Contains(hello.Modes, m[0].Mode) ||
				m[0].Queues < 1 || m[0].Queues > hello.Queues || m[0].Pools < 1 || m[0].Pools > m[0].Mode.MaxPools() ||
				!m[0].addresses(m[0].Mode, m[0].Queues, hello.PoolsIn(m[0].Mode)) {
				t.Errorf("established by %q", peer.script)
			}
			return nil
		}()
		finish(t, c, peer, err, typeHello, typeAccept, typeReady)
	})
}
