package lan

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/vnet"
)

// TestAnotherKind adds a kind to the table, and uses it as the others are used: parsed, listed,
// opened by name. Without its row, the kind is unknown.
func TestAnotherKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "frames")
	spec := "file:" + path
	if _, err := Open(spec, Config{}); err == nil || !strings.Contains(err.Error(), `unknown kind "file"`) {
		t.Fatalf("without its row: %v", err)
	}
	before := kinds
	kinds = append(slices.Clone(kinds), &fileRow)
	t.Cleanup(func() { kinds = before })

	if kind, arg, err := ParseSpec(spec); kind != toFile || arg != path || err != nil {
		t.Errorf("%s is %s %q, %v", spec, kind, arg, err)
	}
	if !strings.HasSuffix(Usage(), " or file:PATH") || toFile.Facts().Netdevice() || toFile.Dirs(path) != nil {
		t.Errorf("facts %+v, usage %s", toFile.Facts(), Usage())
	}
	c, err := NewCard(spec, "")
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info()
	if err != nil || !info.Up || info.Suits(toFile) != nil {
		t.Errorf("%+v, %v, %v", info, err, info.Suits(toFile))
	}
	p, err := Open(spec, Config{Queues: 2, Offloads: vnet.AllOffloads})
	if err != nil {
		t.Fatal(err)
	}
	frame := append(make([]byte, vnet.HdrLen), "a frame with its addresses, and what follows them"...)
	if len(p.Queues()) != 2 || checkMAC(p.MAC()) != nil {
		t.Errorf("%d queues, address %v", len(p.Queues()), p.MAC())
	}
	for _, q := range p.Queues() {
		ops := []vnet.WriteOp{{Head: frame[:40], Rest: frame[40:]}, {Head: frame}}
		if n := q.WriteFrames(ops); n != 2 || ops[0].Err != nil || ops[1].Err != nil {
			t.Errorf("%d frames written: %+v", n, ops)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != strings.Repeat(string(frame[vnet.HdrLen:]), 4) {
		t.Errorf("the file has %q, %v", got, err)
	}
}
