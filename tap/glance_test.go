package tap

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestSameGroups compares the content of a file with what it was. Both may be longer than one read.
func TestSameGroups(t *testing.T) {
	long := bytes.Repeat([]byte("2    tap0            1     0     01005e000001\n"), 1+len(glances.answer)/40)
	short := long[:100]
	for name, c := range map[string]struct{ old, now []byte }{
		"short":          {short, short},
		"long":           {long, long},
		"empty":          {nil, nil},
		"one came":       {nil, short},
		"one went":       {short, nil},
		"more came":      {short, long},
		"the last went":  {long, long[:len(long)-46]},
		"the last came":  {long[:len(long)-46], long},
		"another in one": {short, append(bytes.Clone(short[:99]), 'x')},
	} {
		path := filepath.Join(t.TempDir(), "igmp")
		if err := os.WriteFile(path, c.now, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		p := location{multicast: f}
		glances.Lock()
		same := p.sameGroups(c.old)
		glances.Unlock()
		if want := bytes.Equal(c.old, c.now); same != want {
			t.Errorf("%s: the same: %t", name, same)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
