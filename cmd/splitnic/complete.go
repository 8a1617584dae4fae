package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/verbs"
)

// completeNames makes the shell complete the names of the processes with a role on this machine,
// or of all. Hosts, including an agent's cards, are named by their cards, and I/O units by their
// ports.
func completeNames(of role, list lister) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		sockets, err := list()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		for _, path := range sockets {
			name := ownName(path)
			if of == unitRole {
				name = strings.TrimPrefix(name, string(unitRole))
			}
			if of.has(path) && !slices.Contains(args, name) {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveDefault // a path is possible, too
	}
}

// completing adds completeNames to a command.
func completing(c *cobra.Command, of role) *cobra.Command {
	c.ValidArgsFunction = completeNames(of, statussock.List)
	return c
}

// completeHosts makes the shell complete the hosts of the I/O units on this machine, and after
// the host the I/O unit.
func completeHosts(list lister) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return completeNames(unitRole, list)(c, args[1:], word)
		}
		sockets, err := list()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, path := range sockets {
			if !unitRole.has(path) {
				continue
			}
			raw, err := statussock.Read(c.Context(), path)
			if err != nil {
				continue // the I/O unit has ended
			}
			if s, err := render.Parse(raw); err == nil && s.Unit != nil {
				for _, h := range s.Unit.Hosts {
					names = append(names, h.Name)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeValues makes the shell complete the values of flags that several commands have, for c
// and the commands below it.
func completeValues(c *cobra.Command) {
	words := map[string][]string{
		"protection": protections(),
		"mode":       modeNames(), "modes": modeNames(),
		"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"},
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch list := words[f.Name]; {
		case list != nil:
			fixedWords(c, f.Name, list)
		case f.Name == "device", f.Name == "peer-device":
			completeFlag(c, f.Name, completeDevices)
		case f.Name == "lan":
			completeFlag(c, f.Name, completeKinds)
		}
	})
	for _, sub := range c.Commands() {
		completeValues(sub)
	}
}

// completeDevices makes the shell complete the RDMA devices of this machine.
func completeDevices(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	devices, err := verbs.Devices()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeKinds makes the shell complete the kind of a LAN interface, behind which the argument of
// the kind follows.
func completeKinds(*cobra.Command, []string, string) (words []string, _ cobra.ShellCompDirective) {
	for _, k := range lan.Kinds() {
		words = append(words, string(k.Name)+":")
	}
	return words, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// completeFlag makes the shell complete the value of a flag.
func completeFlag(c *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag
	}
}

// fixedWords makes the shell complete the possible values of a flag.
func fixedWords(c *cobra.Command, flag string, words []string) {
	completeFlag(c, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
