package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// origin is where the values of a command's flags came from.
type origin struct {
	command *cobra.Command
	given   map[string][]string // on the command line
	path    string              // of the YAML file, empty if there is none
	values  map[string]any      // that it had
}

// readConfig sets the flags that a YAML file names and the command line does
// not: the file's keys are the flags' names, and flags win.
func readConfig(c *cobra.Command, path string) (origin, error) {
	o := origin{command: c, given: make(map[string][]string), path: path}
	c.Flags().Visit(func(f *pflag.Flag) {
		o.given[f.Name] = []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			o.given[f.Name] = list.GetSlice()
		}
	})
	var err error
	if o.values, err = o.read(); err != nil {
		return o, err
	}
	return o, o.set(c.Flags(), o.values)
}

// read reads the file.
func (o *origin) read() (map[string]any, error) {
	if o.path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("--config: %w", err) // no mistake in it
	case err != nil:
		return nil, usageError{fmt.Errorf("--config: %w", err)}
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		// The first line tells line and column; the others draw a picture.
		what, _, _ := strings.Cut(err.Error(), "\n")
		return nil, usageError{fmt.Errorf("--config %s: not a YAML map of flags and values: %s", o.path, what)}
	}
	return values, nil
}

// set gives those of the command's flags that are in flags the file's values,
// but for what was given on the command line.
func (o *origin) set(flags *pflag.FlagSet, values map[string]any) error {
	var errs []error
	for key, value := range values {
		if o.command.Flags().Lookup(key) == nil || key == "config" || key == "help" {
			errs = append(errs, fmt.Errorf("unknown key %q; keys are the flags of `%s --help`", key, o.command.CommandPath()))
			continue
		}
		if _, given := o.given[key]; given || flags.Lookup(key) == nil {
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
			if err := flags.Set(key, fmt.Sprint(v)); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", key, err))
			}
		}
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return usageError{fmt.Errorf("--config %s: %w", o.path, errors.Join(errs...))}
	}
	return nil
}

// again gives flags, some of the command's, the values that they would have if
// it started now. late are the other keys of the file whose values have changed.
func (o *origin) again(flags *pflag.FlagSet) (late []string, err error) {
	for name, values := range o.given {
		if flags.Lookup(name) == nil {
			continue
		}
		for _, v := range values {
			if err := flags.Set(name, v); err != nil {
				return nil, fmt.Errorf("--%s: %w", name, err)
			}
		}
	}
	values, err := o.read()
	if err != nil {
		return nil, err
	}
	for _, in := range []map[string]any{values, o.values} {
		for key := range in {
			_, given := o.given[key]
			if !given && flags.Lookup(key) == nil && !slices.Contains(late, key) && !reflect.DeepEqual(values[key], o.values[key]) {
				late = append(late, key)
			}
		}
	}
	slices.Sort(late)
	return late, o.set(flags, values)
}
