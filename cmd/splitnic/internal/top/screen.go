package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/units"
)

// Control sequences of terminals (console_codes(4)).
const (
	enter     = "\x1b[?1049h\x1b[?25l" // the alternate screen, without a cursor
	leave     = "\x1b[?25h\x1b[?1049l"
	home      = "\x1b[H"
	clearLine = "\x1b[K" // to the end of the line
	below     = "\x1b[J" // to the end of the screen
)

// Collect returns a sample, and an error about the processes that could not be queried.
type Collect func(ctx context.Context) (Sample, error)

// Plain writes a table at the end of each interval, the first one after one interval. It writes
// count tables, or until ctx is done if count is 0. In JSON it writes one list of cards, and returns
// the error about processes that could not be queried.
func Plain(ctx context.Context, w io.Writer, collect Collect, v View, every time.Duration, count int) error {
	before, err := collect(ctx)
	if err != nil && len(before.cards) == 0 {
		return err
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; count == 0 || n < count; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := collect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if cards := now.Since(before); v.JSON {
			Sort(cards, v.Order)
			enc := json.NewEncoder(w)
			enc.SetIndent("", "  ")
			return errors.Join(err, enc.Encode(cards))
		}
		page := strings.Join(v.Lines(now.Since(before)), "\n") + "\n"
		if n > 0 {
			page = "\n" + page
		}
		if err != nil {
			page += err.Error() + "\n"
		}
		if _, err := io.WriteString(w, page); err != nil {
			return err
		}
		before = now
	}
	return nil
}

// Screen shows the table on a terminal until q is pressed, or ctx is done.
func Screen(ctx context.Context, in, out *os.File, collect Collect, v View, every time.Duration) error {
	before, err := collect(ctx)
	if err != nil && len(before.cards) == 0 {
		return err
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("top: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), state) }() // an error could not be shown
	if _, err := io.WriteString(out, enter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(out, leave) }()
	keys := make(chan byte)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go read(ctx, in, keys)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	s := screen{out: out, view: v, every: every}
	s.cards = before.Since(before)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.draw(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-resized:
		case key, more := <-keys:
			if !more || s.press(key) {
				return nil
			}
		case <-tick.C:
			now, err := collect(ctx)
			s.cards, s.complaint = now.Since(before), err
			before = now
		}
	}
}

// read sends what is typed to keys. It may end later than Screen, at the next key.
func read(ctx context.Context, in io.Reader, keys chan<- byte) {
	defer close(keys)
	var b [1]byte
	for {
		if _, err := in.Read(b[:]); err != nil {
			return
		}
		select {
		case keys <- b[0]:
		case <-ctx.Done():
			return
		}
	}
}

type screen struct {
	out       *os.File
	view      View
	every     time.Duration
	cards     []Card
	complaint error // about processes that could not be queried
}

const keysText = "q quit, sort by: n name, o out, i in, p packets, d drops; t totals"

// press handles a key, and reports whether it quits the screen.
func (s *screen) press(key byte) (quit bool) {
	const interrupt = 3 // in raw mode Ctrl-C is a key
	switch key {
	case 'q', 'Q', interrupt:
		return true
	case 't':
		s.view.Totals = !s.view.Totals
	}
	for _, o := range Orders() {
		if key == o[0] {
			s.view.Order = o
		}
	}
	return false
}

// draw writes the screen in one call, so that it does not flicker.
func (s *screen) draw() error {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	head := []string{
		fmt.Sprintf("splitnic top: %s, every %v, by %s", render.Counted(len(s.cards), "card"), s.every, s.view.Order),
		keysText,
	}
	var foot []string
	if s.complaint != nil {
		foot = strings.Split(s.complaint.Error(), "\n")
	}
	v := s.view
	v.Width, v.Height = width, max(height-len(head)-len(foot), 1)
	lines := append(append(head, v.Lines(s.cards)...), foot...)
	lines = lines[:min(len(lines), height)]
	var b strings.Builder
	b.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(render.Cut(l, width) + clearLine)
	}
	b.WriteString(below)
	_, err = io.WriteString(s.out, b.String())
	return err
}

// View has the settings for showing rates.
type View struct {
	Order  Order
	Totals bool // no line for each path
	JSON   bool // of all cards and paths
	// Width and Height are the size of the terminal in characters; 0: no limit.
	Width, Height int
}

const (
	nameWidth = 22
	pathWidth = 16
	rateWidth = 9
)

var headings = []string{"OUT bit/s", "OUT pkt/s", "IN bit/s", "IN pkt/s", "DROP/s", "WAIT/s"}

// Lines returns the lines of the table. If there are more than Height, it returns the first lines,
// and a line with the number of the others.
func (v *View) Lines(cards []Card) []string {
	Sort(cards, v.Order)
	lines := []string{line("CARD", "PATH", headings)}
	for i := range cards {
		c := &cards[i]
		lines = append(lines, line(c.Name, "all", texts(c.Rates, c.New)))
		if v.Totals {
			continue
		}
		for _, p := range c.Paths {
			lines = append(lines, line("", p.Name, texts(p.Rates, c.New)))
		}
	}
	if v.Height > 0 && len(lines) > v.Height {
		keep := max(v.Height-1, 0)
		lines = append(lines[:keep:keep], "… "+render.Counted(len(lines)-keep, "more line"))[:v.Height]
	}
	for i, l := range lines {
		if v.Width > 0 {
			lines[i] = render.Cut(l, v.Width)
		}
	}
	return lines
}

func line(name, path string, rates []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s  %-*s", nameWidth, render.Cut(name, nameWidth), pathWidth, render.Cut(path, pathWidth))
	for _, r := range rates {
		fmt.Fprintf(&b, " %*s", rateWidth, r)
	}
	return b.String()
}

func texts(r Rates, unknown bool) []string {
	var all []string
	for _, n := range []float64{r.OutBits, r.OutFrames, r.InBits, r.InFrames, r.Dropped, r.Waits} {
		text := units.Short(n)
		if unknown {
			text = "-"
		}
		all = append(all, text)
	}
	return all
}
