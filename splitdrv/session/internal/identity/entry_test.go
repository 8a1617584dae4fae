package identity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testca"
)

// TestEntryOrder reads entries with the name before and behind the fingerprint.
func TestEntryOrder(t *testing.T) {
	key := newKey(t).Fingerprint()
	for format, want := range map[string]string{
		"alpha=%v": "alpha", "%v=alpha": "alpha", "alpha = %v": "alpha", "%v = alpha": "alpha",
		"alpha %v": "alpha", "%v alpha": "alpha", "alpha\t%v": "alpha", "%v \t alpha": "alpha", "%v": "",
		"sha256=%v": "sha256", "%v=sha256": "sha256",
	} {
		entry := fmt.Sprintf(format, key)
		if name, f, err := parseEntry(entry); err != nil || name != want || f != key {
			t.Errorf("%q is %q, %v, %v", entry, name, f, err)
		}
	}
	for _, format := range []string{
		"=%v", "%v=", "a b=%v", "%v=a b", "a %v b", "%[1]v=%[1]v", "%[1]v %[1]v", "a=b=%v", "a:=%v",
	} {
		entry := fmt.Sprintf(format, key)
		if name, _, err := parseEntry(entry); err == nil {
			t.Errorf("%q is %q", entry, name)
		}
	}
}

// TestMistakenEntry expects errors to quote so much of an entry that it can be found, and not so
// much that it could be a secret or change what a terminal shows.
func TestMistakenEntry(t *testing.T) {
	key := newKey(t).Fingerprint().String()
	for entry, want := range map[string]string{
		"alpha":                        `"alpha"`,
		"alpha=sha256:short":           `"alpha=sha256:short"`,
		"alpha=sha512:" + key[7:]:      `"alpha=sha512:0…"`,
		"al pha=" + key:                `"al pha=sha256:` + key[7:15] + `…"`,
		"alpha=" + key + "=":           `"alpha=sha256:` + key[7:15] + `…="`,
		"a\x1b[31m=" + key:             `"a?[31m=sha256:` + key[7:15] + `…"`,
		"MC4CAQAwBQYDK2VwBCIEIabcdefg": `"MC4CAQAw…"`,
		"02 b4 6c d1 44":               `"02 b4 6c …"`,
		"x" + strings.Repeat("é", 30):  `"xééé…"`,
		strings.Repeat("é=", 30):       `"` + strings.Repeat("é=", 3) + `…"`,
		strings.Repeat("===", 30):      `"` + strings.Repeat("=", 40) + `…"`,
	} {
		want = strings.Replace(want, "sha512:0…", "sha512:"+key[7:8]+"…", 1)
		var trust Trust
		path := testca.File(t, "\n"+entry+"\n")
		for _, err := range []error{trust.Add(entry), trust.AddFile(path), trust.AddRevoked(path)} {
			if err == nil || !strings.Contains(err.Error(), "trust entry "+want+": ") {
				t.Errorf("%q: %v, want %s", entry, err, want)
			}
		}
		if err := trust.AddFile(path); !strings.HasPrefix(err.Error(), path+":2: ") {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
