package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

func testPeer() *DirectPeer {
	vlans := protocol.VLANSet{}
	vlans.Add(5)
	return &DirectPeer{Platform: 0x7c1f09e2b35a6d48, Name: "node18", MACs: []protocol.MAC{{2, 0, 0, 0, 0, 2}},
		Own: []protocol.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 1, 1}}, VLANs: vlans}
}

// directs returns messages about direct connections, by step, and their encoding.
func directs() map[DirectStep]struct {
	message  Direct
	fromUnit bool
	golden   string
} {
	const id = 0x1122334455667788
	secret := DirectSecret{0: 0xab, 31: 0xcd}
	type m = struct {
		message  Direct
		fromUnit bool
		golden   string
	}
	channels := []Channel{{QPN: 17, PSN: 1, MTU: 1024}, {QPN: 18, PSN: 2, LID: 3, MTU: 4096}}
	const channelsJSON = `"control_receives":36,"channels":[` +
		`{"qpn":17,"psn":1,"gid":"00000000000000000000000000000000","lid":0,"mtu":1024},` +
		`{"qpn":18,"psn":2,"gid":"00000000000000000000000000000000","lid":3,"mtu":4096}]`
	const peerJSON = `"peer":{"platform":"7c1f09e2b35a6d48","name":"node18","macs":["02:00:00:00:00:02"],` +
		`"own":["02:00:00:00:00:01","02:00:00:00:01:01"],"vlans":"5"}`
	head := func(s string) string { return `{"type":"direct","step":"` + s + `","id":"1122334455667788"` }
	return map[DirectStep]m{
		DirectOffer: {Direct{Step: DirectOffer, ID: id, Peer: testPeer(), Mode: protocol.ModeImm, MTU: 1500, Pools: 4,
			Features: []string{"pack", "window"}, Secret: &secret, First: true}, true,
			head("offer") + `,` + peerJSON + `,"mode":"imm","mtu":1500,"pools":4,"features":["pack","window"],"secret":"ab` +
				strings.Repeat("00", 30) + `cd","first":true}`},
		DirectAccept: {Direct{Step: DirectAccept, ID: id, ControlReceives: 36, Channels: channels}, false,
			head("accept") + `,` + channelsJSON + `}`},
		DirectConnect: {Direct{Step: DirectConnect, ID: id, ControlReceives: 36, Channels: channels}, true,
			head("connect") + `,` + channelsJSON + `}`},
		DirectReady: {Direct{Step: DirectReady, ID: id}, false, head("ready") + `}`},
		DirectStart: {Direct{Step: DirectStart, ID: id}, true, head("start") + `}`},
		DirectEnd:   {Direct{Step: DirectEnd, ID: id, Reason: "idle"}, true, head("end") + `,"reason":"idle"}`},
		DirectEnded: {Direct{Step: DirectEnded, ID: id}, false, head("ended") + `}`},
		DirectHeld: {Direct{Step: DirectHeld, ID: id, Platform: 7}, false,
			head("held") + `,"platform":"0000000000000007"}`},
		DirectKeep: {Direct{Step: DirectKeep, ID: id, Peer: testPeer()}, true, head("keep") + `,` + peerJSON + `}`},
	}
}

// TestDirectGolden checks the encoding of each message. Only the other side may accept it,
// except that both sides send and accept the messages about the end.
func TestDirectGolden(t *testing.T) {
	for step, m := range directs() {
		b, err := json.Marshal(directMessage{typeDirect, m.message})
		if err != nil || string(b) != m.golden {
			t.Errorf("%s is\n%s, want\n%s, %v", step, b, m.golden, err)
		}
		got, err := decodeDirect([]byte(m.golden), m.fromUnit)
		if err != nil || !reflect.DeepEqual(got, &m.message) {
			t.Errorf("%s: %+v, %v", step, got, err)
		}
		_, err = decodeDirect([]byte(m.golden), !m.fromUnit)
		if both := step == DirectEnd || step == DirectEnded; both != (err == nil) {
			t.Errorf("%s from the wrong side: %v", step, err)
		}
	}
}

