package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	inline     = regexp.MustCompile(`\]\(\s*<?([^()\s<>]+)>?[^()]*\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^][]+\]:\s*(\S+)`)
	span       = regexp.MustCompile("`([^`\n]+)`")
	words      = regexp.MustCompile(`^[A-Za-z0-9_.@*?/+-]+$`)
	heading    = regexp.MustCompile(`(?m)^#+ +(.*?)\s*#*$`)
	linkText   = regexp.MustCompile(`\[([^][]*)\]\([^()]*\)`)
	notInSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	fence      = regexp.MustCompile("(?ms)^( *)```([a-z]*)[^\n`]*\n(.*?)^ *```")
)

// named has the extensions of files that documents name by the end of their path. Configuration
// files are not among them, because those of a reader have such names too.
var named = []string{".go", ".md", ".sh", ".py", ".lua", ".c", ".h"}

// headings returns the anchors of a document, as GitHub makes them of the headings.
func headings(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := linkText.ReplaceAllString(h[1], "$1")
		slug := strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		for n, unique := 1, slug; ; n++ {
			if !anchors[unique] {
				anchors[unique] = true
				break
			}
			unique = fmt.Sprintf("%s-%d", slug, n)
		}
	}
	return anchors
}

// check returns the mistakes of a document, each with its file and line.
func (t *tree) check(name string) (mistakes []string) {
	text := t.texts[name]
	say := func(at int, format string, args ...any) {
		line := 1 + strings.Count(text[:at], "\n")
		mistakes = append(mistakes, fmt.Sprintf("%s:%d: ", name, line)+fmt.Sprintf(format, args...))
	}
	for _, f := range fence.FindAllStringSubmatchIndex(text, -1) {
		if text[f[4]:f[5]] == "json" {
			if err := valid(text[f[6]:f[7]]); err != nil {
				say(f[0], "the block is no JSON: %v", err)
			}
		}
	}
	prose := blank(fence, text) // offsets stay those of the text
	for _, form := range []*regexp.Regexp{inline, definition} {
		for _, m := range form.FindAllStringSubmatchIndex(blank(span, prose), -1) {
			if wrong := t.link(name, text[m[2]:m[3]]); wrong != "" {
				say(m[2], "%s", wrong)
			}
		}
	}
	for _, m := range span.FindAllStringSubmatchIndex(prose, -1) {
		if word := text[m[2]:m[3]]; !t.may(name, word) {
			say(m[2], "there is no %s in the checkout", word)
		}
	}
	slices.Sort(mistakes)
	return mistakes
}

// valid returns an error if text is not one JSON value, or several.
func valid(text string) error {
	values := json.NewDecoder(strings.NewReader(text))
	for n := 0; ; n++ {
		var v any
		if err := values.Decode(&v); errors.Is(err, io.EOF) && n > 0 {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// blank replaces each byte of what matches by a space, except ends of lines.
func blank(what *regexp.Regexp, text string) string {
	return what.ReplaceAllStringFunc(text, func(s string) string {
		spaces := []byte(s)
		for i, c := range spaces {
			if c != '\n' {
				spaces[i] = ' '
			}
		}
		return string(spaces)
	})
}

// link returns what is wrong with the target of a link in a document, or "".
func (t *tree) link(in, target string) string {
	if strings.Contains(target, ":") { // a scheme
		return ""
	}
	file, anchor, hasAnchor := strings.Cut(target, "#")
	file = path.Join(path.Dir(in), file)
	if strings.HasPrefix(target, "#") {
		file = in
	}
	if !t.exists(file) {
		return "the link leads to " + file + ", which is not there"
	}
	if anchors := t.headings[file]; hasAnchor && anchors != nil && !anchors[anchor] {
		return file + " has no heading #" + anchor
	}
	return ""
}

// may reports whether a word in backquotes of a document is no path of the checkout, or one that
// exists.
func (t *tree) may(in, word string) bool {
	word = strings.TrimPrefix(word, "./")
	if !words.MatchString(word) || strings.HasPrefix(word, "/") || strings.HasPrefix(word, "build/") {
		return true // build/ is not part of the checkout
	}
	bare := strings.TrimSuffix(word, "/...")
	if t.exists(bare) || t.exists(path.Join(path.Dir(in), bare)) {
		return true
	}
	if slices.Contains(named, path.Ext(bare)) && !strings.HasPrefix(path.Base(bare), "*") {
		return t.ends(bare)
	}
	first, rest, _ := strings.Cut(bare, "/")
	return rest == "" || !t.files[first] && !t.dirs[first]
}

// tree has the files of the checkout, by their paths from its top.
type tree struct {
	files    map[string]bool
	dirs     map[string]bool
	headings map[string]map[string]bool
	texts    map[string]string
}

func newTree() *tree {
	return &tree{files: map[string]bool{}, dirs: map[string]bool{".": true},
		headings: map[string]map[string]bool{}, texts: map[string]string{}}
}

func (t *tree) add(file string) {
	t.files[file] = true
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		t.dirs[dir] = true
	}
}

// documents returns the names of all documents.
func (t *tree) documents() (names []string) {
	for name := range t.files {
		if path.Ext(name) == ".md" {
			names = append(names, name)
		}
	}
	return names
}

// exists reports whether there is a file or directory of this path. A path may have wildcards.
func (t *tree) exists(name string) bool {
	name = path.Clean(name)
	if t.files[name] || t.dirs[name] {
		return true
	}
	if !strings.ContainsAny(name, "*?") {
		return false
	}
	for file := range t.files {
		if ok, err := path.Match(name, file); ok && err == nil {
			return true
		}
	}
	return false
}

// ends reports whether the path of some file ends with these elements.
func (t *tree) ends(elements string) bool {
	for file := range t.files {
		if file == elements || strings.HasSuffix(file, "/"+elements) {
			return true
		}
	}
	return false
}
