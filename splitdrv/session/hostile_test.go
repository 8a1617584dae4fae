package session

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// rawHost connects to ln with TLS as s does. The test does the rest.
func rawHost(t *testing.T, ln *Listener, s *Security) *tls.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(nc, newConn(nc, s, roleUnit, time.Now().Add(time.Hour), time.Minute).tlsConfig())
	t.Cleanup(func() { c.Close() })
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c
}

func frame(payload string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// helloWith returns the JSON of a valid hello with some fields changed.
func helloWith(t testing.TB, change map[string]any) string {
	t.Helper()
	return changed(t, helloMessage{typeHello, magic, spoken, testHello()}, change)
}

func changed(t testing.TB, message any, change map[string]any) string {
	t.Helper()
	b, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	for k, v := range change {
		fields[k] = v
	}
	if b, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHostileHellos(t *testing.T) {
	host, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit})
	for _, tt := range []struct {
		name   string
		bytes  []byte
		want   error
		reason string
	}{
		{"giant frame", []byte{0, 1, 0, 1}, ErrFrame, "frame"},
		{"largest length", []byte{255, 255, 255, 255}, ErrFrame, "frame"},
		{"cut length", []byte{0, 0}, ErrPeerGone, "gone"},
		{"cut frame", frame(helloWith(t, nil))[:100], ErrPeerGone, "gone"},
		{"nothing", nil, ErrPeerGone, "gone"},
		{"heartbeat", frame(""), ErrMessage, "message"},
		{"garbage", frame("\x00\xff garbage"), ErrMessage, "message"},
		{"no object", frame(`[]`), ErrMessage, "message"},
		{"deep nesting", frame(strings.Repeat("[", 60000)), ErrMessage, "message"},
		{"other message", frame(`{"type":"accept"}`), ErrUnexpected, "out-of-turn"},
		{"no type", frame(`{}`), ErrUnexpected, "out-of-turn"},
		{"refuse from a host", frame(`{"type":"refuse"}`), ErrUnexpected, "out-of-turn"},
		{"magic", frame(helloWith(t, map[string]any{"magic": "other"})), ErrMessage, "field-magic"},
		{"versions backwards", frame(helloWith(t, map[string]any{"versions": Versions{2, 1}})), ErrMessage, "field-versions"},
		{"wrong type of field", frame(helloWith(t, map[string]any{"queues": "two"})), ErrMessage, "message"},
		{"queues", frame(helloWith(t, map[string]any{"queues": 256})), ErrMessage, "field-queues"},
		{"bye", frame(`{"type":"bye","code":"failed"}`), nil, "bye"},
		{"elsewhere", frame(`{"type":"bye","code":"elsewhere"}`), nil, "elsewhere"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := rawHost(t, ln, host)
			if _, err := c.Write(tt.bytes); err != nil {
				t.Fatal(err)
			}
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			err := rejected.next(t)
			if tt.want != nil && !errors.Is(err, tt.want) || Reason(err) != tt.reason {
				t.Errorf("got %v, %q, want %v, %q", err, Reason(err), tt.want, tt.reason)
			}
			// The connection must end. The I/O unit must go on.
			io.Copy(io.Discard, c)
		})
	}
	establish(t, ln, host)
}

