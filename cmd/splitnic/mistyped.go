package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/settings"
)

// meant returns what the user may have meant by an unknown word: commands elsewhere that have this
// name, with their paths, or else similar subcommands of c. Each text begins with a space.
func meant(c *cobra.Command, word string) string {
	if text := instead[word]; text != "" && !c.HasParent() {
		return " (" + text + ")"
	}
	if written := asFlags(c, word); len(written) > 0 {
		return didYouMean(written)
	}
	if names := called(c.Root(), c, word); len(names) > 0 {
		return didYouMean(names)
	}
	if names := similar(c, word); len(names) > 0 {
		return didYouMean(names)
	}
	if flag := argument[c.CommandPath()]; flag != "" {
		return didYouMean([]string{"--" + flag + " " + word})
	}
	return ""
}

// didYouMean returns a question with names, or "" if there are none.
func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", strings.Join(names, " or "))
}

// similar returns the names of the subcommands of c that are similar to a word, or for which it
// is a synonym.
func similar(c *cobra.Command, word string) []string {
	c.SuggestionsMinimumDistance = min(len(word)/2, 2) // otherwise every short name would be similar
	return slices.Compact(c.SuggestionsFor(word))
}

// called returns the paths of the commands below c with that name, without except and its
// subcommands.
func called(c, except *cobra.Command, word string) (paths []string) {
	for _, sub := range c.Commands() {
		if sub.Name() == word && c != except && sub != except && sub.IsAvailableCommand() {
			paths = append(paths, sub.CommandPath())
		}
		paths = append(paths, called(sub, except, word)...)
	}
	return paths
}

// explain returns the text of an error, with the keys that the user may have meant by an unknown
// one.
func explain(err error) string {
	var unknown *settings.UnknownKeyError
	if errors.As(err, &unknown) {
		return err.Error() + didYouMean(similarWords(unknown.Key, unknown.Known))
	}
	return err.Error()
}

// flagError explains an error of pflag about the command line of c.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown):
		err = unknownFlag(c, unknown)
	case errors.As(err, &missing) && isAdvanced(missing.GetFlag()):
		return exit.Usagef("%w", moved(c, "--"+missing.GetFlag().Name, missing.GetFlag().Name))
	case errors.As(err, &value) && isAdvanced(value.GetFlag()):
		return exit.Usagef("%w", moved(c, "--"+value.GetFlag().Name, value.GetFlag().Name))
	case errors.As(err, &value):
		err = fmt.Errorf("--%s: %w", value.GetFlag().Name, badValue(value))
	}
	return exit.Usagef("%w; see `%s --help`", err, c.CommandPath())
}

// moved returns the error for an advanced setting of c that is written where a flag or its key
// belongs. Early versions had a flag for each setting.
func moved(c *cobra.Command, written, name string) error {
	return fmt.Errorf("%s: is now the key %s%s of the configuration file; see %s(8)", written, advancedPrefix, name,
		pageName(c))
}

// unknownFlag returns an error with the flags that the user may have meant.
func unknownFlag(c *cobra.Command, err *pflag.NotExistError) error {
	name, written := err.GetSpecifiedName(), "--"+err.GetSpecifiedName()
	if short := err.GetSpecifiedShortnames(); short != "" {
		name, written = short, "-"+short // short may be a long name with one dash
	}
	names := synonyms(c, name)
	if len(names) == 0 {
		names = similarFlags(c, name, false)
	}
	if others := withFlag(c.Root(), name); len(names) == 0 && len(others) > 0 {
		return fmt.Errorf("unknown flag: %s (a flag of %s)", written, strings.Join(others, " and "))
	}
	for i := range names {
		names[i] = "--" + names[i]
	}
	return fmt.Errorf("unknown flag: %s%s", written, didYouMean(names))
}

// similarFlags returns the names of the flags of c that are similar to a word, or those of its
// advanced settings.
func similarFlags(c *cobra.Command, word string, advanced bool) []string {
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if isAdvanced(f) == advanced && f.Hidden == advanced {
			names = append(names, f.Name)
		}
	})
	return similarWords(word, names)
}

// similarWords returns the names that are similar to a word, or else those that have it between
// hyphens, such as max-mtu for mtu, or that it has.
func similarWords(word string, names []string) (found []string) {
	var whole, parts cobra.Command // subcommands for the names, as similar expects
	run := func(*cobra.Command, []string) {}
	for _, name := range names {
		whole.AddCommand(&cobra.Command{Use: name, Run: run})
		also := strings.Split(name, "-")
		if slices.Contains(strings.Split(word, "-"), name) {
			also = append(also, word)
		}
		parts.AddCommand(&cobra.Command{Use: name, Run: run, SuggestFor: also})
	}
	if found = similar(&whole, word); len(found) == 0 {
		found = similar(&parts, word)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// badValue returns an error that says what the flag with an invalid value accepts.
func badValue(err *pflag.InvalidValueError) error {
	text, kind := err.GetValue(), err.GetFlag().Value.Type()
	var quoting *csv.ParseError
	switch {
	case kind == "duration":
		return badDuration(text)
	case errors.As(err, &quoting):
		return fmt.Errorf("%q must be words with commas between them and without quotation marks", text)
	}
	accepted, ok := numbers[kind]
	_, rangeErr := strconv.ParseInt(text, 0, strconv.IntSize)
	switch def := err.GetFlag().DefValue; {
	case !ok:
		return errors.Unwrap(err) // from a type of this program
	case kind == "int" && errors.Is(rangeErr, strconv.ErrRange):
		return fmt.Errorf("%q is out of range", text)
	case kind == "int" && def != "" && def != "0":
		accepted = "a whole number, such as " + def
	}
	return fmt.Errorf("%q must be %s", text, accepted)
}

// numbers has the types of flags that are numbers, and what these accept.
var numbers = map[string]string{
	"int":      "a whole number, such as 4",
	"intSlice": "whole numbers with commas between them, such as 64,1500",
	"uint8":    "a whole number from 0 to 255, such as 7 or 0x68",
	"uint64":   "a whole number, such as 1000",
}

func badDuration(text string) error {
	example := "5s"
	if _, err := time.ParseDuration(text + "s"); err == nil { // the unit is missing
		example = text + "s"
	}
	return fmt.Errorf("%q must be a time with its unit, such as %s or 200ms", text, example)
}
