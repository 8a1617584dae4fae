package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/render"
	"github.com/splitnic/splitnic/internal/statussock"
)

// statusSchema is the JSON schema of `splitnic status --json`, which TestStatusSchema
// makes from the types.
//
//go:embed status.schema.json
var statusSchema []byte

type statusFlags struct {
	json, verbose, schema bool
	watch                 time.Duration
}

// watchDefault is the interval of --watch without a value.
const watchDefault = 2 * time.Second

func statusCommand() *cobra.Command {
	var f statusFlags
	c := &cobra.Command{
		Use:        "status [NAME…]",
		SuggestFor: []string{"ls", "list", "show", "ps", "info"},
		Short:      "Show the state of the hosts and I/O units on this machine",
		Long: `Show the state of the hosts and I/O units on this machine: a line for each, and below
an I/O unit one for each of its hosts, of ` + fmt.Sprint(render.Width) + ` columns at most.

Without arguments it queries every process with its socket in ` + statussock.Dir + `. ` + whichNames + `
-v shows everything that they tell. With --json it prints one JSON document, a list,
in the format of --schema. With --watch it continues until it is interrupted.`,
		Example: `  splitnic status
  splitnic status -v sn0
  splitnic status --watch=5s
  splitnic status --json | jq -r '.[] | select(.state == "connecting") | .last_error'`,
		RunE: func(cmd *cobra.Command, names []string) error {
			return f.run(cmd, names, statussock.List)
		},
	}
	boolVarP(c.Flags(), &f.verbose, "verbose", "v", false, "show everything")
	boolVar(c.Flags(), &f.json, "json", false, "print JSON")
	boolVar(c.Flags(), &f.schema, "schema", false, "print the JSON schema of --json, and nothing else")
	c.Flags().DurationVar(&f.watch, "watch", 0, "repeat at this interval (default: "+
		watchDefault.String()+")")
	c.Flags().Lookup("watch").NoOptDefVal = watchDefault.String()
	return c
}

// run shows the status of the processes in names, or of all that list finds.
func (f *statusFlags) run(cmd *cobra.Command, names []string, list func() ([]string, error)) error {
	w := cmd.OutOrStdout()
	if f.schema {
		_, err := w.Write(statusSchema)
		return err
	}
	if !cmd.Flags().Changed("watch") {
		return f.show(cmd.Context(), w, names, list)
	}
	if err := positive("--watch", f.watch); err != nil {
		return err
	}
	for _, name := range names {
		if _, err := time.ParseDuration(name); err == nil {
			return exit.Usagef("--watch %s: must be --watch=%s", name, name)
		}
	}
	return f.repeat(cmd, names, list)
}

// clearScreen moves to the upper left corner and clears the screen from there.
const clearScreen = "\x1b[H\x1b[2J"

// repeat shows the status at each interval until ctx is done. It continues after errors, because
// a process that does not answer may come back.
func (f *statusFlags) repeat(cmd *cobra.Command, names []string, list func() ([]string, error)) error {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	clearing := !f.json && isTerminal(w)
	tick := time.NewTicker(f.watch)
	defer tick.Stop()
	for first := true; ; first = false {
		var page bytes.Buffer // written at once, so that a screen does not flicker
		complaints := io.Writer(&page)
		switch {
		case clearing:
			page.WriteString(clearScreen)
		case f.json:
			complaints = cmd.ErrOrStderr()
		case !first:
			page.WriteByte('\n')
		}
		err := f.show(ctx, &page, names, list)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			fmt.Fprintln(complaints, err)
		}
		if _, err := page.WriteTo(w); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func isTerminal(w io.Writer) bool {
	file := fileOf(w)
	return file != nil && term.IsTerminal(int(file.Fd()))
}

// show shows the status once. With --json it prints a list even if no process runs.
func (f *statusFlags) show(ctx context.Context, w io.Writer, names []string, list func() ([]string, error)) error {
	sockets, err := socketsOr(ctx, names, list)
	errs, all := []error{err}, []json.RawMessage{}
	for _, path := range sockets {
		raw, err := statussock.Read(ctx, path)
		if err == nil {
			all = append(all, raw)
		}
		errs = append(errs, err)
	}
	if f.json {
		return errors.Join(append(errs, printJSON(w, all))...)
	}
	parsed := []render.Status{}
	for _, raw := range all {
		s, err := render.Parse(raw)
		if err == nil {
			parsed = append(parsed, s)
		}
		errs = append(errs, err)
	}
	if f.verbose {
		return errors.Join(append(errs, render.Details(w, parsed))...)
	}
	return errors.Join(append(errs, render.Table(w, parsed, time.Now()))...)
}
