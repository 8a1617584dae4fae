package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCheck looks for circles in packages of a few lines.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // "" for none
	}{
		"one way": {files: map[string]string{
			"a.go": "type a struct{ b }\nfunc (x *a) run() { x.field++; x.run(); help() }",
			"b.go": "type b struct{ field int }\nfunc help() {}",
			"c.go": "func c(x *a) { x.run(); help() }",
		}},
		"functions": {files: map[string]string{
			"a.go": "func a() { b() }",
			"b.go": "func b() { a() }",
		}, want: "a.go uses b of b.go; b.go uses a of a.go"},
		"a method declared elsewhere": {files: map[string]string{
			"a.go": "type a struct{ n int }\nfunc (x *a) run() { x.help() }",
			"b.go": "func (x *a) help() { x.n++ }",
		}, want: "a.go uses help of b.go; b.go uses a, n of a.go"},
		"a promoted field": {files: map[string]string{
			"a.go": "type a struct{ b }\nconst most = 1",
			"b.go": "type b struct{ n [most]int }",
		}, want: "a.go uses b of b.go; b.go uses most of a.go"},
		"a field of a generic type": {files: map[string]string{
			"a.go": "type a[T any] struct{ n T }\nvar x b",
			"b.go": "type b struct{}\nfunc count(x *a[int]) int { return x.n }",
		}, want: "a.go uses b of b.go; b.go uses a, n of a.go"},
		"the shortest": {files: map[string]string{
			"a.go": "func a() { b() }",
			"b.go": "func b() { c() }",
			"c.go": "func c() { a(); d() }",
			"d.go": "func d() { c() }",
		}, want: "c.go uses d of d.go; d.go uses c of c.go"},
		"by way of a file in between": {files: map[string]string{
			"a.go": "func a() { b() }",
			"b.go": "func b() { c() }",
			"c.go": "func c() { a() }",
		}, want: "a.go uses b of b.go; b.go uses c of c.go; c.go uses a of a.go"},
		"in tests alone": {files: map[string]string{
			"a.go":      "func a() {}",
			"a_test.go": "func test() { a() }",
			"b_test.go": "func more() { test() }\nfunc init() { more() }",
		}},
		"names of another package": {files: map[string]string{
			"a.go": "import \"strings\"\nfunc Repeat() { strings.Repeat(\"\", 1); b() }",
			"b.go": "import \"strings\"\nfunc b() { strings.Repeat(\"\", 1) }",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checked(t, c.files)
			got := strings.ReplaceAll(strings.Join(found, "\n"), "\n\t", "; ")
			want := c.want
			if want != "" {
				want = "example.com/p: files refer to each other in a circle:; " + want
			}
			if got != want {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
}

// checked checks a package of these files, which are given without their package clause.
func checked(t *testing.T, files map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/p\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if strings.HasPrefix(text, "//") {
			text += "\npackage p\n"
		} else {
			text = "package p\n" + text + "\n"
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := check(dir, []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestList checks lists of the files of a package with main, part, small and their test.
func TestList(t *testing.T) {
	const head = "// Package p is a package.\n//\n//\tmain, small  no list\n//\n"
	for name, c := range map[string]struct {
		list string
		want []string
	}{
		"right":      {"// # Files\n//\n//\tmain         the whole\n//\tpart, small  the rest", nil},
		"one row":    {"// # Files\n//\n// In this order:\n//\n//\tsmall, part, main", nil},
		"two lines":  {"// # Files\n//\n//\tpart,  the whole\n//\tmain\n//\tsmall\n//\n// # More\n//\n//\tmore", nil},
		"no list":    {"// # More\n//\n//\tmain", nil},
		"incomplete": {"// # Files\n//\n//\tmain", []string{"part is missing", "small is missing"}},
		"gone":       {"// # Files\n//\n//\tmain, parts, part, small", []string{"parts is no file"}},
		"twice":      {"// # Files\n//\n//\tmain, part, small\n//\tsmall", []string{"small is in it twice"}},
		"a test":     {"// # Files\n//\n//\tmain, part, small, main_test", []string{"main_test is no file"}},
		"upside down": {"// # Files\n//\n//\tsmall  a part\n//\tmain, part",
			[]string{"part uses n, small of small, which is above it"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := checked(t, map[string]string{
				"doc.go": head + c.list, "main.go": "func run() { part() }", "part.go": "func part() { small(n) }",
				"small.go": "const n = 1\nfunc small(int) {}", "main_test.go": "func test() { run() }",
			})
			for i := range c.want {
				c.want[i] = "example.com/p: the list of files: " + c.want[i]
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestNoPackages expects an error for a pattern that names no package. The result must not look
// like that of a package without circles.
func TestNoPackages(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/p\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := check(dir, []string{"./..."}); err == nil {
		t.Errorf("found %q in no package", found)
	}
}
