package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "devel"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  atMost(0),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "splitnic version", version)
			return err
		},
	}
}
