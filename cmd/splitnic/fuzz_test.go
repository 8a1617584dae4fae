package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// FuzzConfig reads configuration files. It expects success or a usage error, and that a value of
// the command line stays.
func FuzzConfig(f *testing.F) {
	for _, s := range []string{
		"iounit: [10.0.0.1, 10.0.0.2]\nname: sn0\n", "name: other\nqueues: 2\n", "listen: 0.0.0.0\nlan: macvtap:eth1\n",
		"name:\n", "help: true\n", "advanced: {spin: auto, max-pools: 4}\n", "advanced: [spin]\n", "advanced:\n  name: a\n",
		"nothing: 1\n", "- a\n", "a: b: c\n", "queues: many\n", "name: {a: b}\n", "&a [*a]\n", "",
	} {
		f.Add(false, s)
		f.Add(true, s)
	}
	path := filepath.Join(f.TempDir(), "config.yaml") // one for each fuzzing process
	f.Fuzz(func(t *testing.T, unit bool, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var c *cobra.Command
		if c = hostCommand(); unit {
			c = iounitCommand()
		}
		if err := c.Flags().Set("name", "mine"); err != nil {
			t.Fatal(err)
		}
		_, err := readConfig(c, path)
		if err != nil && exit.Status(err) != exit.Usage {
			t.Errorf("%q: %v", text, err)
		}
		if got := c.Flags().Lookup("name").Value.String(); got != "mine" {
			t.Errorf("%q changed the name to %q", text, got)
		}
	})
}
