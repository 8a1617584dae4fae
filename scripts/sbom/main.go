// Command sbom prints a software bill of materials of programs of one Go module, in the format
// CycloneDX. It has the modules that the linker has put into the programs, the version of Go, and
// the shared libraries that the programs import.
//
//	sbom VERSION PROGRAM...
//
// The same programs give the same bytes.
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
	"slices"
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
	if len(args) < 2 {
		return errors.New("usage: sbom VERSION PROGRAM [PROGRAM...]")
	}
	b, err := describe(args[0], args[1:])
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(b)
}

// describe returns the bill of materials of the programs, from what the linker has noted in them.
func describe(version string, paths []string) (bom, error) {
	b := bom{Format: "CycloneDX", Spec: "1.5", Version: 1}
	for _, path := range paths {
		module, parts, err := read(path)
		if err != nil {
			return bom{}, err
		}
		program := component{Type: "application", Name: module, Version: version}
		program.PURL = "pkg:golang/" + program.Name + "@" + version
		program.Ref = program.PURL
		b.Metadata = metadata{program}
		for _, c := range parts {
			if !slices.ContainsFunc(b.Components, func(other component) bool { return other.Ref == c.Ref }) {
				b.Components = append(b.Components, c)
			}
		}
	}
	on := dependency{Ref: b.Metadata.Component.Ref}
	for _, c := range b.Components {
		on.On = append(on.On, c.Ref)
	}
	b.Dependencies = []dependency{on}
	return b, nil
}

// read reads what the linker has noted in a program. It returns the module of the program, and
// the components in the program.
func read(path string) (module string, parts []component, err error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", nil, fmt.Errorf("reading the modules: %w", err)
	}
	std := strings.TrimPrefix(info.GoVersion, "go")
	parts = append(parts, component{Type: "library", Ref: "pkg:golang/std@" + std, Name: "std", Version: std,
		PURL: "pkg:golang/std@" + std})
	for _, m := range info.Deps {
		c, err := library(cmp.Or(m.Replace, m))
		if err != nil {
			return "", nil, err
		}
		parts = append(parts, c)
	}
	file, err := elf.Open(path)
	if err != nil {
		return "", nil, fmt.Errorf("reading the shared libraries: %w", err)
	}
	defer file.Close()
	shared, err := file.ImportedLibraries()
	if err != nil {
		return "", nil, fmt.Errorf("reading the shared libraries: %w", err)
	}
	for _, name := range shared {
		parts = append(parts, component{Type: "library", Ref: name, Name: name})
	}
	return info.Main.Path, parts, nil
}

// library returns the component of a module. The hash is that of go.sum, which is the SHA-256 of
// the list of the module's files.
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
