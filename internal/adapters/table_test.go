package adapters

import (
	"fmt"
	"strings"
)

// evidence is how each row is known. A row that somebody has run on hardware gets another one.
const evidence = "read in the driver, simulated"

// table returns the table of docs/adapters.md: a row for each family, in Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| adapter | sessions | inline data | memory windows | events for solicited completions only | " +
		"state of queue pairs | mode `send-uc` | evidence |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range All() {
		if !f.Suitable() {
			fmt.Fprintf(&b, "| `%s` | no: %s | – | – | – | – | – | %s |\n", f.Name, f.unsuitable(), evidence)
			continue
		}
		fmt.Fprintf(&b, "| `%s` | yes | %s | %s | %s | %s | %s | %s |\n", f.Name, f.inline(), f.windows(),
			f.mark("arm-solicited", yes(f.ArmSolicited.OK() && !f.ArmsAny)), f.mark("query-qp", yes(f.QueryQP.OK())),
			f.mark("uc", yes(f.UC.OK())), evidence)
	}
	return b.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// notRead is the source of a fact that was not found in a driver, maybe with an explanation.
const notRead = "not read"

// isRead reports whether a fact was read in a driver.
func (f *Family) isRead(fact string) bool { return !strings.HasPrefix(f.Sources[fact], notRead) }

// mark adds a question mark to the text about a fact that was not read.
func (f *Family) mark(fact, text string) string {
	if f.isRead(fact) {
		return text
	}
	return text + "?"
}

func (f *Family) unsuitable() string {
	if !f.RC.OK() {
		return "no reliable connections"
	}
	return "no writes with immediate data, and connections by `rdma_cm`"
}

func (f *Family) inline() string {
	if f.LateInline {
		return f.mark("inline-data", "read late: not used")
	}
	return f.mark("inline-max", fmt.Sprintf("up to %d", f.InlineMax))
}

func (f *Family) windows() string {
	switch {
	case f.Windows == "none":
		return f.mark("windows", "no")
	case !f.AllocMW.OK():
		return f.mark("alloc-mw", "announced, but no")
	default:
		return f.mark("windows", "yes")
	}
}
