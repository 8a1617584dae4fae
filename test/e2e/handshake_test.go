package e2e

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// newcomer is a host in its handshake, which sends the messages of a test.
type newcomer struct {
	t       testing.TB
	c       *tls.Conn
	welcome map[string]any
}

// fields has the fields of a message.
type fields map[string]any

// with returns a copy of the message with one field changed.
func (f fields) with(name string, v any) fields {
	other := maps.Clone(f)
	other[name] = v
	return other
}

func goodHello() fields {
	return fields{
		"type": "hello", "magic": "splitnic", "versions": map[string]int{"min": 1, "max": 1},
		"name": "newcomer", "software": "test",
		"modes": []string{"imm"}, "queues": 1, "pools": 2, "max_mtu": 1500, "features": []string{}, "offloads": []string{},
	}
}

func (n *newcomer) say(m fields) {
	n.t.Helper()
	if err := writeMessage(n.c, m); err != nil {
		n.t.Fatal(err)
	}
}

// raw sends a frame with any payload.
func (n *newcomer) raw(payload string) {
	n.t.Helper()
	n.bytes(append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...))
}

func (n *newcomer) bytes(b []byte) {
	n.t.Helper()
	if _, err := n.c.Write(b); err != nil {
		n.t.Fatal(err)
	}
}

// hear waits for a message and checks its type.
func (n *newcomer) hear(what string) map[string]any {
	n.t.Helper()
	m, err := readMessage(n.c)
	if err != nil || m["type"] != what {
		n.t.Fatalf("%v, %v where a %s was expected", m, err, what)
	}
	return m
}

// meet sends a valid hello and waits for the welcome.
func (n *newcomer) meet() {
	n.t.Helper()
	n.say(goodHello())
	n.welcome = n.hear("welcome")
}

// channels returns the addresses of count queue pairs that do not exist, at the I/O unit's own port.
func (n *newcomer) channels(count int) []fields {
	n.t.Helper()
	list, _ := n.welcome["channels"].([]any)
	first, _ := list[0].(map[string]any)
	var channels []fields
	for i := range count {
		channels = append(channels, fields{"qpn": 0x7f0000 + i, "psn": 1, "gid": first["gid"], "lid": 0, "mtu": 1024})
	}
	return channels
}

func (n *newcomer) goodAccept() fields {
	return fields{"type": "accept", "control_receives": 1000, "channels": n.channels(2)}
}

// accept sends a valid hello and a valid accept, and waits for the ready.
func (n *newcomer) accept() {
	n.t.Helper()
	n.meet()
	n.say(n.goodAccept())
	n.hear("ready")
}

