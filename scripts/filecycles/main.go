// Command filecycles checks that the files of packages have an order: it fails if files of a
// package refer to each other in a circle. It prints the shortest circle, with what each file in
// it uses of the next file. It also fails if the list of files in the comment of a package, below
// the heading Files, does not name each file once, or if files refer to files above them in it.
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
	"go/importer"
	"go/token"
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

// check returns the description of a circle for each package that has one, and what is wrong with
// the lists of files. patterns name the packages, in directory dir.
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
		files, refs, err := references(fset, imp, &p)
		if err != nil {
			return nil, err
		}
		if c := shortest(refs); c != nil {
			found = append(found, describe(p.ImportPath, refs, c))
		}
		for _, wrong := range checkList(files, refs) {
			found = append(found, p.ImportPath+": the list of files: "+wrong)
		}
	}
	return found, nil
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
