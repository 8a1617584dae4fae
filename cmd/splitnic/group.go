package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// group makes c a command that only has subcommands. Without a subcommand it shows its help.
func group(c *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	c.AddCommand(subcommands...)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return unknownCommand(c, args[0])
	}
	return c
}

// helpCommand returns `splitnic help`, which fails for an unknown command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND…]",
		Short: "Show the help of a command",
		Long:  "Show the help of a command, as COMMAND --help does.",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0:
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if about, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range about.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// unknownCommand returns the error for a word that is no subcommand of c.
func unknownCommand(c *cobra.Command, word string) error {
	return exit.Usagef("unknown command %q%s; see `%s --help`", word, meant(c, word), c.CommandPath())
}

// helpOfUnknown returns an error if args request the help of a command that does not exist. cobra
// would print the help of the command above it.
func helpOfUnknown(root *cobra.Command, args []string) error {
	c, rest, err := root.Find(args)
	if err != nil || len(rest) == 0 || !c.HasAvailableSubCommands() {
		return nil // Execute reports the error
	}
	word := rest[0]
	if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "__") { // a flag, or cobra's own commands for shells
		return nil
	}
	for _, arg := range rest[1:] {
		switch arg {
		case "--":
			return nil
		case "--help", "-h":
			return unknownCommand(c, word)
		}
	}
	return nil
}
