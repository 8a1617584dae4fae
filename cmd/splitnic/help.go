package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// help prints the help of a command, wrapped to the width of the terminal.
func help(c *cobra.Command, _ []string) {
	w := c.OutOrStdout()
	width := terminalWidth(w)
	fmt.Fprintf(w, "%s\n\nUsage:\n", wrap(cmp.Or(c.Long, c.Short), width))
	if c.Runnable() {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				text := wrap(sub.Short, width-4-sub.NamePadding())
				fmt.Fprintf(w, "  %-*s  %s\n", sub.NamePadding(), sub.Name(),
					strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 4+sub.NamePadding())))
			}
		}
	}
	for _, s := range sections(c) {
		fmt.Fprintf(w, "\n%s:\n%s", s.title, s.flags.FlagUsagesWrapped(width))
	}
	if len(sectionsOf(c, isAdvanced)) > 0 {
		fmt.Fprintf(w, "\n%s\n", wrap(fmt.Sprintf(
			"%s(8) has the advanced settings, keys of the map %q in the file of --config.", pageName(c), advancedMap), width))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\n`%s COMMAND --help` says more about a command.\n", c.CommandPath())
	}
}

// terminalWidth returns the number of columns of w, or 80 if w is no terminal.
func terminalWidth(w io.Writer) int {
	if file := fileOf(w); file != nil {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// wrap breaks the paragraphs of text, which are separated by empty lines, into lines of at most
// width columns.
func wrap(text string, width int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		var b strings.Builder
		column := 0
		for word := range strings.FieldsSeq(p) {
			n := utf8.RuneCountInString(word)
			switch {
			case column == 0:
			case column+1+n > width:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += n
		}
		paragraphs[i] = b.String()
	}
	return strings.Join(paragraphs, "\n\n")
}

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
