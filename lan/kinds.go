package lan

import (
	"fmt"
	"slices"
	"strings"
)

// kinds has the kinds of LAN interfaces, in the order of help texts.
var kinds = []*kind{&macvtapKind, &packetKind, &tapKind, &switchKind}

// Default is the kind of a specification without one.
const Default = Macvtap

// Kinds returns the facts of all kinds.
func Kinds() []Facts {
	var all []Facts
	for _, k := range kinds {
		all = append(all, k.Facts)
	}
	return all
}

// row returns the row of a kind. The row of an unknown kind is empty.
func (k Kind) row() *kind {
	if i := slices.IndexFunc(kinds, func(row *kind) bool { return row.Name == k }); i >= 0 {
		return kinds[i]
	}
	return &kind{}
}

// Facts returns the facts of the kind, which are empty if it is unknown.
func (k Kind) Facts() Facts { return k.row().Facts }

// Dirs returns the directories in which ports of the kind make files. arg is the second result of
// ParseSpec.
func (k Kind) Dirs(arg string) []string {
	if dirs := k.row().dirs; dirs != nil {
		return dirs(arg)
	}
	return nil
}

// Usage returns the specifications that are possible, as a list for help texts.
func Usage() string {
	var words []string
	for _, k := range kinds {
		words = append(words, k.usage())
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Notes returns further explanations of these, for help texts.
func Notes() []string {
	var notes []string
	for _, k := range kinds {
		if k.Note != "" {
			notes = append(notes, k.Note)
		}
	}
	return notes
}

// ParseSpec splits a specification such as "macvtap:eth1" into the kind and its argument: the
// network card, the bridge, or the directory of a switch.
func ParseSpec(spec string) (Kind, string, error) {
	row, arg, _, err := parse(spec, "")
	if err != nil {
		return "", "", err
	}
	return row.Name, arg, nil
}

// parse is ParseSpec. It also returns the site in network namespace ns.
func parse(spec, ns string) (*kind, string, site, error) {
	name, arg, ok := strings.Cut(spec, ":")
	if !ok {
		name, arg = string(Default), spec
	}
	row := Kind(name).row()
	if row.at == nil {
		return nil, "", nil, fmt.Errorf("LAN interface %q: unknown kind %q; use %s", spec, name, Usage())
	}
	if arg == "" {
		return nil, "", nil, fmt.Errorf("LAN interface %q names no %s; use for example %s:%s", spec, row.Noun, name,
			row.Example)
	}
	at, err := row.at(arg, ns)
	if err != nil {
		return nil, "", nil, fmt.Errorf("LAN interface %q: %w", spec, err)
	}
	return row, arg, at, nil
}
