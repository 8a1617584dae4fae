package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
)

// agentSchema is the JSON schema of the agent's API v1, which TestAgentSchema makes from the
// types.
//
//go:embed agent-v1.schema.json
var agentSchema []byte

func cardCommand() *cobra.Command {
	var agent cards.Client // the value of --socket
	c := group(&cobra.Command{
		Use:   "card",
		Short: "Make and remove the cards of the agent on this machine",
		Long: `Make and remove the cards of the agent on this machine. The commands status, top, wait,
stats and reset accept the name of a card, like the name of a host's netdevice.`,
	}, cardAddCommand(&agent), cardDelCommand(&agent), cardListCommand(&agent))
	c.PersistentFlags().StringVar((*string)(&agent), "socket", statussock.Path(cards.AgentSocket),
		"status socket of the agent")
	return c
}

func cardAddCommand(agent *cards.Client) *cobra.Command {
	var spec cards.Spec
	var asJSON bool
	c := &cobra.Command{
		Use:   "add NAME [flags]",
		Short: "Make a card",
		Long: `Make a card, and print its name, its netdevice, and the fingerprint that the I/O unit has to
trust. The netdevice exists when the command returns; ` + "`splitnic wait NAME --connected`" + ` waits for the
session. If the card exists with the same flags nothing happens; with others it is refused.`,
		Example: `  splitnic card add web --netns pod1 --netdev eth0
  splitnic card add db --netns /proc/4711/ns/net --mac 02:00:00:00:00:01 --key /etc/splitnic/db.pem`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cardName(cmd, args)
			if err != nil {
				return err
			}
			spec.Name = name
			for _, path := range []*string{&spec.Key, &spec.Cert} {
				if *path != "" {
					if *path, err = filepath.Abs(*path); err != nil {
						return err
					}
				}
			}
			i, err := agent.Add(cmd.Context(), &spec)
			if err != nil {
				return explainCard(err)
			}
			return show(cmd.OutOrStdout(), asJSON, i, line(i.Spec.Name, i.Spec.Netdevice, i.Status.Fingerprint))
		},
	}
	addSpec(c.Flags(), &spec)
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON")
	return c
}

func addSpec(flags *pflag.FlagSet, s *cards.Spec) {
	const asAgent = " (default: that of the agent's flags)"
	flags.StringSliceVar(&s.IOUnits, "iounit", nil, "address of an I/O unit, or srv:NAME; several in order of preference"+asAgent)
	flags.StringVar(&s.HostName, "host-name", "", "name of the card at the I/O unit (default: HOSTNAME.NAME)")
	flags.StringVar(&s.Owner, "owner", "", "word that identifies the owner of the card; splitnic card list shows it")
	inGroup(flags, identityFlags)
	flags.StringVar(&s.Device, "device", "", "RDMA device"+asAgent)
	inGroup(flags, deviceFlags)
	flags.StringVar(&s.Netdevice, "netdev", "", "name of the netdevice (default: that of the card)")
	flags.StringVar(&s.NetNS, "netns", "",
		"network namespace of the netdevice, by name or path, such as /proc/PID/ns/net (default: the agent's)")
	boolVar(flags, &s.Transient, "transient", false, "remove the card when its network namespace is removed")
	flags.StringVar(&s.MAC, "mac", "", "MAC address to request (default: one that the I/O unit derives from the key)")
	flags.IntVar(&s.MTU, "mtu", 0, "largest MTU; the netdevice follows the I/O unit's network card up to it"+asAgent)
	inGroup(flags, netdeviceFlags)
	flags.IntVar(&s.Queues, "queues", 0, "queues to request"+asAgent)
	inGroup(flags, performanceFlags)
	flags.StringVar(&s.Encrypt, "encrypt", "", "encrypt and authenticate all frames on the fabric: required, allowed or no"+asAgent)
	flags.StringVar(&s.Key, "key", "", "private key of the card, made by splitnic keygen (default: the agent's)")
	flags.StringVar(&s.Cert, "cert", "", "certificate for --key")
	boolVar(flags, &s.NewKey, "new-key", false, "make a private key for the card, and remove the key with the card")
	inGroup(flags, securityFlags)
}

func cardDelCommand(agent *cards.Client) *cobra.Command {
	return &cobra.Command{
		Use:        "del NAME",
		SuggestFor: []string{"rm", "remove", "delete"},
		Short:      "Remove a card, if it exists",
		Long:       `Remove a card and its netdevice. If there is no card of that name nothing happens.`,
		Args:       atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cardName(cmd, args)
			if err != nil {
				return err
			}
			return explainCard(agent.Del(cmd.Context(), name))
		},
		ValidArgsFunction: completeCards(agent),
	}
}

func completeCards(agent *cards.Client) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, _, err := agent.List(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, i := range list.Cards {
			names = append(names, i.Spec.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func cardListCommand(agent *cards.Client) *cobra.Command {
	var asJSON, schema bool
	c := &cobra.Command{
		Use:        "list",
		SuggestFor: []string{"ls", "show", "get"},
		Short:      "List the cards",
		Long:       `List the cards, with their states and netdevices. --json prints the answer of the API v1.`,
		Args:       atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if schema {
				_, err := cmd.OutOrStdout().Write(agentSchema)
				return err
			}
			list, raw, err := agent.List(cmd.Context())
			if err != nil {
				return explainCard(err)
			}
			return show(cmd.OutOrStdout(), asJSON, raw, func(w io.Writer) error {
				return render.Cards(w, list.Cards, time.Now())
			})
		},
	}
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON")
	boolVar(c.Flags(), &schema, "schema", false, "print the JSON schema of the API, and nothing else")
	return c
}

// cardName returns the argument, the name of a card, which is required.
func cardName(cmd *cobra.Command, args []string) (string, error) {
	if len(args) == 0 {
		return "", exit.Usagef("the name of the card is missing; see `%s --help`", cmd.CommandPath())
	}
	if !cards.ValidName(args[0]) {
		// The agent would return the same error, but the name is part of the request's path.
		_, err := cards.Spec{Name: args[0], Netdevice: "x"}.Complete()
		return "", exit.Usagef("%s: %w", cmd.CommandPath()[len("splitnic "):], err)
	}
	return args[0], nil
}

// explainCard adds the exit status to an error, and how to reach the agent.
func explainCard(err error) error {
	var refused *cards.Refused
	switch {
	case errors.As(err, &refused):
		status := map[cards.Code]int{cards.Invalid: exit.Usage, cards.Conflict: exit.AddressInUse}[refused.Code]
		if status != 0 {
			return exit.With(status, err)
		}
	case errors.Is(err, statussock.ErrUnknown):
		return exit.Usagef("%w; --socket is for that of `splitnic agent`", err)
	case errors.Is(err, statussock.ErrLeft):
	case errors.Is(err, statussock.ErrNobody), errors.Is(err, os.ErrNotExist):
		return exit.With(exit.Missing,
			fmt.Errorf("%w; start `splitnic agent`, or name its --status-socket with --socket", err))
	}
	return err
}
