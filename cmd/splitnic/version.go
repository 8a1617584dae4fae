package main

import (
	"fmt"

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
			if asJSON {
				return printJSON(c.OutOrStdout(), struct {
					Version  string `json:"version"`
					Protocol int    `json:"protocol"`
				}{version, protocol.Version})
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), "splitnic version", version)
			return err
		},
	}
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON, with the version of the protocol")
	return c
}
