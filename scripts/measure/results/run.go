package results

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Run is a run of a suite.
type Run struct {
	Suite    *Suite
	Dir      string // directory for the results
	Rounds   int
	Markdown bool // show the tables in Markdown

	look time.Duration // for which other load of the machine is observed; 0: a second
}

// Measure makes the measurements of a suite.
type Measure interface {
	// Flags adds the flags that say what to measure.
	Flags(flags *flag.FlagSet)
	// Measure measures in this number of rounds. args are the arguments after the flags.
	Measure(ctx context.Context, rec *Recorder, rounds int, args []string) error
}

// Do calls m.Measure, and makes results from the figures that m, or a program that m starts,
// appends to samples.jsonl.
func (r *Run) Do(ctx context.Context, m Measure, args []string) (err error) {
	if err := r.clean(); err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(r.Dir, "samples.jsonl"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	begin := time.Now()
	rec := NewRecorder(out)
	if err := r.watched(ctx, rec, func() error { return m.Measure(ctx, rec, r.Rounds, args) }); err != nil {
		return err
	}
	if err := rec.Err(); err != nil {
		return err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return err
	}
	f, err := r.Suite.Read(out)
	if err != nil {
		return fmt.Errorf("%s: %w", out.Name(), err)
	}
	f.Begin, f.Environment, f.Rounds = begin, here(), r.Rounds
	return r.report(&f)
}

// clean removes the results of the previous run.
func (r *Run) clean() error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, pattern := range []string{"samples.jsonl", "results.*", "*.svg"} {
		old, err := filepath.Glob(filepath.Join(r.Dir, pattern))
		errs = append(errs, err)
		for _, path := range old {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}

// watched calls body. It notes other load of the machine before and after body, and processor
// time that the hypervisor took away meanwhile.
func (r *Run) watched(ctx context.Context, rec *Recorder, body func() error) error {
	look := cmp.Or(r.look, time.Second)
	if err := quiet(ctx, "before", look, rec); err != nil {
		return err
	}
	begin, err := Processors()
	if err != nil {
		return err
	}
	if err := body(); err != nil {
		return err
	}
	end, err := Processors()
	if err != nil {
		return err
	}
	if stolen := end.Stolen - begin.Stolen; stolen > (end.Busy-begin.Busy)/50 {
		rec.Note("the hypervisor took %.1f s of processor time away meanwhile, %.0f %% of what was used: not to be trusted",
			stolen.Seconds(), 100*stolen.Seconds()/(end.Busy-begin.Busy).Seconds())
	}
	return quiet(ctx, "after", look, rec)
}

// report writes results.json, results.txt, results.md and the plots, and prints the tables.
func (r *Run) report(f *File) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	var plain, md bytes.Buffer
	if err := errors.Join(r.Suite.Write(&plain, f, false), r.Suite.Write(&md, f, true)); err != nil {
		return err
	}
	shown := plain.Bytes()
	if r.Markdown {
		shown = md.Bytes()
	}
	for ext, b := range map[string][]byte{".json": append(text, '\n'), ".txt": plain.Bytes(), ".md": md.Bytes()} {
		if err := os.WriteFile(filepath.Join(r.Dir, "results"+ext), b, 0o644); err != nil {
			return err
		}
	}
	if err := r.Suite.Draw(f, r.Dir); err != nil {
		return err
	}
	_, err = os.Stdout.Write(shown)
	return err
}

// Draw writes the plots of f into a directory.
func (s *Suite) Draw(f *File, dir string) error {
	if s.Plots == nil {
		return nil
	}
	for _, p := range s.Plots(f.Rows) {
		if err := os.WriteFile(filepath.Join(dir, p.Name+".svg"), p.SVG(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// InTurn returns the list, in reverse order if round is odd. So the first element is not the same
// in all rounds. The first round is 0.
func InTurn[T any](round int, list []T) []T {
	list = slices.Clone(list)
	if round%2 == 1 {
		slices.Reverse(list)
	}
	return list
}

// Selection says what to measure. It has terms, each of which is a part of the name of a subject
// or a group, or SUBJECT:GROUP. The empty selection has everything except what is measured only
// on request.
type Selection []string

// ParseSelection parses a selection, whose terms are separated by commas.
func ParseSelection(s string) Selection {
	return slices.DeleteFunc(strings.Split(s, ","), func(t string) bool { return strings.TrimSpace(t) == "" })
}

// Has reports whether a group is to be measured of a subject. asked says that the group is
// measured only on request.
func (sel Selection) Has(subject, group string, asked bool) bool {
	if len(sel) == 0 {
		return !asked
	}
	return slices.ContainsFunc(sel, func(term string) bool {
		s, g, both := strings.Cut(strings.TrimSpace(term), ":")
		if both {
			return strings.Contains(subject, s) && strings.Contains(group, g)
		}
		return strings.Contains(subject, s) || strings.Contains(group, s)
	})
}

// quiet observes the machine for d, and makes a note if the machine has other load.
func quiet(ctx context.Context, when string, d time.Duration, rec *Recorder) error {
	before, err := Processors()
	if err != nil {
		return err
	}
	if err := Pause(ctx, d); err != nil {
		return err
	}
	after, err := Processors()
	if err != nil {
		return err
	}
	if used := after.Busy - before.Busy; used > d/10 {
		rec.Note("something else used %.0f %% of a processor %s: the figures are worth nothing",
			100*used.Seconds()/d.Seconds(), when)
	}
	return nil
}
