package main

import (
	"slices"
	"strings"

	"github.com/splitnic/splitnic/internal/errdoc"
)

// documented returns the errors in entries, those of errdoc.All, and tests, the text of
// errdoc.TestsFile, like claims. The errors include differences between entries and tests, tests
// that produced no message of their group, and messages that no test of their group produced.
func (r *report) documented(entries []errdoc.Entry, tests string) []string {
	produced := func(test, key string) bool {
		for name, keys := range r.explains {
			if (name == test || strings.HasPrefix(name, test+"/")) && slices.Contains(keys, key) {
				return true
			}
		}
		return false
	}
	groups := errdoc.ParseTests(tests)
	silent := make(map[string]bool) // keys of entries without a message
	for _, e := range entries {
		silent[e.Key] = e.Message == ""
	}
	wrong := errdoc.Check(entries, groups)
	var rows []claimRow
	for _, g := range groups {
		c := claimRow{file: errdoc.TestsFile, name: g.Keys[0], line: g.Line, tests: g.Tests}
		rows = append(rows, c)
		all := true // all tests of the group were to run
		for _, t := range g.Tests {
			if !r.plan.has(t) {
				all = false
				continue
			}
			if !silent[g.Keys[0]] && !slices.ContainsFunc(g.Keys, func(k string) bool { return produced(t, k) }) {
				wrong = append(wrong, c.complaint("%s produced nothing of %q", t, g.Keys))
			}
		}
		for _, k := range g.Keys {
			if len(g.Tests) > 0 && all && !silent[k] &&
				!slices.ContainsFunc(g.Tests, func(t string) bool { return produced(t, k) }) {
				wrong = append(wrong, c.complaint("no test of the group produced %q", k))
			}
		}
	}
	return slices.Concat(wrong, r.shown(rows))
}
