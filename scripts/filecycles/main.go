// Command filecycles checks that the files of packages have an order: it fails if files of a
// package refer to each other in a circle. It prints the shortest circle, with what each file in
// it uses of the next file.
//
//	go run ./scripts/filecycles PATTERN...
//
// Patterns are those of go list. Test files are not checked.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	found, err := check(".", os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "filecycles:", err)
		os.Exit(2)
	}
	for _, c := range found {
		fmt.Fprintln(os.Stderr, c)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
	DepOnly                 bool
}

// check returns the description of a circle for each package that has one. patterns name the
// packages, in directory dir.
func check(dir string, patterns []string) (found []string, err error) {
	// The option -export compiles dependencies that are not in the cache. Their types are read from
	// the cache.
	cmd := exec.Command("go", append([]string{
		"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles,DepOnly", "--",
	}, patterns...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	var named []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			named = append(named, p)
		}
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("there are no packages %q", patterns)
	}
	fset := token.NewFileSet()
	imp := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range named {
		refs, err := references(fset, imp, &p)
		if err != nil {
			return nil, err
		}
		if c := shortest(refs); c != nil {
			found = append(found, describe(p.ImportPath, refs, c))
		}
	}
	return found, nil
}

// uses has, for each file, the other files that it uses, and which of their names.
type uses map[string]map[string][]string

// references returns the references between the files of a package: from each file to the files
// that declare what it uses, fields and methods included.
func references(fset *token.FileSet, imp types.Importer, p *listed) (uses, error) {
	var files []*ast.File
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: imp, FakeImportC: true}
	if len(p.CgoFiles) > 0 {
		cfg.Error = func(error) {} // the declarations of C are not known here
	}
	pkg, err := cfg.Check(p.ImportPath, fset, files, &info)
	if err != nil && cfg.Error == nil {
		return nil, err
	}
	refs := uses{}
	for id, o := range info.Uses {
		if o.Pkg() != pkg {
			continue
		}
		from, to := fset.File(id.Pos()).Name(), fset.File(o.Pos()).Name()
		if from == to {
			continue
		}
		if refs[from] == nil {
			refs[from] = map[string][]string{}
		}
		if !slices.Contains(refs[from][to], o.Name()) {
			refs[from][to] = append(refs[from][to], o.Name())
		}
	}
	return refs, nil
}

// shortest returns the shortest circle of files, or nil if there is none. Each file refers to the
// next one, and the last file to the first.
func shortest(refs uses) (circle []string) {
	for _, start := range slices.Sorted(maps.Keys(refs)) {
		before := map[string]string{} // for each file reached, the file that refers to it
		for queue := []string{start}; len(queue) > 0 && before[start] == ""; queue = queue[1:] {
			for _, to := range slices.Sorted(maps.Keys(refs[queue[0]])) {
				if before[to] == "" {
					before[to] = queue[0]
					queue = append(queue, to)
				}
			}
		}
		if before[start] == "" {
			continue
		}
		c := []string{start}
		for f := before[start]; f != start; f = before[f] {
			c = append(c, f)
		}
		slices.Reverse(c[1:])
		if circle == nil || len(c) < len(circle) {
			circle = c
		}
	}
	return circle
}

// describe returns a text that says what the files in a circle use of each other.
func describe(pkg string, refs uses, circle []string) string {
	lines := []string{pkg + ": files refer to each other in a circle:"}
	for i, from := range circle {
		to := circle[(i+1)%len(circle)]
		names := slices.Sorted(slices.Values(refs[from][to]))
		lines = append(lines, fmt.Sprintf("\t%s uses %s of %s", filepath.Base(from), strings.Join(names, ", "),
			filepath.Base(to)))
	}
	return strings.Join(lines, "\n")
}
