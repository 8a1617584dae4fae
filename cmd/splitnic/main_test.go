package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelpNamesValues finds a command that pflag takes for the name of a flag's
// value, because it is in backquotes: --key `splitnic keygen`.
func TestHelpNamesValues(t *testing.T) {
	flags := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			flags++
			if value, _ := pflag.UnquoteUsage(f); strings.Contains(value, " ") {
				t.Errorf("%s --%s %s: the name of a value is one word", c.CommandPath(), f.Name, value)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand())
	if flags == 0 {
		t.Error("no flag was looked at")
	}
}
