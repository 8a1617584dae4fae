package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/protocol"
)

// again encodes a decoded message and decodes it again. The result must be the same.
func again[M any](t *testing.T, m M, encoded any, decodeAgain func([]byte) (M, error)) {
	t.Helper()
	frame, err := encodeFrame(encoded)
	if err != nil {
		t.Fatalf("%+v was accepted, but: %v", m, err)
	}
	b, err := readFrame(bytes.NewReader(frame))
	if err != nil {
		t.Fatal(err)
	}
	m2, err := decodeAgain(b)
	if err != nil {
		t.Fatalf("%s was encoded, but: %v", b, err)
	}
	if diff := cmp.Diff(m, m2); diff != "" {
		t.Errorf("(-first +again):\n%s", diff)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(frame(`{"type":"ready"}`))
	f.Add(frame(""))
	f.Add([]byte{0, 1, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.Equal(frame(string(payload)), b[:4+len(payload)]) {
			t.Errorf("%x was read as %x", b, payload)
		}
		messageType(payload)
	})
}

func FuzzHello(f *testing.F) {
	f.Add([]byte(helloWith(f, nil)))
	f.Add([]byte(helloWith(f, map[string]any{"versions": Versions{2, 3}})))
	f.Add([]byte(helloWith(f, map[string]any{"mac": "00:00:00:00:00:00"})))
	f.Add([]byte(helloWith(f, map[string]any{"run": "000102030405060708090a0b0c0d0e0f"})))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHello(b); err == nil {
			again(t, h, helloMessage{typeHello, magic, spoken, h}, decodeHello)
		}
	})
}

func FuzzWelcome(f *testing.F) {
	hello := testHello()
	hello.Run = protocol.Run{1}
	good := testWelcome()
	good.Platform, good.Run = 1, protocol.Run{2}
	good.Version, good.Features, good.Offloads = 1, []string{"late"}, hello.Offloads
	f.Add([]byte(changed(f, welcomeMessage{typeWelcome, good}, nil)))
	f.Add([]byte(changed(f, welcomeMessage{typeWelcome, good}, map[string]any{"channels": testChannels(0, 300)})))
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeAgain := func(b []byte) (Welcome, error) { return decodeWelcome(b, &hello) }
		if w, err := decodeAgain(b); err == nil {
			again(t, w, welcomeMessage{typeWelcome, w}, decodeAgain)
		}
	})
}

func FuzzAccept(f *testing.F) {
	welcome := testWelcome()
	f.Add([]byte(changed(f, acceptMessage{typeAccept, testAccept()}, nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeAgain := func(b []byte) (Accept, error) { return decodeAccept(b, &welcome) }
		if a, err := decodeAgain(b); err == nil {
			again(t, a, acceptMessage{typeAccept, a}, decodeAgain)
		}
	})
}

// FuzzEnd decodes messages that end a connection. The text of the error must be one printable
// line, and not too long.
func FuzzEnd(f *testing.F) {
	for _, m := range []any{
		byeMessage{typeBye, CodeShuttingDown, "told to"},
		refuseMessage{typeRefuse, CodeVersion, "too old", Versions{2, 3}, false, 0},
		refuseMessage{typeRefuse, CodeFull, "\x1b[31m\n\u202e", Versions{}, true, 250},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if bye, ok := errors.AsType[*ByeError](decodeBye(b)); ok && text(bye.Message) != bye.Message {
			t.Errorf("message %q", bye.Message)
		}
		var refused *RefusedError
		if errors.As(decodeRefuse(b), &refused) && (text(refused.Message) != refused.Message ||
			len(refused.Error()) > 3*maxText) {
			t.Errorf("message %q", refused.Message)
		}
	})
}

// FuzzDrain decodes the messages for draining an I/O unit.
func FuzzDrain(f *testing.F) {
	f.Add([]byte(`{"type":"drain","on":true}`))
	f.Add([]byte(`{"type":"stays","reason":"a\nb"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decodeDrain(b); err != nil && !errors.Is(err, ErrMessage) {
			t.Error(err)
		}
		reason, err := decodeStays(b)
		if err != nil && !errors.Is(err, ErrMessage) || err == nil && text(reason) != reason {
			t.Errorf("%q, %v", reason, err)
		}
	})
}
