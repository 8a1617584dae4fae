package main

import (
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, CgoFiles       []string
	DepOnly                 bool
}

// uses has, for each file, the other files that it uses, and which of their names.
type uses map[string]map[string][]string

// references returns the files of a package, and the references between them: from each file to the
// files that declare what it uses, fields and methods included.
func references(fset *token.FileSet, imp types.Importer, p *listed) (map[string]*ast.File, uses, error) {
	named := map[string]*ast.File{}
	var files []*ast.File
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		path := filepath.Join(p.Dir, name)
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, nil, err
		}
		named[path] = f
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	cfg := types.Config{Importer: imp, FakeImportC: true}
	if len(p.CgoFiles) > 0 {
		cfg.Error = func(error) {} // the declarations of C are not known here
	}
	pkg, err := cfg.Check(p.ImportPath, fset, files, &info)
	if err != nil && cfg.Error == nil {
		return nil, nil, err
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
	return named, refs, nil
}

// checkList returns what is wrong with the list of files in the comment of a package, if it has one.
// A list has a row of files, and what is in them, on each line:
//
//	serve, status   the steps of a session; the status
//	config
//
// It has each file but that of the comment, by its name without the ending. Files refer only to
// files of their row, and further down.
func checkList(files map[string]*ast.File, refs uses) (wrong []string) {
	for path, f := range files {
		rows := fileList(f.Doc)
		if rows == nil {
			continue
		}
		row := map[string]int{}
		for i, names := range rows {
			for _, name := range names {
				file := filepath.Join(filepath.Dir(path), name+".go")
				if _, twice := row[file]; twice {
					wrong = append(wrong, name+" is in it twice")
				}
				if row[file] = i; files[file] == nil {
					wrong = append(wrong, name+" is no file")
				}
			}
		}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			from, ok := row[file]
			if !ok && file != path {
				wrong = append(wrong, base(file)+" is missing")
			}
			for _, to := range slices.Sorted(maps.Keys(refs[file])) {
				if at, listed := row[to]; ok && listed && at < from {
					wrong = append(wrong, fmt.Sprintf("%s uses %s of %s, which is above it", base(file),
						strings.Join(slices.Sorted(slices.Values(refs[file][to])), ", "), base(to)))
				}
			}
		}
	}
	return wrong
}

func base(file string) string { return strings.TrimSuffix(filepath.Base(file), ".go") }

// gap is what separates files from the text about them.
var gap = regexp.MustCompile(`  +`)

// fileList returns the rows of the list of files in a comment, or nil if there is none. A row whose
// names end with a comma goes on on the next line.
func fileList(doc *ast.CommentGroup) (rows [][]string) {
	var p comment.Parser
	below := false
	for _, block := range p.Parse(doc.Text()).Content {
		switch block := block.(type) {
		case *comment.Heading:
			below = len(block.Text) == 1 && block.Text[0] == comment.Plain("Files")
		case *comment.Code:
			if !below {
				continue
			}
			more := false
			for line := range strings.Lines(block.Text) {
				text := strings.TrimSpace(gap.Split(line, 2)[0])
				names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
				if more {
					rows[len(rows)-1] = append(rows[len(rows)-1], names...)
				} else {
					rows = append(rows, names)
				}
				more = strings.HasSuffix(text, ",")
			}
		}
	}
	return rows
}
