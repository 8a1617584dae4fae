// Command sbom prints a software bill of materials of a program written in Go, in
// the format CycloneDX: the modules that the linker has put into it, the version
// of Go, and the shared libraries that it asks for.
//
//	sbom PROGRAM VERSION
//
// The same program gives the same bytes.
package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// The names of these fields are those of CycloneDX 1.5.
type bom struct {
	Format       string       `json:"bomFormat"`
	Spec         string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type dependency struct {
	Ref string   `json:"ref"`
	On  []string `json:"dependsOn"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: sbom PROGRAM VERSION")
	}
	b, err := describe(args[0], args[1])
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(b)
}

// describe reads what the linker has noted in a program.
func describe(path, version string) (bom, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return bom{}, fmt.Errorf("reading the modules: %w", err)
	}
	program := component{Type: "application", Name: info.Main.Path, Version: version}
	program.PURL = "pkg:golang/" + program.Name + "@" + version
	program.Ref = program.PURL
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: metadata{program}}
	std := strings.TrimPrefix(info.GoVersion, "go")
	b.Components = append(b.Components, component{Type: "library", Ref: "pkg:golang/std@" + std, Name: "std", Version: std,
		PURL: "pkg:golang/std@" + std})
	for _, m := range info.Deps {
		c, err := library(cmp.Or(m.Replace, m))
		if err != nil {
			return bom{}, err
		}
		b.Components = append(b.Components, c)
	}
	file, err := elf.Open(path)
	if err != nil {
		return bom{}, fmt.Errorf("reading the shared libraries: %w", err)
	}
	defer file.Close()
	shared, err := file.ImportedLibraries()
	if err != nil {
		return bom{}, fmt.Errorf("reading the shared libraries: %w", err)
	}
	for _, name := range shared {
		b.Components = append(b.Components, component{Type: "library", Ref: name, Name: name})
	}
	on := dependency{Ref: program.Ref}
	for _, c := range b.Components {
		on.On = append(on.On, c.Ref)
	}
	b.Dependencies = []dependency{on}
	return b, nil
}

// library is a module. Its hash is that of go.sum, SHA-256 of the list of its
// files.
func library(m *debug.Module) (component, error) {
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + m.Version}
	c.Ref = c.PURL
	encoded, ok := strings.CutPrefix(m.Sum, "h1:")
	if !ok {
		return c, nil
	}
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return c, fmt.Errorf("the hash of %s: %w", m.Path, err)
	}
	c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
	return c, nil
}
