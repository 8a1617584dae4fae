package results

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Run is a run of a suite.
type Run struct {
	Suite  *Suite
	Dir    string // directory for the results
	Rounds int

	look time.Duration // for which other load of the machine is observed; 0: a second
}

// Do measures, and makes results from the figures in samples.jsonl.
func (r *Run) Do(ctx context.Context, args []string) (err error) {
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
	if err := r.watched(ctx, rec, func() error {
		if r.Suite.Measure == nil {
			return program(ctx, args)
		}
		return r.Suite.Measure(ctx, rec, r.Rounds, args)
	}); err != nil {
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

// program runs a program until it ends.
func program(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("which program measures?")
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// clean removes the results of the previous run.
func (r *Run) clean() error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"samples.jsonl", "results.json", "results.md"} {
		if err := os.Remove(filepath.Join(r.Dir, name)); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// watched calls body. It notes other load of the machine before and after body, and processor
// time that the hypervisor took away meanwhile.
func (r *Run) watched(ctx context.Context, rec *Recorder, body func() error) error {
	look := cmp.Or(r.look, time.Second)
	beside := func() error { return Pause(ctx, look) }
	var during [3]Times // before, meanwhile, after
	for i, f := range []func() error{beside, body, beside} {
		begin, err := Processors()
		if err == nil {
			err = f()
		}
		if err != nil {
			return err
		}
		end, err := Processors()
		if err != nil {
			return err
		}
		during[i] = end.since(begin)
	}
	for i, when := range []string{"before", "", "after"} {
		if share := during[i].Busy.Seconds() / look.Seconds(); when != "" && share > 0.1 {
			rec.Note("something else used %.0f %% of a processor %s: the figures are worth nothing", 100*share, when)
		}
	}
	if t := during[1]; t.Stolen > t.Busy/50 {
		rec.Note("the hypervisor took %.1f s of processor time away meanwhile, %.0f %% of what was used: not to be trusted",
			t.Stolen.Seconds(), 100*t.Stolen.Seconds()/t.Busy.Seconds())
	}
	return nil
}

// report writes results.json and results.md, and prints the tables.
func (r *Run) report(f *File) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	var tables bytes.Buffer
	err = errors.Join(f.Write(&tables), os.WriteFile(filepath.Join(r.Dir, "results.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(r.Dir, "results.md"), tables.Bytes(), 0o644))
	_, err2 := os.Stdout.Write(tables.Bytes())
	return errors.Join(err, err2)
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
