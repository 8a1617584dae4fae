package settings

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "",
		"# nothing\n":             "",
		"---\na: b\n":             "a=b",
		"a: b\nc: [1, 0x10, yes]": "a=b c=1,0x10,yes",
		"a: \"x y\"\nb: |\n  z\n": "a=x y b=z\n",
		"a: b: c":                 "f.yaml:1: not YAML",
		"a: 1\nb: [\n":            "f.yaml:2: not YAML",
		"a: 1\n---\na: 2\n":       "f.yaml:2: more than one YAML document",
		"a: 1\n---\n":             "f.yaml:2: more than one YAML document",
		"a: 1\n...\na: 2\n":       "f.yaml:3: more than one YAML document",
		"a: 1\n...\n":             "a=1",
		"a: 1\n...\n# nothing\n":  "a=1",
		"a: 1\n...\n---\n":        "f.yaml:3: more than one YAML document",
		"a: 1\na: 2\n":            "f.yaml:2: not YAML",
		"a: 1\nb: \x00\n":         "f.yaml:2: not YAML: a zero byte",
		"- a\n":                   "f.yaml:1: no map",
		"a: 1\nb:\n":              "f.yaml:2: must be a word or a list of words",
		"a: [[b]]":                "f.yaml:1: must be a word or a list of words",
		"a: [x, ]":                "a=x",
		"a: [x, ~]":               "f.yaml:1: must be a word or a list of words",
		"{a: [\"2001:db8::1\"]}":  "a=2001:db8::1",
		"{a: [b, 2001:db8::1]}":   "f.yaml:1: must be a word or a list of words; put a word with colons in quotation marks",
		"a: {b: c}":               "f.yaml:1: must be a word or a list of words",
		"a: 1\n\tb: 2\n":          "f.yaml:2: not YAML: found character '\t' that cannot start any token; indent with spaces",
		"a: 1\nb: &x 2\nc: *x\n":  "f.yaml:2: there are no anchors",
		"a: 1\nb: *:7580\n":       "f.yaml:2: there are no anchors",
		"a: *:7580\nb: &x 2\n":    "f.yaml:1: there are no anchors",
		"a: [b, *c]":              "f.yaml:1: there are no anchors",
		"a: \"*:7580\"":           "a=*:7580",
		"a: []":                   "f.yaml:1: the list is empty",
	} {
		got, err := words(text)
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.HasPrefix(got, want) || want == "") {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// words returns the entries of a file as text.
func words(text string) (string, error) {
	n, err := Parse("f.yaml", []byte(text))
	if err != nil {
		return "", err
	}
	entries, ok := Map(n)
	if !ok {
		return "", Errorf("f.yaml", n, "no map")
	}
	var all []string
	for _, e := range entries {
		w, err := Scalars(e.Value)
		if err != nil {
			return "", Errorf("f.yaml", e.At, "%w", err)
		}
		all = append(all, e.Key+"="+strings.Join(w, ","))
	}
	return strings.Join(all, " "), nil
}

func TestBool(t *testing.T) {
	for word, want := range map[string]bool{"yes": true, "true": true, "on": true, "no": false, "false": false,
		"off": false} {
		if got, err := Bool(word); got != want || err != nil {
			t.Errorf("%s: %t, %v", word, got, err)
		}
	}
	for _, word := range []string{"", "1", "YES", "perhaps"} {
		if _, err := Bool(word); err == nil {
			t.Errorf("%q is accepted", word)
		}
	}
}

// FuzzParse parses any text. It expects a result without empty words, or an error with the name
// of the file.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: b\nc: [d, e]\n", "a:\n", "- a\n", "a: b: c\n", "a: {b: c}\n", "&a [*a]\n",
		"a: |\n  b\n", "---\n---\n", "a: b\n...\n...\n", "...\n...\n", "a\n---\n...\n---",
		"!!map {a: !!str b}", "a: *b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := words(text); err != nil && !strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%q: %v", text, err)
		}
		if n, err := Parse("f.yaml", []byte(text)); err == nil && n != nil {
			if w, err := Scalars(n); err == nil && slices.Contains(w, "") {
				t.Errorf("%q has an empty word", text)
			}
		}
	})
}
