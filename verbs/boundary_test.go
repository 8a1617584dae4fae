package verbs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCgoBoundary expects that in the whole module only the files *_cgo.go of this package use cgo.
func TestCgoBoundary(t *testing.T) {
	root := ".."
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Skip("the module's sources are not here")
	}
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "build") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return nil // the compiler reports files that do not compile
		}
		for _, i := range f.Imports {
			if i.Path.Value != `"C"` {
				continue
			}
			found++
			if !strings.HasSuffix(path, "_cgo.go") || filepath.Dir(path) != filepath.Join(root, "verbs") {
				t.Errorf("%s uses cgo", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("no file uses cgo: the test looks in the wrong place")
	}
}
