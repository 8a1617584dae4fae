package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
)

const settingsPage = "../../docs/settings.md"

const settingsIntro = `# Settings

All settings of ` + "`splitnic host`, `splitnic iounit` and `splitnic agent`" + `, and those of the agent's
cards. This page is made from the program:
` + "`go test ./cmd/splitnic -run TestSettingsPage -update`" + `.

A flag ` + "`--queues 4`" + ` is the line ` + "`queues: 4`" + ` of the YAML file
of ` + "`--config`" + `. A flag that may be repeated, or has a list, has a YAML list there. The command line
takes precedence. The [advanced settings](#advanced-settings) are in that file alone, below the key
` + "`advanced`" + `:

    iounit: [10.0.0.1]
    queues: 4
    advanced:
      spin: 20us
      qp-timeout: 18

[deploy.md](deploy.md#what-to-tune) says when they help. ` + "`splitnic check host FILE`, `check iounit`" + `
and ` + "`check agent`" + ` check a file. ` + "`splitnic reload`" + ` reads those settings again that have "yes" in the
column "reload", with the files that they name. Others need a restart; the reload names those that
have changed. The files of ` + "`--metrics-config`" + ` are read for each connection.
`

// settingRow is a setting of some of the commands.
type settingRow struct {
	name, of, value, def, reload, usage string
}

// sameBut reports whether two rows differ in their commands only.
func (r settingRow) sameBut(other settingRow) bool {
	r.of = other.of
	return r == other
}

// saidDefault matches the default in the usage of a flag.
var saidDefault = regexp.MustCompile(` ?\(default:? ([^()]*)\)`)

// newRow returns the row of a setting of a command.
func newRow(of string, f *pflag.Flag, reloaded bool) settingRow {
	value, usage := pflag.UnquoteUsage(f)
	r := settingRow{name: f.Name, of: of, value: value, usage: usage}
	switch f.DefValue {
	case "", "0", "0s", "[]":
	case "false":
		r.def = "no"
	case "true":
		r.def = "yes"
	default:
		r.def = "`" + strings.Trim(f.DefValue, "[]") + "`"
	}
	if m := saidDefault.FindStringSubmatch(usage); m != nil {
		r.def, r.usage = m[1], strings.Replace(usage, m[0], "", 1)
	}
	if value == "" {
		r.value = "yes or no"
	}
	if reloaded {
		r.reload = "yes"
	}
	return r
}

// reloadable returns the names of the settings that a command reads again on a reload.
func reloadable(command string) map[string]bool {
	flags := pflag.NewFlagSet(command, pflag.ContinueOnError)
	if command == "iounit" {
		addUnitSources(flags, new(daemon.Sources))
	} else {
		addHostSources(flags, new(daemon.Sources))
	}
	names := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
	return names
}

// writeSettings writes a table for each group of the settings of commands that belong.
func writeSettings(b *strings.Builder, commands []*cobra.Command, belong func(*pflag.Flag) bool) {
	for _, group := range flagGroups {
		var rows []settingRow
		for _, c := range commands {
			again := reloadable(c.Name())
			for _, s := range sectionsOf(c, belong) {
				if s.title != group && (s.title != "Flags" || group != "") {
					continue
				}
				s.flags.VisitAll(func(f *pflag.Flag) {
					if f.Name != "help" {
						rows = addRow(rows, newRow(c.Name(), f, again[f.Name]))
					}
				})
			}
		}
		if len(rows) == 0 {
			continue
		}
		if group != "" {
			fmt.Fprintf(b, "\n### %s\n", group)
		}
		fmt.Fprint(b, "\n| setting | of | value | default | reload | meaning |\n|---|---|---|---|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |\n", r.name, r.of, r.value, r.def, r.reload,
				strings.ReplaceAll(r.usage, "|", `\|`))
		}
	}
}

// addRow adds a row, or its command to the row of other commands with the same setting.
func addRow(rows []settingRow, r settingRow) []settingRow {
	if i := slices.IndexFunc(rows, r.sameBut); i >= 0 {
		rows[i].of += ", " + r.of
		return rows
	}
	last := -1
	for i := range rows {
		if rows[i].name == r.name {
			last = i
		}
	}
	if last >= 0 {
		return slices.Insert(rows, last+1, r)
	}
	return append(rows, r)
}

// TestSettingsPage expects docs/settings.md to have all settings as they are in the program.
func TestSettingsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(settingsIntro)
	b.WriteString("\n## Flags\n")
	writeSettings(&b, roles(), func(f *pflag.Flag) bool { return !f.Hidden })
	b.WriteString("\n## Advanced settings\n\nKeys below `advanced` in the configuration file. The defaults suit nearly " +
		"everybody; who\nchanges one has measured.\n")
	writeSettings(&b, roles(), isAdvanced)
	b.WriteString("\n## Cards of an agent\n\nFlags of `splitnic card add`; [agent.md](agent.md) has the fields of the " +
		"API. All other settings of\na card are those of the agent.\n")
	add, _, err := rootCommand().Find([]string{"card", "add"})
	if err != nil {
		t.Fatal(err)
	}
	var card strings.Builder
	writeSettings(&card, []*cobra.Command{add}, func(f *pflag.Flag) bool { return f.Annotations[groupKey] != nil })
	b.WriteString(strings.ReplaceAll(card.String(), "| add |", "| card |"))
	want := b.String()
	if *update {
		if err := os.WriteFile(settingsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not that of the program: go test ./cmd/splitnic -run TestSettingsPage -update, and look at the "+
			"difference", settingsPage)
	}
}