// TestRDMAHostileHandshake sends wrong messages at every step of the handshake, and right after it,
// for every error that the I/O unit checks for. The I/O unit has to answer each with the right
// message and count it under the right reason. Another host must not be affected.
func TestRDMAHostileHandshake(t *testing.T) {
	r := newFixture(t, "macvtap")
	r.unit.stop()
	r.insecure, r.unitFlags = true, []string{"--advanced.handshake-timeout", within(time.Second).String()}
	r.startUnit()
	good := &node{t: t, fixture: r, index: 1, ns: testenv.NetNS(t), name: "host1", insecure: true}
	r.hosts = append(r.hosts, good)
	good.start()
	good.ready()
	config := strangerTLS(t)

	badHello := func(field string, v any) func(*newcomer) {
		return func(n *newcomer) { n.say(goodHello().with(field, v)) }
	}
	badAccept := func(field string, v func(n *newcomer) any) func(*newcomer) {
		return func(n *newcomer) { n.meet(); n.say(n.goodAccept().with(field, v(n))) }
	}
	badChannel := func(field string, v any) func(*newcomer) {
		return badAccept("channels", func(n *newcomer) any {
			channels := n.channels(2)
			channels[1][field] = v
			return channels
		})
	}
	value := func(v any) func(*newcomer) any { return func(*newcomer) any { return v } }
	established := func(then func(n *newcomer)) func(*newcomer) {
		return func(n *newcomer) { n.accept(); n.say(fields{"type": "ready"}); then(n) }
	}
	giant := []byte{0, 1, 0, 1}
	refused, violations, elsewhere := map[string]uint64{}, map[string]uint64{}, uint64(0)
	for _, tt := range []struct {
		name   string
		do     func(n *newcomer)
		answer string // type and code of the last message; empty for none
		reason string // reason under which the I/O unit counts the failure
	}{
		{"giant frame", func(n *newcomer) { n.bytes(giant) }, "bye protocol", "frame"},
		{"garbage", func(n *newcomer) { n.raw("\x00\xffgarbage") }, "bye protocol", "message"},
		{"no object", func(n *newcomer) { n.raw("[]") }, "bye protocol", "message"},
		{"heartbeat", func(n *newcomer) { n.raw("") }, "bye protocol", "message"},
		{"accept before the welcome", func(n *newcomer) { n.raw(`{"type":"accept"}`) }, "bye protocol", "out-of-turn"},
		{"end", func(n *newcomer) { n.c.CloseWrite() }, "", "gone"},
		{"another I/O unit", func(n *newcomer) { n.say(fields{"type": "bye", "code": "elsewhere"}) }, "", "elsewhere"},
		{"silence", func(*newcomer) {}, "", "late"},
		{"magic", badHello("magic", "other"), "refuse bad-hello", "field-magic"},
		{"versions backwards", badHello("versions", map[string]int{"min": 2, "max": 1}), "refuse bad-hello",
			"field-versions"},
		{"another version", badHello("versions", map[string]int{"min": 8, "max": 9}), "refuse version", "version"},
		{"a name that is none", badHello("name", "a b"), "refuse bad-hello", "field-name"},
		{"control characters", badHello("software", "\x1b[31m"), "refuse bad-hello", "field-software"},
		{"no modes", badHello("modes", []string{}), "refuse bad-hello", "field-modes"},
		{"modes that are no words", badHello("modes", []string{"imm", "a b"}), "refuse bad-hello", "field-modes"},
		{"modes of another type", badHello("modes", "imm"), "refuse bad-hello", "message"},
		{"unknown mode", badHello("modes", []string{"later"}), "refuse mode", "mode"},
		{"no queues", badHello("queues", 0), "refuse bad-hello", "field-queues"},
		{"256 queues", badHello("queues", 256), "refuse bad-hello", "field-queues"},
		{"no pools", badHello("pools", 0), "refuse bad-hello", "field-pools"},
		{"65 pools", badHello("pools", 65), "refuse bad-hello", "field-pools"},
		{"MTU 67", badHello("max_mtu", 67), "refuse bad-hello", "field-max_mtu"},
		{"group address", badHello("mac", "01:00:5e:00:00:01"), "refuse bad-hello", "message"},
		{"address of the other host", badHello("mac", good.mac()), "refuse policy", "policy"},
		{"features that are no words", badHello("features", []string{""}), "refuse bad-hello", "field-features"},

		{"too few control receives", badAccept("control_receives", value(1)), "bye protocol", "field-control_receives"},
		{"too many control receives", badAccept("control_receives", value(1<<20)), "bye protocol", "field-control_receives"},
		{"too many channels", badAccept("channels", func(n *newcomer) any { return n.channels(3) }), "bye protocol",
			"field-channels"},
		{"no channels", badAccept("channels", value([]any{})), "bye protocol", "field-channels"},
		{"queue pair 0", badChannel("qpn", 0), "bye protocol", "field-qpn"},
		{"one queue pair twice", badChannel("qpn", 0x7f0000), "bye protocol", "field-qpn"},
		{"sequence number of 25 bits", badChannel("psn", 1<<24), "bye protocol", "field-psn"},
		{"path MTU 1500", badChannel("mtu", 1500), "bye protocol", "field-mtu"},
		{"GID that is none", badChannel("gid", "fe80"), "bye protocol", "message"},
		{"ready before the accept", func(n *newcomer) { n.meet(); n.say(fields{"type": "ready"}) }, "bye protocol",
			"out-of-turn"},
		{"giant frame for an accept", func(n *newcomer) { n.meet(); n.bytes(giant) }, "bye protocol", "frame"},
		{"second thoughts", func(n *newcomer) { n.meet(); n.say(fields{"type": "bye", "code": "failed"}) }, "", "bye"},
		{"silence for an accept", func(n *newcomer) { n.meet() }, "", "late"},
		{"second accept", func(n *newcomer) { n.accept(); n.say(n.goodAccept()) }, "bye protocol", "out-of-turn"},
		{"heartbeat before the ready", func(n *newcomer) { n.accept(); n.raw("") }, "bye protocol", "message"},

		{"giant frame in a session", established(func(n *newcomer) { n.bytes(giant) }), "bye protocol", "bootstrap-frame"},
		{"garbage in a session", established(func(n *newcomer) { n.raw("garbage") }), "bye protocol", "bootstrap-message"},
		{"hello in a session", established(func(n *newcomer) { n.say(goodHello()) }), "bye protocol",
			"bootstrap-out-of-turn"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := tls.Dial("tcp", unitAddress+":7580", config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			tt.do(&newcomer{t: t, c: c})
			if got := lastWord(c); got != tt.answer {
				t.Errorf("the I/O unit says %q, not %q", got, tt.answer)
			}
			switch {
			case strings.HasPrefix(tt.reason, "bootstrap-"):
				violations[tt.reason]++
			case tt.reason == "elsewhere":
				elsewhere++
			default:
				refused[tt.reason]++
			}
			var s struct {
				Refusals   map[string]uint64 `json:"refused_by"`
				Violations map[string]uint64 `json:"protocol_violations"`
				Elsewhere  uint64            `json:"elsewhere"`
			}
			// A case that is counted wrongly must not fail later cases.
			t.Cleanup(func() { refused, violations, elsewhere = s.Refusals, s.Violations, s.Elsewhere })
			eventually(t, func() bool {
				s.Refusals, s.Violations = map[string]uint64{}, map[string]uint64{}
				return r.unit.statusInto(&s) && maps.Equal(s.Refusals, refused) && maps.Equal(s.Violations, violations) &&
					s.Elsewhere == elsewhere
			}, "a status that counts %v refused, %v violations and %d elsewhere", refused, violations, elsewhere)
		})
	}
	eventually(t, func() bool { return len(r.macvtaps()) == 1 }, "what the I/O unit had for the newcomers to go")
	ping(t, good.ns, addr(0), 3, 1000)
	if s := good.hostStatus(); s.Sessions != 1 {
		t.Errorf("the host beside had to connect again: %d sessions", s.Sessions)
	}
}

// lastWord reads to the end of the connection. It returns the type and the code of the last message,
// or "" if there is none.
func lastWord(c io.Reader) string {
	last := ""
	for {
		m, err := readMessage(c)
		switch {
		case err == nil:
			last = fmt.Sprint(m["type"], " ", m["code"])
		case errors.As(err, new(*json.SyntaxError)): // a heartbeat
		case errors.Is(err, io.EOF):
			return last
		default:
			return fmt.Sprintf("%s, then %v", last, err)
		}
	}
}