func TestFieldsOfHello(t *testing.T) {
	for field, values := range map[string][]any{
		"name":     {"", "has space", "bell\a", strings.Repeat("n", 254)},
		"software": {"line\nfeed", strings.Repeat("s", 513)},
		"modes": {nil, "imm", []string{}, []string{""}, []string{"imm", "a b"}, []string{strings.Repeat("m", 65)},
			[]string{"imm", "imm"}, strings.Split("a b c d e f g h i", " ")},
		"queues":   {0, -1, 256, 1 << 40},
		"pools":    {0, -1, 65},
		"max_mtu":  {0, 67, 65536},
		"offloads": {"csum", []int{1}},
		"mac":      {"ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "x", ""},
		"features": {[]string{""}, []string{"a b"}, make([]string, 65), "early"},
	} {
		for _, v := range values {
			if _, err := decodeHello([]byte(helloWith(t, map[string]any{field: v}))); !errors.Is(err, ErrMessage) {
				t.Errorf("%s %v: %v", field, v, err)
			}
		}
	}
	// Additions of later versions are ignored.
	h, err := decodeHello([]byte(helloWith(t, map[string]any{
		"later": map[string]int{"x": 1}, "features": []string{"early", "later"},
		"offloads": []string{"tso4", "later"}, "versions": Versions{1, 9}, "modes": strings.Split("a b c d e f g h", " "),
		"pools": 64,
	})))
	if err != nil || h.Offloads.String() != "tso4" || len(h.Modes) != 8 {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestFieldsOfWelcome(t *testing.T) {
	hello := testHello()
	good := testWelcome()
	good.Version, good.Features, good.Offloads = 1, []string{"late"}, hello.Offloads
	message := welcomeMessage{typeWelcome, good}
	if _, err := decodeWelcome([]byte(changed(t, message, nil)), &hello); err != nil {
		t.Fatal(err)
	}
	channels := func(change func([]Channel)) []Channel {
		c := testChannels(100, 3)
		change(c)
		return c
	}
	for field, values := range map[string][]any{
		"session":  {"", "a b", strings.Repeat("s", 65)},
		"name":     {"", "a/b"},
		"software": {"\x1b[31m"},
		"mode":     {"", "indicate", "later", nil},
		"queues":   {0, 1, 3, -1},
		"pools":    {0, -1, 65},
		"mac":      {"01:00:00:00:00:00", nil},
		"mtu":      {67, 9001},
		"offloads": {[]string{"uso"}},
		"features": {[]string{"unasked"}},
		"link":     {map[string]any{"up": 1}, map[string]any{"speed_mbps": -1}},
		"control_receives": {
			protocol.ControlReceives(protocol.ModeImm, good.Queues, hello.Pools) - 1, MaxControlReceives + 1, -1},
		"channels": {
			nil, testChannels(100, 2), testChannels(100, 4), testChannels(0, 3), testChannels(1, 3),
			channels(func(c []Channel) { c[2].QPN = c[0].QPN }),
			channels(func(c []Channel) { c[1].QPN = 1 << 24 }),
			channels(func(c []Channel) { c[1].QPN = 1<<24 - 1 }),
			channels(func(c []Channel) { c[1].PSN = 1 << 24 }),
			channels(func(c []Channel) { c[1].MTU = 128 }),
			channels(func(c []Channel) { c[1].MTU = 1500 }),
			channels(func(c []Channel) { c[1].MTU = 8192 }),
			[]map[string]any{{"gid": "fe80"}, {}, {}},
			[]map[string]any{{"gid": strings.Repeat("x", 32)}, {}, {}},
			[]map[string]any{{"lid": 65536}, {}, {}},
		},
	} {
		for _, v := range values {
			if _, err := decodeWelcome([]byte(changed(t, message, map[string]any{field: v})), &hello); !errors.Is(err,
				ErrMessage) {
				t.Errorf("%s %v: %v", field, v, err)
			}
		}
	}
	var version *VersionError
	if _, err := decodeWelcome([]byte(changed(t, message, map[string]any{"version": 2})), &hello); !errors.As(err,
		&version) {
		t.Errorf("version 2: %v", err)
	}

	// The requirements depend on the mode.
	hello.Queues, hello.Pools, hello.Modes = 3, 64, protocol.Modes()
	for _, tt := range []struct {
		mode            protocol.Mode
		pools, receives int
		field           string // the invalid field
	}{
		{protocol.ModeImm, 64, 2*258 + 16, ""},
		{protocol.ModeImm, 64, 2*258 + 15, "control_receives"},
		{protocol.ModeIndicate, 1, 2*274 + 16, ""},
		{protocol.ModeIndicate, 64, 2*274 + 15, "control_receives"},
		{protocol.ModeSend, 1, 2*6 + 16, ""}, // the host lends one pool, too
		{protocol.ModeSend, 1, 2*6 + 15, "control_receives"},
		{protocol.ModeSend, 2, 1000, "pools"},
		{protocol.ModeSendUC, 2, 1000, "pools"},
	} {
		w := good
		w.Mode, w.Pools, w.ControlReceives = tt.mode, tt.pools, tt.receives
		err := w.validate(&hello)
		if tt.field == "" && err != nil || tt.field != "" &&
			(!errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), tt.field+" is")) {
			t.Errorf("%+v: %v", tt, err)
		}
		if tt.field != "" {
			continue
		}
		a := Accept{ControlReceives: protocol.ControlReceives(tt.mode, w.Queues, w.Pools), Channels: testChannels(200, 3)}
		if err := a.validate(&w); err != nil {
			t.Errorf("%+v: accept: %v", tt, err)
		}
		a.ControlReceives--
		if err := a.validate(&w); !errors.Is(err, ErrMessage) {
			t.Errorf("%+v: accept with %d control receives: %v", tt, a.ControlReceives, err)
		}
	}
}

func TestFieldsOfAccept(t *testing.T) {
	welcome := testWelcome()
	message := acceptMessage{typeAccept, testAccept()}
	if _, err := decodeAccept([]byte(changed(t, message, nil)), &welcome); err != nil {
		t.Fatal(err)
	}
	for field, values := range map[string][]any{
		"control_receives": {0, protocol.ControlReceives(protocol.ModeImm, 2, 3) - 1, MaxControlReceives + 1},
		"channels":         {nil, testChannels(100, 2), testChannels(0, 3)},
	} {
		for _, v := range values {
			if _, err := decodeAccept([]byte(changed(t, message, map[string]any{field: v})), &welcome); !errors.Is(err,
				ErrMessage) {
				t.Errorf("%s %v: %v", field, v, err)
			}
		}
	}
}

func TestVersionMismatch(t *testing.T) {
	host, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit})
	c := rawHost(t, ln, host)
	// In a hello of another version, only the versions have to be valid.
	if _, err := c.Write(frame(`{"type":"hello","magic":"splitnic","versions":{"min":2,"max":3},"queues":"many"}`)); err != nil {
		t.Fatal(err)
	}
	b, err := readFrame(c)
	if err != nil {
		t.Fatal(err)
	}
	var m refuseMessage
	if err := json.Unmarshal(b, &m); err != nil || m.Code != CodeVersion || m.Versions != (Versions{1, 1}) {
		t.Errorf("refused with %s, %v", b, err)
	}
	var version *VersionError
	if err := rejected.next(t); !errors.As(err, &version) || *version != (VersionError{Versions{1, 1}, Versions{2, 3}}) {
		t.Errorf("I/O unit: %v", err)
	}
	if err := decodeRefuse([]byte(`{"type":"refuse","code":"version","versions":{"min":2,"max":3}}`)); !errors.As(err,
		&version) ||
		*version != (VersionError{Versions{1, 1}, Versions{2, 3}}) {
		t.Errorf("host: %v", err)
	}
	if s := version.Error(); !strings.Contains(s, "version 1") || !strings.Contains(s, "versions 2 to 3") {
		t.Errorf("text without both ranges: %s", s)
	}
}

