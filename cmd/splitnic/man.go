package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY [DOCUMENT...]",
		Short:  "Write the manual pages for go-md2man: those of the commands, and one of each document",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("the directory is missing; see `splitnic man --help`")
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			errs := []error{writePages(cmd.Root(), args[0])}
			for _, document := range args[1:] {
				errs = append(errs, writeDocument(document, args[0]))
			}
			return errors.Join(errs...)
		},
	}
}

// writePages writes the manual pages of a command and its subcommands, in go-md2man's Markdown. The
// build converts them, so that daemons need no converter.
func writePages(c *cobra.Command, dir string) error {
	c.InitDefaultHelpFlag()
	errs := []error{os.WriteFile(filepath.Join(dir, pageName(c)+".8.md"), []byte(manPage(c)), 0o644)}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			errs = append(errs, writePages(sub, dir))
		}
	}
	return errors.Join(errs...)
}

func manPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%% %q \"8\" \"\" \"splitnic\" \"splitnic\"\n# NAME\n%s - %s\n", strings.ToUpper(pageName(c)),
		pageName(c), c.Short)
	fmt.Fprintf(&b, "# SYNOPSIS\n**%s**\n# DESCRIPTION\n%s\n", c.UseLine(), cmp.Or(c.Long, c.Short))
	options(&b, "# OPTIONS\n", sections(c))
	options(&b, "# ADVANCED SETTINGS\n"+
		"Keys of the map **"+advancedMap+"** in the file of **--config**, not of the command "+
		"line.\n", sectionsOf(c, isAdvanced))
	if pageName(c) == "splitnic-status" {
		fmt.Fprint(&b, countersPage())
	}
	if !c.HasParent() {
		fmt.Fprint(&b, rootPage(c))
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "# EXAMPLES\n```\n%s\n```\n", c.Example)
	}
	var also []string
	if c.HasParent() {
		also = append(also, pageName(c.Parent()))
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			also = append(also, pageName(sub))
		}
	}
	for i, name := range also {
		also[i] = "**" + name + "**(8)"
	}
	fmt.Fprintf(&b, "# SEE ALSO\n%s\n", strings.Join(also, ", "))
	return b.String()
}

// options writes a list of flags, or of advanced settings, if there are any.
func options(b *strings.Builder, heading string, list []section) {
	if len(list) > 0 {
		b.WriteString(heading)
	}
	for _, s := range list {
		fmt.Fprintf(b, "### %s\n", s.title)
		s.flags.VisitAll(func(f *pflag.Flag) { option(b, f) })
	}
}

// option writes the text about a flag, or an advanced setting, in a manual page.
func option(b *strings.Builder, f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	written := "--" + f.Name
	if isAdvanced(f) {
		written = f.Name + ":"
	}
	fmt.Fprint(b, "\n")
	if f.Shorthand != "" {
		fmt.Fprintf(b, "**-%s**, ", f.Shorthand)
	}
	fmt.Fprintf(b, "**%s**", written)
	if value != "" {
		fmt.Fprintf(b, " _%s_", value)
	}
	fmt.Fprintf(b, "\n: %s", usage)
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
	default:
		fmt.Fprintf(b, " (default %s)", f.DefValue)
	}
	fmt.Fprint(b, "\n")
}
