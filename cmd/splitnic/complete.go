package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/internal/statussock"
)

// completeNames has the shell complete the names of the hosts on this machine, and with
// units those of its I/O units.
func completeNames(units bool, list func() ([]string, error)) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		sockets, err := list()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, path := range sockets {
			name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
			if host, ok := strings.CutPrefix(name, "host-"); ok {
				name = host
			} else if !units {
				continue
			}
			if !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveDefault // a path is possible, too
	}
}

// completing adds that to a command.
func completing(c *cobra.Command, units bool) *cobra.Command {
	c.ValidArgsFunction = completeNames(units, statussock.List)
	return c
}

// fixedWords has the shell complete the words that a flag's value can be.
func fixedWords(c *cobra.Command, flag string, words []string) {
	complete := cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag
	}
}
