package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The groups of flags, in the order of help and manual pages. Flags without a group come first.
const (
	identityFlags      = "Identity"
	deviceFlags        = "Device and fabric"
	netdeviceFlags     = "Netdevice"
	performanceFlags   = "Performance"
	reliabilityFlags   = "Reliability"
	securityFlags      = "Security"
	observabilityFlags = "Observability"
)

var flagGroups = []string{
	"", identityFlags, deviceFlags, netdeviceFlags, performanceFlags, reliabilityFlags, securityFlags, observabilityFlags,
}

// groupKey is the annotation of a flag that names its group.
const groupKey = "splitnic-group"

// inGroup makes the flags that are in no group yet members of one.
func inGroup(flags *pflag.FlagSet, group string) {
	flags.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[groupKey] != nil {
			return
		}
		if f.Annotations == nil {
			f.Annotations = make(map[string][]string)
		}
		f.Annotations[groupKey] = []string{group}
		if f.DefValue == "-1" {
			f.DefValue = "0" // help omits a default of 0; the usage has the real one
		}
	})
}

// section is a group of a command's flags, or of its advanced settings.
type section struct {
	title string
	flags *pflag.FlagSet
}

// sections returns the groups of a command's flags, except for empty ones.
func sections(c *cobra.Command) []section {
	return sectionsOf(c, func(f *pflag.Flag) bool { return !f.Hidden })
}

// sectionsOf returns the groups of those flags of a command that belong, except for empty ones.
func sectionsOf(c *cobra.Command, belong func(*pflag.Flag) bool) []section {
	var all []section
	for _, group := range flagGroups {
		part := pflag.NewFlagSet(group, pflag.ContinueOnError)
		part.SortFlags = false
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if strings.Join(f.Annotations[groupKey], "") == group && belong(f) {
				part.AddFlag(f)
			}
		})
		if part.HasFlags() {
			all = append(all, section{cmp.Or(group, "Flags"), part})
		}
	}
	return all
}

// advancedKey is the annotation of a setting that is a key below advancedMap in the configuration
// file, and no flag of the command line. Its value is parsed like that of a flag.
const advancedKey = "splitnic-advanced"

// advancedMap is the key of the configuration file whose value has the advanced settings, and
// advancedPrefix what messages put before their names.
const (
	advancedMap    = "advanced"
	advancedPrefix = advancedMap + "."
)

// advanced makes the flags that are in no group yet advanced settings of one.
func advanced(flags *pflag.FlagSet, group string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[groupKey] == nil {
			f.Hidden = true // from help and completion
			f.Annotations = map[string][]string{advancedKey: {"yes"}}
		}
	})
	inGroup(flags, group)
}

// isAdvanced reports whether f is an advanced setting. f may be nil.
func isAdvanced(f *pflag.Flag) bool { return f != nil && f.Annotations[advancedKey] != nil }

// pageName returns the name of the manual page of a command.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }
