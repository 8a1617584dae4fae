// Command notices writes what the licences of the linked modules require to be handed on with the
// programs.
//
//	notices FILE [BILL...]
//
// FILE gets the licences and notices of all modules that are linked into splitnic and splitnic-cni,
// with those of code that they have copied from others. Each BILL is a bill of materials
// (CycloneDX, JSON), whose components get the names of their licences. It runs in the checkout, and
// needs the modules' sources.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// programs are the packages that are distributed.
var programs = []string{"./cmd/splitnic", "./cmd/splitnic-cni"}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: notices FILE [BILL...]")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func write(file string, bills []string) error {
	linked, err := list(programs)
	if err != nil {
		return err
	}
	var all []module
	for _, l := range linked {
		m, err := l.read()
		if err != nil {
			return err
		}
		all = append(all, m)
	}
	if err := os.WriteFile(file, []byte(document(all)), 0o644); err != nil {
		return err
	}
	names := map[string][]string{}
	for _, m := range all {
		if names[m.path], err = m.licences(); err != nil {
			return err
		}
	}
	for _, bill := range bills {
		text, err := os.ReadFile(bill)
		if err != nil {
			return err
		}
		if text, err = fill(text, names); err != nil {
			return fmt.Errorf("%s: %w", bill, err)
		}
		if err := os.WriteFile(bill, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// known has the licences, by SPDX identifier, with parts of their texts. A text has the licence
// whose parts it all has; the first one counts.
var known = []struct {
	id    string
	parts []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0, January 2004"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "Neither the name"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	{"MIT", []string{"Permission is hereby granted, free of charge", "The above copyright notice"}},
	{"ISC", []string{"Permission to use, copy, modify, and/or distribute this software for any purpose"}},
}

// licence returns the licence in a text, or "".
func licence(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	for _, l := range known {
		if !slices.ContainsFunc(l.parts, func(part string) bool { return !strings.Contains(text, part) }) {
			return l.id
		}
	}
	return ""
}

// licences returns the licences of a module, with those of the code that it has copied.
func (m *module) licences() (ids []string, _ error) {
	for _, f := range m.files {
		base := strings.ToUpper(path.Base(f.name))
		if !strings.HasPrefix(base, "LICEN") && !strings.HasPrefix(base, "COPYING") {
			continue // a notice
		}
		id := licence(f.text)
		if id == "" {
			return nil, fmt.Errorf("%s: %s is a licence that is not known here", m.path, f.name)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s has no file with its licence", m.path)
	}
	slices.Sort(ids)
	return ids, nil
}

// document returns the text that is handed on: what each module has, and each text once.
func document(all []module) string {
	var b strings.Builder
	b.WriteString("splitnic and splitnic-cni are under the Apache License 2.0. These modules are linked into them,\n" +
		"under the terms below.\n\n")
	var texts []string
	users := map[string][]string{}
	for _, m := range all {
		fmt.Fprintf(&b, "%s %s\n", m.path, m.version)
		for _, f := range m.files {
			if users[f.text] == nil {
				texts = append(texts, f.text)
			}
			users[f.text] = append(users[f.text], fmt.Sprintf("%s %s: %s", m.path, m.version, f.name))
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("-", 80), strings.Join(users[text], "\n"), text)
	}
	return b.String()
}

// fill returns a bill of materials with the licences of its components.
func fill(bill []byte, names map[string][]string) ([]byte, error) {
	values := json.NewDecoder(bytes.NewReader(bill))
	values.UseNumber()
	var b map[string]any
	if err := values.Decode(&b); err != nil {
		return nil, err
	}
	components, _ := b["components"].([]any)
	for _, c := range components {
		component, _ := c.(map[string]any)
		name, _ := component["name"].(string)
		if names[name] == nil {
			return nil, fmt.Errorf("the licence of component %q is not known", name)
		}
		component["licenses"] = entries(names[name])
	}
	if len(components) == 0 {
		return nil, fmt.Errorf("it has no components")
	}
	metadata, _ := b["metadata"].(map[string]any)
	main, _ := metadata["component"].(map[string]any)
	if main == nil {
		return nil, fmt.Errorf("it has no main component")
	}
	main["licenses"] = entries([]string{"Apache-2.0"})
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(b)
	return out.Bytes(), err
}

// entries returns licences in the form of CycloneDX.
func entries(ids []string) (list []any) {
	for _, id := range ids {
		list = append(list, map[string]any{"license": map[string]any{"id": id}})
	}
	return list
}
