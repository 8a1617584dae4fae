package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/counter"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// exitStatuses has the meaning of each exit status.
var exitStatuses = []string{
	"Ended by SIGTERM or SIGINT with everything released, or done.",
	"Another failure.",
	"A mistake in flags, arguments or a configuration file, also one that splitnic check has found.",
	"An RDMA device, kernel module, network card, file or process is missing, or the netdevice was deleted.",
	"A capability or a limit is missing.",
	"There is no key, or one that the other side does not trust.",
	"The address, card or name is in use.",
	"The two sides speak different versions of the protocol.",
	"What wait or iounit drain --wait waited for has not come about in time.",
}

// installedFiles has the files of the packages, with what they are for.
var installedFiles = [][2]string{
	{"/etc/splitnic/key.pem", "the private key of the machine, made by splitnic-keygen(8)"},
	{"/etc/splitnic/iounit.yaml", "the configuration of splitnic-iounit.service"},
	{"/etc/splitnic/NAME.yaml", "the configuration of splitnic-host@NAME.service, which makes the netdevice NAME"},
	{"/etc/splitnic/agent.yaml", "the configuration of splitnic-agent.service"},
	{"/etc/splitnic/hosts, /etc/splitnic/iounits", "the hosts, and I/O units, that are trusted: splitnic-trust(5)"},
	{"/etc/splitnic/policy.yaml", "what each host may do, if the I/O unit's configuration names it: splitnic-policy(5)"},
	{"/run/splitnic", "sockets of running processes, and locks of network cards"},
	{"/var/lib/splitnic", "the cards of an agent, and the last answers of DNS"},
	{"/usr/share/doc/splitnic/examples", "configurations with every key, a policy, and a pod"},
	{"/usr/share/splitnic", "alerts for Prometheus, and a dashboard for Grafana"},
}

// rootPage returns the sections that the page of the program has, and those of commands do not.
func rootPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# COMMANDS\n")
	var list func(c *cobra.Command)
	list = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "\n**%s**\n: %s\n", sub.CommandPath(), sub.Short)
				list(sub)
			}
		}
	}
	list(root)
	b.WriteString("# EXIT STATUS\n")
	for status, meaning := range exitStatuses {
		fmt.Fprintf(&b, "\n**%d**\n: %s\n", status, meaning)
	}
	b.WriteString("# FILES\n")
	for _, f := range installedFiles {
		fmt.Fprintf(&b, "\n_%s_\n: %s\n", f[0], f[1])
	}
	return b.String()
}

// alsoSee has the pages at the end of that of a document, by its name.
var alsoSee = map[string]string{
	"cni":    "**splitnic-agent**(8), **splitnic-card**(8)",
	"policy": "**splitnic-iounit**(8), **splitnic-check-iounit**(8), **splitnic-reload**(8), **splitnic-trust**(5)",
	"trust":  "**splitnic-keygen**(8), **splitnic-host**(8), **splitnic-iounit**(8), **splitnic-policy**(5)",
}

// writeDocument writes the manual page of a document. The page of docs/NAME.md is splitnic-NAME. It
// is in section 8 if it is about a program, and in section 5 if it is about a file.
func writeDocument(file, dir string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("man: %w", err)
	}
	name := strings.TrimSuffix(filepath.Base(file), ".md")
	section := "5"
	if name == "cni" {
		section = "8"
	}
	page := documentPage("splitnic-"+name, section, alsoSee[name], string(text))
	return os.WriteFile(filepath.Join(dir, "splitnic-"+name+"."+section+".md"), []byte(page), 0o644)
}

var (
	image = regexp.MustCompile(`!\[[^][]*\]\([^()\s]+\)\n\n`)
	link  = regexp.MustCompile(`\[([^][]+)\]\([^()\s]+\)`)
	head  = regexp.MustCompile(`(?m)^#(#+ .*)$`)
	rows  = regexp.MustCompile(`(?m)(?:^\|.*\n)+`)
)

// documentPage returns the manual page of a document. The title becomes the name. Pictures are left
// out. Links are replaced by their text, because their targets are not beside manual pages. Rows of
// tables, which would be too wide, become paragraphs.
func documentPage(name, section, also, text string) string {
	title, body, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	if _, after, found := strings.Cut(title, ": "); found {
		title = after
	}
	body = image.ReplaceAllString(body, "")
	body = head.ReplaceAllStringFunc(link.ReplaceAllString(body, "$1"), func(line string) string {
		if line = line[1:]; strings.HasPrefix(line, "# ") {
			line = strings.ToUpper(line)
		}
		return line
	})
	return fmt.Sprintf("%% %q %q \"\" \"splitnic\" \"splitnic\"\n# NAME\n%s - %s\n# DESCRIPTION\n%s\n"+
		"# SEE ALSO\n%s\n", strings.ToUpper(name), section, name, title, rows.ReplaceAllStringFunc(body, paragraphs), also)
}

// paragraphs returns the rows of a table as a list: the first cell is the term, and of the others
// those behind the second one have the heading of their column.
func paragraphs(table string) string {
	var b strings.Builder
	var headings []string
	for line := range strings.Lines(table) {
		line = strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), "|"), `\|`, "\x00")
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
		}
		if headings == nil || strings.Trim(line, "-:| ") == "" {
			if headings == nil {
				headings = cells
			}
			continue
		}
		fmt.Fprintf(&b, "\n**%s**\n: %s", strings.ReplaceAll(cells[0], "`", ""), cells[1])
		for i, cell := range cells[2:] {
			if cell != "" {
				fmt.Fprintf(&b, " (%s: %s)", headings[i+2], cell)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// metricOf returns the metric of a counter, and which part of the metric the counter is.
func metricOf(c counter.Counter) string {
	family, part := daemon.FamilyOf(c)
	if part == "" {
		return "`" + daemon.MetricName(family) + "`"
	}
	return fmt.Sprintf("`%s`, `%s`", daemon.MetricName(family), part)
}

// countersPage returns the sections about counters in the manual page of `splitnic status`.
func countersPage() string {
	var b strings.Builder
	for _, table := range []struct {
		of       string
		counters []counter.Counter
	}{{"data channel", messaging.Counters()}, {"host of an I/O unit", iounit.HostCounters()},
		{"direct connection at an I/O unit", iounit.DirectCounts()}} {
		fmt.Fprintf(&b, "# COUNTERS OF A %s\nIn **--json** and in the metrics:\n", strings.ToUpper(table.of))
		for _, c := range table.counters {
			fmt.Fprintf(&b, "\n**%s** (%s)\n: %s\n", c.Name, metricOf(c), c.Help)
		}
	}
	return b.String()
}
