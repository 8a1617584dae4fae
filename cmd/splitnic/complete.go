package main

import (
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/verbs"
	"github.com/splitnic/splitnic/vnet"
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
			if s, err := readStatus(c.Context(), path); err == nil && s.Unit != nil { // it may have ended
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
	flags := map[string]cobra.CompletionFunc{
		"protection": oneOf(words(messaging.Protections())...), "mode": someOf(modeNames()...),
		"modes":     someOf(modeNames()...),
		"offloads":  someOf(append([]string{"all", "none"}, vnet.AllOffloads.Names()...)...),
		"log-level": oneOf("debug", "info", "warn", "error"), "log-format": oneOf("text", "json"),
		"device": completeDevices, "peer-device": completeDevices,
		"sweep": someOf(sweepNames()...),
		"lan":   completeLAN(netdeviceNames), "netns": completeNetNS(agentPlaces.named), "port": completePort,
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if complete := flags[f.Name]; complete != nil {
			completeFlag(c, f.Name, complete)
		}
	})
	for _, sub := range c.Commands() {
		completeValues(sub)
	}
}

func completeDevices(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	devices, err := verbs.Devices()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return daemon.DeviceNames(devices), cobra.ShellCompDirectiveNoFileComp
}

// netdeviceNames returns the netdevices of this machine, except for the loopback device.
func netdeviceNames() (names []string) {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	return names
}

// completeLAN makes the shell complete a LAN interface: a netdevice, or a kind of which the argument
// follows, which is a netdevice or a path.
func completeLAN(netdevices func() []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) (words []string, _ cobra.ShellCompDirective) {
		for _, k := range lan.Kinds() {
			prefix := string(k.Name) + ":"
			switch {
			case !strings.HasPrefix(typed, prefix):
				words = append(words, prefix)
			case !k.Netdevice():
				return nil, cobra.ShellCompDirectiveDefault
			default:
				words = netdevices()
				for i := range words {
					words[i] = prefix + words[i]
				}
				return words, cobra.ShellCompDirectiveNoFileComp
			}
		}
		return append(netdevices(), words...), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNetNS makes the shell complete the names of network namespaces, which are in dir. A path
// is possible, too.
func completeNetNS(dir string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
		entries, _ := os.ReadDir(dir) // missing if there are none
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names, cobra.ShellCompDirectiveDefault
	}
}

// completePort makes the shell complete the kind of a netdevice.
func completePort(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	if strings.HasPrefix(typed, "vhost-user:") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return []string{"tap", "vhost-user:"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// someOf makes the shell complete a list of words with commas between them.
func someOf(words ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) (lists []string, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		for _, w := range words {
			if !slices.Contains(strings.Split(before, ","), w) {
				lists = append(lists, before+w)
			}
		}
		return lists, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}

// oneOf makes the shell complete one of several words.
func oneOf(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

func completeFlag(c *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag
	}
}
