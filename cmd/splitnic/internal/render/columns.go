package render

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/splitnic/splitnic/internal/printable"
)

// Width is the maximum number of columns of a table's line.
const Width = 100

// columns is a table with lines of at most Width columns. Its first row is the heading.
type columns struct {
	indent string
	rows   [][]string
}

// shortest is the length down to which the cells of a column in cuttable are cut to make the lines
// fit.
const shortest = 8

var cuttable = map[string]bool{
	hostHeading: true, unitHeading: true, addressHeading: true, noteHeading: true, netnsHeading: true, ownerHeading: true,
}

// Headings of columns whose texts have no maximum length. The name of a card is never cut, because
// it is an argument of commands, and the names of containers' cards have the same beginning.
const (
	hostHeading    = "HOST"
	unitHeading    = "I/O UNIT"
	addressHeading = "ADDRESS"
	noteHeading    = "NOTE"
	cardHeading    = "CARD"
	netnsHeading   = "NETNS"
	ownerHeading   = "OWNER"
)

// none is the text of an empty cell.
const none = "-"

func (t *columns) add(cells ...string) {
	for i, c := range cells {
		cells[i] = printable.Text(strings.Join(strings.Fields(c), " ")) // an error may have several lines
		if cells[i] == "" {
			cells[i] = none
		}
	}
	t.rows = append(t.rows, cells)
}

// dropEmpty removes the columns whose cells are all none.
func (t *columns) dropEmpty() {
	for i := len(t.rows[0]) - 1; i >= 0; i-- {
		if slices.ContainsFunc(t.rows[1:], func(r []string) bool { return r[i] != none }) {
			continue
		}
		for n, r := range t.rows {
			t.rows[n] = slices.Delete(r, i, i+1)
		}
	}
}

// widths returns the widths of the columns. A column is as wide as its widest cell. If the line is
// too long, the widest cuttable column is cut until the line fits.
func (t *columns) widths() []int {
	widths := make([]int, len(t.rows[0]))
	line := len(t.indent) - len(gap)
	for i := range widths {
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i]))
		}
		line += widths[i] + len(gap)
	}
	for ; line > Width; line-- {
		widest := -1
		for i, w := range widths {
			if cuttable[t.rows[0][i]] && w > shortest && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

const gap = "  "

func (t *columns) print(w io.Writer) error {
	widths := t.widths()
	for _, r := range t.rows {
		line := t.indent
		for i, c := range r {
			if i > 0 {
				line += gap
			}
			shorten := Cut
			if t.rows[0][i] == hostHeading {
				shorten = cutMiddle
			}
			line += fmt.Sprintf("%-*s", widths[i], shorten(c, widths[i]))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// Cut shortens text to n characters, and makes it printable.
func Cut(text string, n int) string {
	text = printable.Text(text)
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

// cutMiddle shortens a name to n characters by omitting its middle. The names of containers' cards
// have the same beginning, and end in a hash.
func cutMiddle(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	end := n / 2
	return string(runes[:n-1-end]) + "…" + string(runes[len(runes)-end:])
}

// ago returns the time since t. It is not negative, even if the clock was set back.
func ago(t time.Time) time.Duration { return max(time.Since(t), 0).Round(time.Second) }

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// duration formats d as kubectl does, in the two largest units. d may be negative if the clock was
// set back.
func duration(d time.Duration) string {
	d = max(d, 0)
	const day = 24 * time.Hour
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return inUnits(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return inUnits(d, time.Hour, "h", time.Minute, "m")
	}
	return inUnits(d, day, "d", time.Hour, "h")
}

// inUnits formats d in two units, or only in the larger one if the rest is 0.
func inUnits(d, large time.Duration, l string, small time.Duration, s string) string {
	text := fmt.Sprintf("%d%s", d/large, l)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, s)
	}
	return text
}

func rates(bits, packets int64) string {
	if packets == 0 {
		return rate(bits)
	}
	return rate(bits) + " and " + Counted(packets, "packet") + "/s"
}

// rate formats a rate limit in bits per second. Limits of a policy are at least 100,000.
func rate(bits int64) string {
	n, unit := float64(bits)/1e3, "kbit"
	switch {
	case bits == 0:
		return "unlimited"
	case bits >= 1e9:
		n, unit = float64(bits)/1e9, "Gbit"
	case bits >= 1e6:
		n, unit = float64(bits)/1e6, "Mbit"
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + unit
}

// Counted returns n and the noun, in the plural unless n is 1.
func Counted[N ~int | ~int64 | ~uint64](n N, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "ch"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
