package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/settings"
)

func checkCommand() *cobra.Command {
	c := group(&cobra.Command{
		Use:        "check",
		SuggestFor: []string{"config", "validate"},
		Short:      "Check a configuration file without a device",
		Long: `Check a configuration file and the files that it names, such as a policy, in the same way as
the start of a host, agent or I/O unit. It needs no device and changes nothing.`,
	}, checkOf("host", func() (func(*pflag.FlagSet), func() (daemon.Sources, error)) {
		var f hostFlags
		return f.add, func() (daemon.Sources, error) {
			h, err := f.config()
			return daemon.Sources{Keys: h.Keys, MetricsConfig: h.MetricsConfig}, err
		}
	}), checkOf("agent", func() (func(*pflag.FlagSet), func() (daemon.Sources, error)) {
		var f agentFlags
		return f.add, func() (daemon.Sources, error) {
			a, err := f.config()
			return daemon.Sources{Keys: a.Keys, MetricsConfig: a.MetricsConfig}, err
		}
	}), checkOf("iounit", func() (func(*pflag.FlagSet), func() (daemon.Sources, error)) {
		var f iounitFlags
		return f.add, func() (daemon.Sources, error) {
			u, err := f.config()
			return daemon.Sources{IOUnit: true, Keys: u.Keys, Policy: u.Policy, MetricsConfig: u.MetricsConfig}, err
		}
	}))
	unknown := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && strings.ContainsAny(args[0], "./") {
			return exit.Usagef("whose configuration is %s? use `%s host`, agent or iounit", args[0], c.CommandPath())
		}
		return unknown(c, args)
	}
	return c
}

// roleFlags returns two functions for a role. add adds its flags. config makes its configuration
// from the flags, and returns the files of the configuration, which are still to be read.
type roleFlags func() (add func(*pflag.FlagSet), config func() (daemon.Sources, error))

// checkOf returns the command for one role.
func checkOf(role string, flags roleFlags) *cobra.Command {
	noKeys, asJSON := false, false
	c := &cobra.Command{
		Use:   role + " FILE",
		Short: "Check the configuration file of `splitnic " + role + " --config FILE`",
		Long: "Check the configuration file of `splitnic " + role + " --config FILE`" + `, with the files that it names:
keys, trust and policy. It prints FILE: ok, or a line for each mistake with its file and line,
and then ends with status 2. A certificate is a mistake if it has expired, is not valid yet, is for
the other role, or if certificates of intermediate authorities are missing. If FILE cannot be
read, the status is that of the start. A warning before FILE: ok is about a valid setting that is
probably a mistake: a policy entry for a host without a trusted key. It does not check any device.`,
		Example: "  splitnic check " + role + " /etc/splitnic/" + role + ".yaml\n" +
			"  splitnic check " + role + " --no-keys " + role + ".yaml    # on a machine without the key",
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("the file is missing; see `%s --help`", cmd.CommandPath())
			}
			add, config := flags()
			c := &cobra.Command{Use: role}
			cmd.Root().AddCommand(c) // for the names of the commands in errors
			add(c.Flags())
			o, err := readConfig(c, args[0])
			var unreadable *fs.PathError
			if errors.As(err, &unreadable) && exit.Status(err) != exit.Usage {
				return fmt.Errorf("check: %w", unreadable)
			}
			var sources daemon.Sources
			if err == nil || o.values != nil { // otherwise nothing of the file was read
				var configErr error
				sources, configErr = config()
				err = errors.Join(err, configErr, sources.Check(!noKeys))
			}
			return checkResult{args[0], o.locate(err), sources.Warnings()}.print(cmd.OutOrStdout(), asJSON)
		},
	}
	boolVar(c.Flags(), &asJSON, "json", false, "print JSON")
	boolVar(c.Flags(), &noKeys, "no-keys", false, "do not check the private key and the certificate, on a machine without them")
	return c
}

