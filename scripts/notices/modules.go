package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// standard is the name of Go's standard library in bills of materials.
const standard = "std"

// source is a module that is linked, and the directories of its packages that are.
type source struct {
	path, version, root string
	dirs                []string
}

// list returns the modules that are linked into programs, and Go's standard library, sorted.
func list(programs []string) ([]source, error) {
	const template = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}"
	out, err := exec.Command("go", append([]string{"list", "-deps", "-f", template}, programs...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	goroot, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(goroot)), "\n")
	found := map[string]*source{standard: {standard, version, root, []string{root}}}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 4 {
			continue // the module of the programs, or a package of the standard library
		}
		m := found[fields[0]]
		if m == nil {
			m = &source{fields[0], fields[1], fields[2], nil}
			found[fields[0]] = m
		}
		m.dirs = append(m.dirs, fields[3])
	}
	var all []source
	for _, m := range found {
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// module is a module with the files that are handed on.
type module struct {
	path, version string
	files         []file
}

// file is a file about the licence of a directory of a module.
type file struct {
	name, text string // the name is relative to the module
}

// kinds are the beginnings of the names of files that are handed on.
var kinds = []string{"LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "PATENTS"}

// read reads the files of the directories of linked packages, and of those above them up to the
// root of the module.
func (s source) read() (module, error) {
	m := module{path: s.path, version: s.version}
	seen := map[string]bool{}
	for _, dir := range s.dirs {
		for ; !seen[dir]; dir = filepath.Dir(dir) {
			seen[dir] = true
			files, err := notices(s.root, dir)
			if err != nil {
				return m, err
			}
			m.files = append(m.files, files...)
			if dir == s.root {
				break
			}
		}
	}
	slices.SortFunc(m.files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return m, nil
}

// notices returns the files of one directory.
func notices(root, dir string) (files []file, _ error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		ours := slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(name, k) })
		if !ours || !e.Type().IsRegular() || filepath.Ext(name) == ".GO" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		relative, err := filepath.Rel(root, filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{relative, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))})
	}
	return files, nil
}
