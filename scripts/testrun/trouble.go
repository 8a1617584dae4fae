package main

import (
	"slices"
	"strings"

	"github.com/splitnic/splitnic/internal/trouble"
)

// troubles is claims for page, the text of trouble.File, and also returns what
// the tests in explained, by their names, have not produced: nothing of a row
// that names them, or one of its messages.
func (r *runner) troubles(page string, layers []string, results []result, explained map[string][]string) []string {
	produced := func(test, message string) bool {
		for name, messages := range explained {
			if (name == test || strings.HasPrefix(name, test+"/")) && slices.Contains(messages, message) {
				return true
			}
		}
		return false
	}
	var wrong []string
	var rows []claimRow
	for _, row := range trouble.Parse(page) {
		c := claimRow{file: trouble.File, name: row.Name, line: row.Line, tests: row.Tests}
		rows = append(rows, c)
		all := true // of its tests were to run
		for _, t := range row.Tests {
			if !slices.Contains(layers, layerOf(t)) || !r.wants(topLevel(t)) {
				all = false
				continue
			}
			if len(row.Messages) > 0 && !slices.ContainsFunc(row.Messages, func(m string) bool { return produced(t, m) }) {
				wrong = append(wrong, c.complaint("%s produced nothing of %s", t, row.Name))
			}
		}
		for _, m := range row.Messages {
			if all && !slices.ContainsFunc(row.Tests, func(t string) bool { return produced(t, m) }) {
				wrong = append(wrong, c.complaint("no test of the row produced %q", m))
			}
		}
	}
	return slices.Concat(checkNamed(rows), wrong, r.shown(rows, layers, results))
}
