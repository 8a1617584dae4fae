package session

import (
	"errors"
	"os"
	"regexp"
	"testing"
)

// TestDocumentedMessages decodes the examples of docs/protocol.md in their order. There must be
// an example of each message.
func TestDocumentedMessages(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	var hello Hello
	var welcome Welcome
	seen, steps := make(map[string]bool), make(map[DirectStep]bool)
	for _, m := range regexp.MustCompile("(?s)```json (\\w+)\n(.*?)```").FindAllSubmatch(doc, -1) {
		name, b := string(m[1]), m[2]
		seen[name] = true
		if got, err := messageType(b); got != name || err != nil {
			t.Errorf("%s: its type is %q, %v", name, got, err)
		}
		switch name {
		case typeHello:
			hello, err = decodeHello(b)
		case typeWelcome:
			welcome, err = decodeWelcome(b, &hello)
		case typeAccept:
			_, err = decodeAccept(b, &welcome)
		case typeRefuse:
			var refused *RefusedError
			if err = decodeRefuse(b); errors.As(err, &refused) && refused.Code == CodeFull && refused.Retry {
				err = nil
			}
		case typeBye:
			if err = decodeBye(b); as[*ByeError](err) {
				err = nil
			}
		case typeRenew:
			_, err = decodeRenew(b)
		case typeRenewed:
			_, err = decode[renewedMessage](b)
		case typeDrain:
			var on bool
			if on, err = decodeDrain(b); err == nil && !on {
				err = errors.New("it asks nobody to go")
			}
		case typeStays:
			_, err = decodeStays(b)
		case typeDirect:
			var d *Direct
			if d, err = decodeDirect(b, true); err != nil {
				d, err = decodeDirect(b, false)
			}
			steps[d.Step] = true
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for step := range directs() {
		if !steps[step] {
			t.Errorf("no example of %s %s", typeDirect, step)
		}
	}
	for _, name := range []string{typeHello, typeWelcome, typeAccept, typeReady, typeRefuse, typeBye, typeRenew,
		typeRenewed, typeDirect, typeDrain, typeStays} {
		if !seen[name] {
			t.Errorf("no example of %s", name)
		}
	}
}
