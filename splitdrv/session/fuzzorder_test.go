package session

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// words returns the messages of which scripts of FuzzOrder consist: messages of most types, valid
// and almost valid ones, and a heartbeat.
func words(f *testing.F) []string {
	hello := testHello()
	good := testWelcome()
	good.Version, good.Features, good.Offloads = 1, []string{"late"}, hello.Offloads
	welcome, accept := welcomeMessage{typeWelcome, good}, acceptMessage{typeAccept, testAccept()}
	return []string{
		"", // heartbeat
		helloWith(f, nil),
		changed(f, welcome, nil),
		changed(f, accept, nil),
		`{"type":"ready"}`,
		changed(f, byeMessage{typeBye, CodeFailed, "x"}, nil),
		changed(f, refuseMessage{typeRefuse, CodeFull, "x", Versions{}, true, 0}, nil),
		helloWith(f, map[string]any{"modes": []string{"send-uc", "imm"}}),
		helloWith(f, map[string]any{"versions": Versions{2, 3}}),
		changed(f, welcome, map[string]any{"mode": "send", "pools": 1}),
		changed(f, welcome, map[string]any{"control_receives": 1}),
		changed(f, accept, map[string]any{"channels": testChannels(5, 2)}),
		changed(f, renewMessage{typeRenew, "s-1", proof{1}}, nil),
		changed(f, renewedMessage{typeRenewed, proof{1}}, nil),
		`{"type":"drain","on":true}`,
		`{"type":"stays","reason":"x"}`,
		`{"type":"later"}`,
		`{`,
	}
}

// FuzzOrder runs the handshake, in either role, with a peer that sends known messages in any
// order. Each byte of the input selects a message. Only the right order may lead to a session.
func FuzzOrder(f *testing.F) {
	words := words(f)
	security := insecure(f)
	for _, order := range [][]byte{{1, 3, 4}, {1, 3, 4, 0, 0, 5}, {7, 3, 4}, {2, 4}, {2, 4, 0, 5}, {9, 4}, {6}, {5},
		{1, 1}, {2, 2}, {1, 0, 3, 4}, {3, 1, 4}, {4, 3, 1}} {
		f.Add(false, order, uint8(3))
		f.Add(true, order, uint8(0))
	}
	f.Fuzz(func(t *testing.T, client bool, order []byte, how uint8) {
		if len(order) > 16 {
			return
		}
		var lines []byte
		for i := range order {
			order[i] %= byte(len(words))
			lines = append(lines, frame(words[order[i]])...)
		}
		if client {
			playClient(t, security, lines, how, goodOrder(order, []byte{2, 9}, 4))
		} else {
			playServer(t, security, lines, how, goodOrder(order, []byte{1, 7}, 3, 4))
		}
	})
}

// goodOrder reports whether order begins with one of first, followed by rest.
func goodOrder(order, first []byte, rest ...byte) bool {
	return len(order) > len(rest) && slices.Contains(first, order[0]) && slices.Equal(order[1:1+len(rest)], rest)
}

// FuzzStream runs the handshake, in either role, with a peer that sends the input, including the
// lengths of frames.
func FuzzStream(f *testing.F) {
	words := words(f)
	security := insecure(f)
	for _, order := range [][]int{{1, 3, 4}, {1, 3, 4, 0, 5}, {2, 4}, {2, 4, 0, 5}, {9, 4}, {6}} {
		var b []byte
		for _, w := range order {
			b = append(b, frame(words[w])...)
		}
		f.Add(order[0] != 1, b, uint8(3))
		f.Add(order[0] != 1, b[:len(b)-1], uint8(1))
	}
	f.Fuzz(func(t *testing.T, client bool, stream []byte, how uint8) {
		if client {
			_, good := loose(stream, typeWelcome, typeReady)
			playClient(t, security, stream, how, good)
		} else {
			_, good := loose(stream, typeHello, typeAccept, typeReady)
			playServer(t, security, stream, how, good)
		}
	})
}

// playServer plays the I/O unit's role against a script. Unless hope, there must not be a
// session.
func playServer(t *testing.T, security *Security, script []byte, how uint8, hope bool) {
	t.Helper()
	c, peer := newScripted(security, roleHost, "", script, how)
	ctx := context.Background()
	err := func() error {
		s, err := greet(ctx, c, nil)
		if err != nil {
			return err
		}
		h := s.Hello()
		i := slices.IndexFunc(h.Modes, protocol.Mode.Known)
		if i < 0 {
			return errors.Join(errors.New("no mode"), s.Refuse(CodeMode, "none"))
		}
		w := testWelcome()
		w.Mode, w.Queues, w.MTU = h.Modes[i], min(h.Queues, 2), h.MaxMTU
		w.Pools = min(3, w.Mode.MaxPools())
		w.Channels = testChannels(100, w.Queues+1)
		w.ControlReceives = protocol.ControlReceives(w.Mode, w.Queues, h.PoolsIn(w.Mode))
		if _, err := s.Welcome(ctx, w); err != nil {
			return err
		}
		return s.Ready(ctx)
	}()
	if err == nil && !hope {
		t.Errorf("established by %q", script)
	}
	finish(t, c, peer, err, typeWelcome, typeReady)
}

// playClient plays the host's role against a script. Unless hope, there must not be a session.
func playClient(t *testing.T, security *Security, script []byte, how uint8, hope bool) {
	t.Helper()
	c, peer := newScripted(security, roleUnit, "", script, how)
	ctx := context.Background()
	cl := &Client{Conn: c}
	err := func() error {
		w, err := cl.Hello(ctx, testHello())
		if err != nil {
			return err
		}
		if err := cl.Accept(ctx, Accept{
			ControlReceives: protocol.ControlReceives(w.Mode, w.Queues, w.Pools), Channels: testChannels(200, w.Queues+1),
		}); err != nil {
			return err
		}
		return cl.Ready(ctx)
	}()
	if err == nil && !hope {
		t.Errorf("established by %q", script)
	}
	finish(t, c, peer, err, typeHello, typeAccept, typeReady)
}

// TestOrder sends three messages in all orders. Only the right order may lead to a session.
func TestOrder(t *testing.T) {
	security := insecure(t)
	byType := map[string]string{}
	hello := testHello()
	good := testWelcome()
	good.Version, good.Features, good.Offloads = 1, []string{"late"}, hello.Offloads
	for name, m := range map[string]any{
		typeHello: helloMessage{typeHello, magic, spoken, hello}, typeWelcome: welcomeMessage{typeWelcome, good},
		typeAccept: acceptMessage{typeAccept, testAccept()}, typeReady: readyMessage{typeReady},
		typeBye: byeMessage{typeBye, CodeFailed, "x"},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		byType[name] = string(b)
	}
	names := slices.Sorted(maps.Keys(byType))
	for _, a := range names {
		for _, b := range names {
			for _, c := range names {
				var script []byte
				for _, name := range []string{a, b, c} {
					script = append(script, frame(byType[name])...)
				}
				playServer(t, security, slices.Clone(script), 3, a == typeHello && b == typeAccept && c == typeReady)
				playClient(t, security, script, 3, a == typeWelcome && b == typeReady)
			}
		}
	}
}
