package main

import (
	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/protocol"
)

// version is set by the linker.
var version = "devel"

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  atMost(0),
		RunE: func(c *cobra.Command, _ []string) error {
			return show(c.OutOrStdout(), asJSON, struct {
				Version  string `json:"version"`
				Protocol int    `json:"protocol"`
			}{version, protocol.Version}, line("splitnic version", version))
		},
	}
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON, with the version of the protocol")
	return c
}
