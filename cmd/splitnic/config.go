package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// readConfig sets the flags that a YAML file names and the command line does
// not: the file's keys are the flags' names, and flags win.
func readConfig(c *cobra.Command, path string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return fmt.Errorf("--config: %w", err) // no mistake in it
	case err != nil:
		return usageError{fmt.Errorf("--config: %w", err)}
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		// The first line tells line and column; the others draw a picture.
		what, _, _ := strings.Cut(err.Error(), "\n")
		return usageError{fmt.Errorf("--config %s: not a YAML map of flags and values: %s", path, what)}
	}
	given := map[string]bool{}
	c.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	var errs []error
	for key, value := range values {
		f := c.Flags().Lookup(key)
		if f == nil || key == "config" || key == "help" {
			errs = append(errs, fmt.Errorf("unknown key %q; keys are the flags of `%s --help`", key, c.CommandPath()))
			continue
		}
		if given[key] {
			continue
		}
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, v := range list {
			switch v.(type) {
			case nil, []any, map[string]any:
				errs = append(errs, fmt.Errorf("%s: must have a value, or a list of values", key))
				continue
			}
			if err := c.Flags().Set(key, fmt.Sprint(v)); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
			}
		}
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return usageError{fmt.Errorf("--config %s: %w", path, errors.Join(errs...))}
	}
	return nil
}
