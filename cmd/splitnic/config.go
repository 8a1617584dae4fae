package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/settings"
)

// origin records where the values of a command's flags have come from.
type origin struct {
	command *cobra.Command
	given   map[string][]string // on the command line
	path    string              // of the YAML file, empty if there is none
	values  []setting           // entries of the file
}

// setting is an entry of the configuration file.
type setting struct {
	key   string // the name of the flag
	below string // advancedPrefix for an advanced setting, or else empty
	at    settings.Node
	words []string
}

// name returns the path of the key in the file.
func (s *setting) name() string { return s.below + s.key }

// readConfig sets the flags that are in a YAML file and not on the command line. The keys of the
// file are the names of the flags, and those of advanced settings, which the command line cannot
// have, are below advancedMap. Flags on the command line take precedence.
func readConfig(c *cobra.Command, path string) (origin, error) {
	o := origin{command: c, given: make(map[string][]string), path: path}
	var errs mistakes
	c.Flags().Visit(func(f *pflag.Flag) {
		if isAdvanced(f) {
			errs.add("%w", moved(c, "--"+f.Name, f.Name))
		}
		o.given[f.Name] = []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			o.given[f.Name] = list.GetSlice()
		}
	})
	var err error
	o.values, err = o.read()
	return o, errors.Join(append(errs, err, o.set(c.Flags(), o.values))...)
}

// read reads the file. It returns an error for keys and values that no command line could have.
func (o *origin) read() ([]setting, error) {
	if o.path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.path)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("--config: %w", err) // not an error in its content
	case err != nil:
		return nil, exit.Usagef("--config: %w", err)
	}
	body, err := settings.Parse(o.path, text)
	if err != nil {
		return nil, exit.Usagef("--config %w", err)
	}
	entries, ok := settings.Map(body)
	if !ok {
		return nil, o.mistake(body, "must be a map, lines of the form `flag: value`")
	}
	return o.settings("", entries)
}

// settings returns the settings in the entries of a map of the file, which is that of the whole
// file, or with below the one of the advanced settings.
func (o *origin) settings(below string, entries []settings.Entry) (values []setting, _ error) {
	var errs []error
	for _, e := range entries {
		if below == "" && e.Key == advancedMap {
			inner, ok := settings.Map(e.Value)
			if !ok {
				errs = append(errs, o.mistake(e.At, "%s: must be a map, lines of the form `key: value`", advancedMap))
				continue
			}
			list, err := o.settings(advancedPrefix, inner)
			values, errs = append(values, list...), append(errs, err)
			continue
		}
		s := setting{key: e.Key, below: below, at: e.At}
		words, err := settings.Scalars(e.Value)
		if unknown := o.misplaced(&s); unknown != nil {
			errs = append(errs, o.mistake(e.At, "%w", unknown))
		} else if err != nil {
			errs = append(errs, o.mistake(e.At, "%s: %w", s.name(), err))
		} else {
			s.words = words
		}
		values = append(values, s)
	}
	return values, errors.Join(errs...)
}

// misplaced returns an error for a key that does not exist, or not in this map.
func (o *origin) misplaced(s *setting) error {
	flag := o.command.Flags().Lookup(s.key)
	switch {
	case flag == nil && s.below != "":
		return fmt.Errorf("unknown key %q%s; %s(8) has the keys below %s", s.name(),
			didYouMean(similarFlags(o.command, s.key, true)), pageName(o.command), advancedMap)
	case flag == nil, s.key == "config", s.key == "help":
		names := slices.DeleteFunc(similarFlags(o.command, s.key, false), func(name string) bool { return name == s.key })
		hint := didYouMean(names)
		if others := withFlag(o.command.Root(), s.key); flag == nil && len(names) == 0 && len(others) > 0 {
			hint = fmt.Sprintf(" (a key of %s)", strings.Join(others, " and "))
		}
		return fmt.Errorf("unknown key %q%s; keys are the flags of `%s --help`", s.name(), hint, o.command.CommandPath())
	case isAdvanced(flag) && s.below == "":
		return moved(o.command, s.key, s.key)
	case !isAdvanced(flag) && s.below != "":
		return fmt.Errorf("unknown key %q (did you mean %s?); it is not below %s", s.name(), s.key, advancedMap)
	}
	return nil
}

// mistake returns an error about node n of the file.
func (o *origin) mistake(n settings.Node, format string, args ...any) error {
	return exit.Usagef("--config %w", settings.Errorf(o.path, n, format, args...))
}

// set sets flags, some of the command's flags, to the values of the file, except for flags that
// were given on the command line.
func (o *origin) set(flags *pflag.FlagSet, values []setting) error {
	var errs []error
	for _, v := range values {
		if _, given := o.given[v.key]; given || flags.Lookup(v.key) == nil {
			continue
		}
		given, err := accepted(flags.Lookup(v.key), v.words)
		if err != nil {
			errs = append(errs, o.mistake(v.at, "%s: %w", v.name(), err))
			continue
		}
		for _, word := range given {
			if err := flags.Set(v.key, word); err != nil {
				var value *pflag.InvalidValueError
				if errors.As(err, &value) {
					err = badValue(value)
				}
				errs = append(errs, o.mistake(v.at, "%s: %w", v.name(), err))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// withCommas are the settings whose one value is a list with commas.
var withCommas = []string{"offloads", "ciphers", "handler-cpus", "handler-priority", "cq-moderation"}

// accepted returns the words in the form in which a flag accepts them, one after the other. It
// returns an error for a list where there must be one word: the last one would win.
func accepted(f *pflag.Flag, words []string) ([]string, error) {
	_, several := f.Value.(pflag.SliceValue)
	switch {
	case len(words) <= 1, several: // none: the error is known
		return words, nil
	case slices.Contains(withCommas, f.Name):
		return []string{strings.Join(words, ",")}, nil
	}
	return nil, fmt.Errorf("must be one value, not the list %s", strings.Join(words, ", "))
}

// again sets flags, some of the command's flags, to the values that they would have if the command
// started now. late has the other keys of the file whose values have changed.
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
	for _, v := range slices.Concat(values, o.values) {
		_, given := o.given[v.key]
		if !given && flags.Lookup(v.key) == nil && !slices.Contains(late, v.name()) &&
			!slices.Equal(wordsOf(values, v.key), wordsOf(o.values, v.key)) {
			late = append(late, v.name())
		}
	}
	slices.Sort(late)
	return late, o.set(flags, values)
}

// wordsOf returns the words of a key, or nil if the key is not among the values.
func wordsOf(values []setting, key string) []string {
	if s := settingOf(values, key); s != nil {
		return s.words
	}
	return nil
}

// settingOf returns the entry of a key, or nil.
func settingOf(values []setting, key string) *setting {
	for i := range values {
		if values[i].key == key {
			return &values[i]
		}
	}
	return nil
}

// configure reads the configuration file of a command into its flags, and returns the configuration
// that config makes of them. sources adds the flags that a reload reads again.
func configure[T any](
	c *cobra.Command, common *daemon.Common, sources func(*pflag.FlagSet, *daemon.Sources), config func() (T, error),
) (none T, _ error) {
	o, err := readConfig(c, common.ConfigFile)
	if err != nil {
		return none, err
	}
	common.Reread = func() (s daemon.Sources, late []string, err error) {
		flags := pflag.NewFlagSet("reload", pflag.ContinueOnError)
		sources(flags, &s)
		late, err = o.again(flags)
		return s, late, err
	}
	return config()
}
