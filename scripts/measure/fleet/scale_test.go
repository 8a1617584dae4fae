package fleet

import (
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"text/tabwriter"
	"time"
)

// session is the longest time of an I/O unit with two processors for a session: 512 hosts were
// connected within 1.4 s, when both endpoints together had two processors.
const session = 1400 * time.Millisecond / 512

// standard is the fleet of docs/scale.md.
var standard = Model{
	Units: 200, Hosts: 10_000, Listed: 3, MaxHosts: 1000, Session: session, Detect: time.Second, Seed: 1,
}

// cases returns the rows of the table in docs/scale.md. The numbers of lost I/O units are those of
// a fleet of 200, and are scaled to this fleet.
func cases(fleet Model) (list []row) {
	add := func(what string, gone int, back time.Duration, change func(*Model)) {
		m := fleet
		change(&m)
		list = append(list, row{what, m, max(gone*fleet.Units/200, 1), back})
	}
	add("a machine, lists at random", 1, 0, func(*Model) {})
	add("a machine, neighbours", 1, 0, func(m *Model) { m.Neighbours = true })
	add("a machine, neighbours, at most 64 hosts", 1, 0, func(m *Model) { m.Neighbours, m.MaxHosts = true, 64 })
	add("a machine, lists at random, at most 64 hosts", 1, 0, func(m *Model) { m.MaxHosts = 64 })
	add("20 machines, lists at random", 20, 0, func(*Model) {})
	add("20 machines, neighbours", 20, 0, func(m *Model) { m.Neighbours = true })
	add("100 machines, lists at random", 100, 0, func(*Model) {})
	add("all processes for 2 s", 200, 2*time.Second, func(m *Model) { m.Gone, m.Detect = ProcessGone, 0 })
	add("all processes for 60 s", 200, time.Minute, func(m *Model) { m.Gone, m.Detect = ProcessGone, 0 })
	add("all machines for 60 s", 200, time.Minute, func(*Model) {})
	return list
}

type row struct {
	what string
	Model
	gone int
	back time.Duration
}

var table = flag.Bool("table", false, "simulate the fleet of docs/scale.md, and show the table")

// TestScale simulates the cases of docs/scale.md for ten minutes each, in a small fleet without -table.
// In none of them more hosts find an I/O unit than have lost one, or more than there is room for.
func TestScale(t *testing.T) {
	fleet := standard
	out := io.Writer(os.Stdout)
	if !*table {
		fleet.Units, fleet.Hosts = 10, 100
		out = io.Discard
	}
	tw := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tw, "| lost\t| hosts affected\t| found another\t| half of them after\t| all after\t| dials\t| refused\t"+
		"| most hosts of one I/O unit\t| most time of one I/O unit |")
	fmt.Fprintln(tw, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|--- |")
	seconds := func(d time.Duration) string {
		if d == 0 {
			return "-" // it did not happen
		}
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	for _, c := range cases(fleet) {
		r := c.Lose(c.gone, c.back, 10*time.Minute)
		if r.Lost == 0 || r.In > r.Lost || r.Most > c.MaxHosts || r.Half > r.All {
			t.Errorf("%s: %+v", c.what, r)
		}
		fmt.Fprintf(tw, "| %s\t| %d\t| %d\t| %s\t| %s\t| %d\t| %d\t| %d\t| %s |\n", c.what, r.Lost, r.In,
			seconds(r.Half), seconds(r.All), r.Dials, r.Refused, r.Most, seconds(r.MostWork))
	}
	if err := tw.Flush(); err != nil {
		t.Error(err)
	}
}
