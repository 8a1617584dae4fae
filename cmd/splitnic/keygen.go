package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/splitdrv/session"
)

func keygenCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use:   "keygen",
		Short: "Make a private key, and print the fingerprint that the other side has to trust",
		Long: `Make a private key, and print the fingerprint that the other side has to trust.

Run it on both machines, then start each endpoint with --trust and the fingerprint
of the other one. If the key exists already, its fingerprint is printed.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := session.LoadKey(out)
			if errors.Is(err, os.ErrNotExist) {
				if key, err = session.GenerateKey(); err != nil {
					return err
				}
				if out == defaultKey { // another directory may be mistyped
					if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
						return fmt.Errorf("keygen: %w", err)
					}
				}
				err = session.SaveKey(out, key)
			} else if err != nil {
				err = exit.With(exit.Keys, err) // as at the start of an endpoint
			}
			if err != nil {
				return err
			}
			return line(key.Fingerprint())(cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&out, "out", defaultKey, "file for the key")
	return c
}
