package main

import (
	"os"
	"path/filepath"
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
			dir := t.TempDir()
			c.files["go.mod"] = "module example.com/p\n\ngo 1.26\n"
			for file, text := range c.files {
				if filepath.Ext(file) == ".go" {
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