func TestBadHelloIsRefused(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	c := rawHost(t, ln, host)
	if _, err := c.Write(frame(helloWith(t, map[string]any{"queues": 0}))); err != nil {
		t.Fatal(err)
	}
	b, err := readFrame(c)
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if err := decodeRefuse(b); !errors.As(err, &refused) || refused.Code != CodeBadHello ||
		!strings.Contains(refused.Message, "queues") {
		t.Errorf("refused with %v", err)
	}
	if b, err := readFrame(c); err == nil {
		t.Errorf("after the refusal: %s", b)
	}
}

func TestSilentHostsKeepNobodyOut(t *testing.T) {
	host, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit, MaxHandshakes: 1})
	// One host that sends nothing at all, and one that stops after TLS.
	silent, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	rawHost(t, ln, host)
	establish(t, ln, host)
	// The second host has taken the place of the first, and the third that of the second.
	for range 2 {
		if err := rejected.next(t); !errors.Is(err, ErrTooManyHandshakesAddress) {
			t.Errorf("rejected for %v", err)
		}
	}
}

func TestSilentHostIsDropped(t *testing.T) {
	_, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit, HandshakeTimeout: 100 * time.Millisecond})
	silent, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := rejected.next(t); err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("rejected for %v", err)
	}
	if n, err := silent.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes", n)
	}
}

