package main

import (
	"path"
	"strings"
)

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
