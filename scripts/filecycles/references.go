package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
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
