package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"path/filepath"
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

// instead has what does the work of commands that other programs have.
var instead = map[string]string{
	"up":        "`splitnic host` makes a netdevice, as the service splitnic-host@NAME does",
	"start":     "`splitnic host`, iounit or agent starts one, as the services splitnic-… do: systemctl start",
	"run":       "`splitnic host`, iounit or agent starts one, as the services splitnic-… do: systemctl start",
	"down":      "the netdevice goes with its process: systemctl stop splitnic-host@NAME",
	"stop":      "systemctl stop splitnic-host@NAME, splitnic-iounit or splitnic-agent; or SIGTERM",
	"restart":   "systemctl restart splitnic-host@NAME, splitnic-iounit or splitnic-agent",
	"logs":      "journalctl -u 'splitnic-*' shows the log",
	"log":       "journalctl -u 'splitnic-*' shows the log",
	"bugreport": "`splitnic doctor --report FILE` writes one",
	"genkey":    "`splitnic keygen` makes a key, and prints its fingerprint for the other side",
	"pubkey":    "`splitnic keygen` prints the fingerprint of a key, which the other side has to trust",
	"policy":    "`splitnic check iounit FILE` checks the policy that FILE names",
	"dump":      "`splitnic capture` captures frames",
	"tcpdump":   "`splitnic capture` captures frames",
	"link":      "`splitnic status` shows the cards, `ip link` their netdevices",
	"addr":      "`ip addr` is for netdevices of splitnic, too",
	"get":       "`splitnic status` shows the cards",
	"describe":  "`splitnic status NAME` shows a card",
	"inspect":   "`splitnic status NAME` shows a card",
	"set":       "settings are flags and files: `splitnic check` finds mistakes, `splitnic reload` reads keys, trust and policy",
	"cordon":    "`splitnic iounit drain` accepts no more hosts",
	"uncordon":  "`splitnic iounit undrain` accepts hosts again",
	"ping":      "`splitnic doctor --peer ADDRESS` tries the path to the other machine",
	"test":      "`splitnic doctor --self-test` tries an adapter",
}

// argument has the flags whose value a newcomer writes without the flag, by command.
var argument = map[string]string{
	"splitnic host": "iounit", "splitnic agent": "iounit", "splitnic iounit": "lan", "splitnic keygen": "out",
}

// endpointRoles are the values of --role of the doctor, and the commands of the endpoints.
var endpointRoles = []string{"host", "agent", "iounit"}

// asFlags returns an argument in the form of the flags of c that probably have just this value.
func asFlags(c *cobra.Command, word string) (written []string) {
	flags := c.Flags()
	switch ext := filepath.Ext(word); {
	case flags.Lookup("config") != nil && (ext == ".yaml" || ext == ".yml"):
		return []string{"--config " + word}
	case flags.Lookup("role") != nil && slices.Contains(endpointRoles, word):
		return []string{"--role " + word}
	}
	if _, err := settings.Bool(word); err != nil {
		return nil
	}
	flags.Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" { // --persist yes
			written = append(written, fmt.Sprintf("--%s=%s", f.Name, word))
		}
	})
	return written
}

// otherNames has the flags that do what flags of other programs do. Only some of them are flags of
// the same command.
var otherNames = map[string][]string{
	"peer": {"iounit"}, "endpoint": {"iounit"}, "server": {"iounit"}, "gateway": {"iounit"}, "remote": {"iounit"},
	"interface": {"lan", "name", "netdev"}, "iface": {"lan", "name", "netdev"}, "nic": {"lan", "name", "netdev"},
	"ifname": {"lan", "name", "netdev"}, "bridge": {"lan"}, "uplink": {"lan"},
	"listen-port": {"listen"}, "bind": {"listen"}, "address": {"listen"}, "namespace": {"netns"},
	"private-key": {"key"}, "public-key": {"trust"}, "allowed": {"trust"}, "authorized": {"trust-file"},
	"output": {"json"}, "format": {"json"}, "o": {"json"}, "follow": {"watch"}, "f": {"watch", "config"},
	"d": {"interval"}, "n": {"interval"}, "delay": {"interval"}, "for": {"connected", "carrier"},
	"verbose": {"log-level"}, "debug": {"log-level"}, "v": {"log-level"},
}

// synonyms returns the flags of c that do what a flag of another program does.
func synonyms(c *cobra.Command, name string) (found []string) {
	for _, other := range otherNames[name] {
		if f := c.Flags().Lookup(other); f != nil && !f.Hidden {
			found = append(found, other)
		}
	}
	return found
}

// withFlag returns the paths of the endpoints' commands that have a flag, in quotation marks.
func withFlag(root *cobra.Command, name string) (paths []string) {
	for _, c := range root.Commands() {
		if f := c.Flags().Lookup(name); f != nil && !f.Hidden && slices.Contains(endpointRoles, c.Name()) {
			paths = append(paths, "`"+c.CommandPath()+"`")
		}
	}
	return paths
}