// TestFieldsOfDirect sets each field to invalid values, which must be refused.
func TestFieldsOfDirect(t *testing.T) {
	all := directs()
	with := func(change map[string]any) map[string]any {
		var peer map[string]any
		b, err := json.Marshal(testPeer())
		if err := errors.Join(err, json.Unmarshal(b, &peer)); err != nil {
			t.Fatal(err)
		}
		for k, v := range change {
			peer[k] = v
		}
		return peer
	}
	many := make([]string, MaxDirectAddresses+1)
	for i := range many {
		many[i] = protocol.MAC{2, 1, 0, 0, 0, byte(i)}.String()
	}
	peers := []any{
		with(map[string]any{"platform": "0000000000000000"}), with(map[string]any{"platform": 7}),
		with(map[string]any{"name": ""}), with(map[string]any{"name": "a b"}), with(map[string]any{"macs": []string{}}),
		with(map[string]any{"macs": []string{"01:00:5e:00:00:01"}}), with(map[string]any{"macs": many}),
		with(map[string]any{"own": nil}), with(map[string]any{"own": []string{"00:00:00:00:00:00"}}),
		with(map[string]any{"own": many}), with(map[string]any{"own": []string{"02:00:00:00:00:02"}}), // the other's too
		with(map[string]any{"vlans": "4095"}), "node18",
	}
	channels := []any{nil, testChannels(100, 1), testChannels(100, 3), testChannels(0, 2),
		[]Channel{testChannels(9, 1)[0], testChannels(9, 1)[0]}}
	for step, fields := range map[DirectStep]map[string][]any{
		DirectOffer: {
			"id": {"0000000000000000", "1", 1, strings.Repeat("g", 16), nil}, "peer": append(peers, nil),
			"secret": {nil, "", strings.Repeat("0", 62), strings.Repeat("0", 66), strings.Repeat("x", 64)},
			"mode":   {"", "fast", nil}, "mtu": {67, 65536, -1}, "pools": {0, -1, protocol.MaxChannelPools + 1},
			"features": {[]string{"a b"}, make([]string, 65)}, "step": {"", "other"},
		},
		DirectKeep:    {"peer": append(peers, nil)},
		DirectAccept:  {"channels": channels, "control_receives": {0, -1, MaxControlReceives + 1}},
		DirectConnect: {"channels": channels, "control_receives": {0, -1, MaxControlReceives + 1}},
		DirectHeld:    {"platform": {"0000000000000000", nil, 1}},
		DirectEnd:     {"reason": {strings.Repeat("x", 513), "a\x1bb", 1}},
		DirectEnded:   {"reason": {"a\nb"}},
		DirectReady:   {"id": {"0000000000000000", "112233445566778"}},
	} {
		m := all[step]
		for field, values := range fields {
			for _, v := range values {
				b := changed(t, directMessage{typeDirect, m.message}, map[string]any{field: v})
				if _, err := decodeDirect([]byte(b), m.fromUnit); !errors.Is(err, ErrMessage) {
					t.Errorf("%s with %s %v: %v", step, field, v, err)
				}
			}
		}
	}
	sends := all[DirectOffer]
	b := changed(t, directMessage{typeDirect, sends.message}, map[string]any{"mode": "send"})
	if _, err := decodeDirect([]byte(b), true); !errors.Is(err, ErrMessage) {
		t.Errorf("4 pools in mode send: %v", err)
	}
}

// TestExtremesOfDirect sets fields to the least and the greatest valid values, which must be
// accepted.
func TestExtremesOfDirect(t *testing.T) {
	for step, fields := range map[DirectStep]map[string][]any{
		DirectOffer:  {"mtu": {protocol.MinMTU, protocol.MaxMTU}, "pools": {1, protocol.MaxChannelPools}},
		DirectAccept: {"control_receives": {1, MaxControlReceives}},
		DirectEnd:    {"reason": {"", strings.Repeat("x", maxText)}},
	} {
		m := directs()[step]
		for field, values := range fields {
			for _, v := range values {
				b := changed(t, directMessage{typeDirect, m.message}, map[string]any{field: v})
				if _, err := decodeDirect([]byte(b), m.fromUnit); err != nil {
					t.Errorf("%s with %s %v: %v", step, field, v, err)
				}
			}
		}
	}
}

// TestDirectPeerEqual changes each field of a DirectPeer. Afterwards it must not be equal, except with
// another name.
func TestDirectPeerEqual(t *testing.T) {
	p, named := testPeer(), testPeer()
	named.Name += "x"
	if !p.Equal(testPeer()) || !p.Equal(named) {
		t.Error("a peer is not as itself")
	}
	for name, change := range map[string]func(*DirectPeer){
		"platform":         func(o *DirectPeer) { o.Platform++ },
		"an address":       func(o *DirectPeer) { o.MACs = []protocol.MAC{{2, 9}} },
		"an address more":  func(o *DirectPeer) { o.MACs = append(o.MACs, protocol.MAC{2, 9}) },
		"another own":      func(o *DirectPeer) { o.Own = []protocol.MAC{{2, 9}} },
		"one VLAN or less": func(o *DirectPeer) { o.VLANs[0] ^= 2 },
	} {
		o := testPeer()
		if change(o); p.Equal(o) {
			t.Errorf("%s makes no difference", name)
		}
	}
}

func FuzzDirect(f *testing.F) {
	for _, m := range directs() {
		f.Add([]byte(m.golden), m.fromUnit)
	}
	f.Fuzz(func(t *testing.T, b []byte, fromUnit bool) {
		d, err := decodeDirect(b, fromUnit)
		if err != nil {
			return
		}
		encoded, err := encodeFrame(directMessage{typeDirect, *d})
		if err != nil {
			t.Fatalf("%+v was accepted, but: %v", d, err)
		}
		again, err := decodeDirect(encoded[4:], fromUnit)
		if err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		if b, err := encodeFrame(directMessage{typeDirect, *again}); err != nil || !bytes.Equal(b, encoded) {
			t.Errorf("%s, again\n%s, %v", encoded, b, err)
		}
	})
}

