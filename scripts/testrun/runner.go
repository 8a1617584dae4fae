package main

import (
	"regexp"
	"slices"
	"strings"
)

// buildDir is where everything goes, relative to the top of the checkout.
const buildDir = "build"

// runner is what every layer is given.
type runner struct {
	*collector
	packages []testPackage
	filter   *regexp.Regexp // of top-level tests; nil means all
}

// pick returns the packages that have tests with one of these prefixes that the
// user wants, reduced to them.
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

// wants reports whether the user did not exclude a test.
func (r *runner) wants(name string) bool {
	return r.filter == nil || r.filter.MatchString(name)
}
