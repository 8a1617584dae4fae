package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// group makes c a command that is only there for its subcommands: alone it
// shows its help.
func group(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.AddCommand(subcommands...)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return exit.Usagef("unknown command %q%s; see `%s --help`", args[0], meant(c, args[0]), c.CommandPath())
	}
	return c
}

// meant names the subcommands that a mistyped word may stand for.
func meant(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = 2
	names := c.SuggestionsFor(word)
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", strings.Join(names, " or "))
}
