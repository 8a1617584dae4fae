package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mit    = "MIT License\n\nPermission is hereby granted, free of\ncharge, to any person …\nThe above copyright notice …\n"
	bsd2   = "Redistribution and use in source and binary\nforms, with or without …\n"
	bsd3   = bsd2 + "Neither the name of X …\n"
	apache = "   Apache License\n   Version 2.0, January 2004\n"
)

// sources makes a module with these files, and returns it with the directories of linked packages.
func sources(t *testing.T, files map[string]string, linked ...string) source {
	t.Helper()
	s := source{path: "example.org/m", version: "v1.2.3", root: t.TempDir()}
	for name, text := range files {
		file := filepath.Join(s.root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range linked {
		s.dirs = append(s.dirs, filepath.Join(s.root, dir))
	}
	return s
}

// TestRead expects the files of linked packages, and of directories above them, and no others.
func TestRead(t *testing.T) {
	s := sources(t, map[string]string{
		"LICENSE": apache + "\r\n", "NOTICE.txt": "made by X", "copyright": "X", "license.go": "package m", "README": "x",
		"a/vendored/LICENSE": mit, "a/vendored/deep/x.go": "", "b/COPYING": bsd3, "b/x.go": "",
	}, "a/vendored/deep", "a", "")
	m, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range m.files {
		names = append(names, f.name)
	}
	if want := []string{"LICENSE", "NOTICE.txt", "a/vendored/LICENSE", "copyright"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if ids, err := m.licences(); err != nil || !slices.Equal(ids, []string{"Apache-2.0", "MIT"}) {
		t.Errorf("%q, %v", ids, err)
	}
	text := document([]module{m, {path: "example.org/n", version: "v2", files: []file{{"LICENCE", m.files[0].text}}}})
	for _, want := range []string{"\nexample.org/m v1.2.3\nexample.org/n v2\n", "\nmade by X\n",
		"\nexample.org/m v1.2.3: LICENSE\nexample.org/n v2: LICENCE\n\nApache License\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

func TestLicences(t *testing.T) {
	for text, want := range map[string]string{mit: "MIT", bsd2: "BSD-2-Clause", bsd3: "BSD-3-Clause", apache: "Apache-2.0",
		"All rights reserved.": ""} {
		m := module{path: "m", files: []file{{"LICENSE.md", text}, {"NOTICE", "x"}}}
		if ids, err := m.licences(); strings.Join(ids, " ") != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, ids, err)
		}
	}
	m := module{path: "m", files: []file{{"NOTICE", "x"}}}
	if ids, err := m.licences(); err == nil {
		t.Errorf("without a licence: %q", ids)
	}
}

// TestFill expects the licences in a bill of materials, and everything else of it.
func TestFill(t *testing.T) {
	const bill = `{"bomFormat": "CycloneDX", "version": 1, "metadata": {"component": {"name": "splitnic"}},
		"components": [{"name": "m", "purl": "pkg:golang/m@v1?a=1&b=2"}, {"name": "std"}]}`
	names := map[string][]string{"m": {"Apache-2.0", "MIT"}, "std": {"BSD-3-Clause"}}
	text, err := fill([]byte(bill), names)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"bomFormat":"CycloneDX","components":[{"licenses":[{"license":{"id":"Apache-2.0"}},` +
		`{"license":{"id":"MIT"}}],"name":"m","purl":"pkg:golang/m@v1?a=1&b=2"},` +
		`{"licenses":[{"license":{"id":"BSD-3-Clause"}}],"name":"std"}],` +
		`"metadata":{"component":{"licenses":[{"license":{"id":"Apache-2.0"}}],"name":"splitnic"}},"version":1}`
	var got, expected any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got) // of valid JSON
	b, _ := json.Marshal(expected)
	if string(a) != string(b) || !strings.Contains(string(text), "a=1&b=2") {
		t.Errorf("%s\nand not\n%s", text, want)
	}
	for _, wrong := range []string{`{"metadata": {"component": {}}, "components": [{"name": "unknown"}]}`,
		`{"metadata": {"component": {}}}`, `{"components": [{"name": "m"}]}`, `[]`, ``} {
		if text, err := fill([]byte(wrong), names); err == nil {
			t.Errorf("%s: %s", wrong, text)
		}
	}
}