// TestDirectSecretIsNotPrinted formats a DirectSecret in every way. The secret must not be in
// the result.
func TestDirectSecretIsNotPrinted(t *testing.T) {
	s := DirectSecret{1, 2, 3}
	d := &Direct{Secret: &s}
	for _, v := range []any{s, &s, *d, d, directMessage{typeDirect, *d}} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, "010203") || strings.Contains(text, "1 2 3") ||
				strings.Contains(text, "0x1, 0x2") {
				t.Errorf("%s: %s", format, text)
			}
		}
	}
}

// direct returns an established session in which both sides handle messages about direct
// connections.
func direct(t *testing.T, host, unit func(*Direct)) (*Client, *Server) {
	t.Helper()
	h, u := friends(t)
	ln, _ := listen(t, ServerConfig{Security: u})
	c, err := Dial(testContext(t), ln.Addr().String(), ClientConfig{Security: h, HandshakeTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c.HandleDirect(host)
	return c, complete(t, ln, c, func(s *Server) { s.HandleDirect(unit) })
}

// TestDirectMessages sends each message over an established session. It must arrive unchanged.
func TestDirectMessages(t *testing.T) {
	atHost, atUnit := make(chan *Direct, 1), make(chan *Direct, 1)
	c, s := direct(t, func(d *Direct) { atHost <- d }, func(d *Direct) { atUnit <- d })
	for step, m := range directs() {
		from, to := c.Conn, atUnit
		if m.fromUnit {
			from, to = s.Conn, atHost
		}
		if err := from.SendDirect(&m.message, time.Minute); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got := <-to; !reflect.DeepEqual(got, &m.message) {
			t.Errorf("%s: %+v", step, got)
		}
	}
	if err := c.SendDirect(&Direct{Step: DirectStart, ID: 1}, time.Minute); !errors.Is(err, ErrMessage) {
		t.Errorf("a host says start: %v", err)
	}
	if c.Err() != nil || s.Err() != nil {
		t.Errorf("%v, %v", c.Err(), s.Err())
	}
}

// TestDirectUnreadable has a host send messages that the I/O unit refuses. They must end the
// session.
func TestDirectUnreadable(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		want    error
	}{
		"of the other side": {directs()[DirectStart].golden, ErrMessage},
		"no step":           {`{"type":"direct","id":"1122334455667788"}`, ErrMessage},
		"no JSON":           {`{"type":"direct",`, ErrMessage},
	} {
		c, s := direct(t, func(*Direct) {}, func(*Direct) { t.Error("it was handled") })
		c.writing.Lock()
		_, err := c.tls.Write(frame(tt.message))
		c.writing.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := waitDone(t, s.Conn); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDirectWithoutFeature has a host send a message about direct connections in a session
// without that feature. It must end the session.
func TestDirectWithoutFeature(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c, s := establish(t, ln, host)
	if err := c.SendDirect(&Direct{Step: DirectReady, ID: 1}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := waitDone(t, s.Conn); !errors.Is(err, ErrUnexpected) {
		t.Error(err)
	}
}

// TestDirectTooOften floods a connection with messages. Those above the rate limit must wait.
func TestDirectTooOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := newConn(near, insecure(t), roleHost, time.Now().Add(time.Hour), time.Second)
		c.stream = near
		n := 0
		c.HandleDirect(func(*Direct) { n++ })
		message := []byte(directs()[DirectEnded].golden)
		began := time.Now()
		for range directBurst + 2*directRate {
			if err := c.hear(typeDirect, message); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); n != directBurst+2*directRate || took < 2*time.Second-10*time.Millisecond ||
			took > 3*time.Second {
			t.Errorf("%d messages in %v", n, took)
		}
	})
}

// TestDirectUnread has a host that does not read messages. The session must end after the
// time-out of SendDirect.
func TestDirectUnread(t *testing.T) {
	hold := make(chan struct{})
	c, s := direct(t, func(*Direct) { <-hold }, func(*Direct) {})
	defer close(hold)
	// The kernel gives up a peer that has read nothing for half the peer timeout. The buffers
	// must be full before that.
	for _, c := range []*Conn{c.Conn, s.Conn} {
		tcp := c.raw.(*net.TCPConn)
		if err := errors.Join(tcp.SetReadBuffer(4096), tcp.SetWriteBuffer(4096)); err != nil {
			t.Fatal(err)
		}
	}
	offer := directs()[DirectOffer].message
	for {
		err := s.SendDirect(&offer, 100*time.Millisecond)
		if err == nil {
			continue
		}
		// Without the time-out, the session would end too, but for another reason.
		err = waitDone(t, s.Conn)
		if !errors.Is(err, ErrPeerGone) || !strings.Contains(err.Error(), "does not read what it is sent") {
			t.Error(err)
		}
		break
	}
}
