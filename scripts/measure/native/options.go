package native

import (
	"flag"
	"os"
	"slices"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

// Options selects what is measured.
type Options struct {
	only     string
	sel      results.Selection
	profiles string // directory for CPU profiles of splitnic; empty: none
	rounds   int
}

// Flags implements results.Measure.
func (o *Options) Flags(flags *flag.FlagSet) {
	flags.StringVar(&o.only, "only", os.Getenv("BENCH_ONLY"),
		"what to measure: parts of names of subjects and measurements, or SUBJECT:MEASUREMENT, separated by commas")
	flags.StringVar(&o.profiles, "cpuprofile", "", "directory for profiles of splitnic's use of processors")
}

// prefix begins the names of all network namespaces that this package makes.
const prefix = "snbench-"

// wants reports whether any measurement of s is selected.
func (o *Options) wants(s subject) bool {
	if s.process() && o.sel.Has(s.String(), idle, false) {
		return true
	}
	return slices.ContainsFunc(measurements(), func(m measurement) bool {
		return m.of(s) && o.sel.Has(s.String(), m.name, m.asked)
	})
}