// checkResult is what `splitnic check` prints: a line for each mistake, with its file and line.
type checkResult struct {
	File     string   `json:"file"`
	Mistakes []string `json:"mistakes"`
	Warnings []string `json:"warnings"`
}

// print prints the mistakes, or the warnings if there are none. It returns an error if there are
// mistakes.
func (c checkResult) print(w io.Writer, asJSON bool) error {
	lines, err := append(c.Warnings, c.File+": ok"), error(nil)
	if len(c.Mistakes) > 0 {
		lines, err = c.Mistakes, exit.Usagef("check: %s has mistakes", c.File)
	}
	if asJSON {
		c.Mistakes, c.Warnings = append([]string{}, c.Mistakes...), append([]string{}, c.Warnings...) // not null
		return errors.Join(err, printJSON(w, c))
	}
	_, printErr := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return errors.Join(err, printErr)
}

// located matches a mistake with a file and line at the beginning, possibly after the flag of
// that file.
var located = regexp.MustCompile(`^(?:--(?:config|policy):? )?([^\s-][^:]*:\d+: .*)$`)

// flagName matches the name of a flag or an advanced setting in a mistake.
var flagName = regexp.MustCompile(`(?:--|\badvanced\.)([a-z-]+)`)

// locate returns a line for each of the joined errors, with its file and line. A flag with an
// invalid value in the file counts as missing. Errors that follow from that are omitted.
func (o *origin) locate(err error) (lines []string) {
	reported := map[string]bool{} // lines of the file
	add := func(line string) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, err := range flat(err) {
		text := strings.ReplaceAll(explain(err), "\n", "; ")
		if m := located.FindStringSubmatch(text); m != nil {
			reported[m[1][:strings.Index(m[1], ": ")]] = true
			add(m[1])
			continue
		}
		at := o.path
		if s := o.meant(text); s != nil {
			at = fmt.Sprintf("%s:%d", o.path, settings.Line(s.at))
		}
		if !reported[at] {
			add(at + ": " + text)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(o.number(a), o.number(b)) })
	return lines
}

// number returns the number of the line that has a mistake. It returns 0 if the mistake has none,
// and math.MaxInt if the mistake is not in this file.
func (o *origin) number(mistake string) (n int) {
	if !strings.HasPrefix(mistake, o.path+":") {
		return math.MaxInt
	}
	_, _ = fmt.Sscanf(mistake[len(o.path):], ":%d:", &n) // 0 if there is no number
	return n
}

// meant returns the entry of the configuration file that an error is about, or nil. If the error
// begins with a flag, it is the entry of the first flag in it that the file sets. Otherwise it is the
// entry with a file name that the error contains: the longest one, because a name may have another
// one between spaces.
func (o *origin) meant(text string) (file *setting) {
	if at := flagName.FindStringIndex(text); at != nil && at[0] == 0 {
		for _, flag := range flagName.FindAllStringSubmatch(text, -1) {
			if s := settingOf(o.values, flag[1]); s != nil {
				return s
			}
		}
		return nil
	}
	for i := range o.values {
		s := &o.values[i]
		switch s.key {
		case "key", "cert", "ca", "trust-file", "revoked":
			if len(s.words) == 1 && hasFile(text, s.words[0]) && (file == nil || len(s.words[0]) > len(file.words[0])) {
				file = s
			}
		}
	}
	return file
}

// hasFile reports whether a text has the name of a file as a whole, and not as a part of another one.
func hasFile(text, name string) bool {
	whole, err := regexp.MatchString(`(?:^|[\s"'(=])`+regexp.QuoteMeta(name)+`(?:$|[\s"':;,)])`, text)
	return err == nil && whole
}

// flat returns the errors that were joined to err.
func flat(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		// Joined errors may have a common status, which is left out. With other text around
		// them, they are one error.
		var with exit.Error
		if errors.As(err, &with) && with.Error() == err.Error() {
			return flat(with.Err)
		}
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, flat(err)...)
	}
	return all
}
