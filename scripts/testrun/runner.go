package main

import (
	"regexp"
	"slices"
	"strings"
)

// buildDir is the directory for all output, relative to the top of the checkout.
const buildDir = "build"

// runner is the argument of each layer's run function.
type runner struct {
	*collector
	packages []testPackage
	filter   *regexp.Regexp // of top-level tests; nil means all
}

// pick selects the tests that have one of these prefixes and that the user wants. It returns
// the packages that have such tests, without their other tests.
func (r *runner) pick(prefixes ...string) []testPackage {
	var picked []testPackage
	for _, p := range r.packages {
		p.tests = slices.DeleteFunc(slices.Clone(p.tests), func(name string) bool {
			has := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
			return !slices.ContainsFunc(prefixes, has) || !r.wants(name)
		})
		if len(p.tests) > 0 {
			picked = append(picked, p)
		}
	}
	return picked
}

// wants reports whether the user's filter includes a test.
func (r *runner) wants(name string) bool {
	return r.filter == nil || r.filter.MatchString(name)
}