func TestTooManyWaiting(t *testing.T) {
	host, unit := friends(t)
	ln, rejected := listen(t, ServerConfig{Security: unit, MaxHandshakes: 1})
	ln.mu.Lock()
	ln.waiting = 1
	ln.mu.Unlock()
	var refused *RefusedError
	if err := knock(t, ln, host); !errors.As(err, &refused) || refused.Code != CodeBusy || !refused.Retry {
		t.Errorf("host: %v", err)
	}
	if err := rejected.next(t); !errors.Is(err, ErrTooManyHandshakes) {
		t.Errorf("I/O unit: %v", err)
	}
}

func TestClosingRefusesThoseWhoWait(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	knocked := make(chan error, 1)
	go func() { knocked <- call(t, ln, host) }()
	s, err := ln.Accept(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := ln.deliver(s); !errors.Is(err, net.ErrClosed) {
		t.Errorf("I/O unit: %v", err)
	}
	var refused *RefusedError
	if err := <-knocked; !errors.As(err, &refused) || refused.Code != CodeShuttingDown || !refused.Retry {
		t.Errorf("host: %v", err)
	}
}

func TestHostileAfterReady(t *testing.T) {
	host, unit := friends(t)
	ln, _ := listen(t, ServerConfig{Security: unit})
	for _, tt := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"heartbeats, then giant", append(bytes.Repeat(frame(""), 1000), 255, 255, 255, 255), ErrFrame},
		{"garbage", frame("garbage"), ErrMessage},
		{"hello", frame(`{"type":"hello"}`), ErrUnexpected},
		{"bye of the wrong type", frame(`{"type":"bye","code":1}`), ErrMessage},
	} {
		c, s := establish(t, ln, host)
		c.writing.Lock()
		_, err := c.tls.Write(tt.bytes)
		c.writing.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := waitDone(t, s.Conn); !errors.Is(err, tt.want) {
			t.Errorf("%s: the I/O unit ended with %v", tt.name, err)
		}
		var bye *ByeError
		if err := waitDone(t, c.Conn); !errors.As(err, &bye) || bye.Code != CodeProtocol {
			t.Errorf("%s: the host ended with %v", tt.name, err)
		}
	}
}

// failingListener fails to accept a few times, as if there were no file descriptors left.
type failingListener struct {
	net.Listener
	failures chan error
}

func (l *failingListener) Accept() (net.Conn, error) {
	select {
	case err := <-l.failures:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

func TestAcceptSurvivesErrors(t *testing.T) {
	host, unit := friends(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failures := make(chan error, 3)
	for range cap(failures) {
		failures <- errors.New("too many open files")
	}
	ln, err := NewListener(&failingListener{inner, failures}, ServerConfig{Security: unit})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	establish(t, ln, host)
}

// TestLongValue decodes a hello with an invalid value that is as long as a message can be. The
// error must be short.
func TestLongValue(t *testing.T) {
	_, err := decodeHello([]byte(`{"magic":"splitnic","versions":{"min":1,"max":1},"queues":` +
		strings.Repeat("9", maxFrame-100) + `}`))
	if err == nil || !errors.Is(err, ErrMessage) {
		t.Fatalf("%v", err)
	}
	if n := len(err.Error()); n > 2*maxText {
		t.Errorf("%d bytes about it", n)
	}
}
