package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// finding is one line of the doctor's report.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or error
	Found  string `json:"found"`
	Fix    string `json:"fix,omitempty"`

	status int // exit status of the process for an error
}

type report []finding

func (r *report) ok(check, format string, args ...any) {
	*r = append(*r, finding{Check: check, Status: "ok", Found: fmt.Sprintf(format, args...)})
}

func (r *report) warn(check, found, fix string) {
	*r = append(*r, finding{Check: check, Status: "warning", Found: found, Fix: fix})
}

// missing reports that something required is missing. forbidden reports that this process lacks
// a permission.
func (r *report) missing(check, found, fix string) {
	*r = append(*r, finding{Check: check, Status: "error", Found: found, Fix: fix, status: exit.Missing})
}

func (r *report) forbidden(check, found, fix string) {
	*r = append(*r, finding{Check: check, Status: "error", Found: found, Fix: fix, status: exit.Permission})
}

// err returns an error with the number of failed checks and the exit status of the first one, or
// nil if none has failed.
func (r report) err() error {
	failed, status := 0, 0
	for _, f := range r {
		if f.Status != "error" {
			continue
		}
		if failed == 0 {
			status = f.status
		}
		failed++
	}
	if failed == 0 {
		return nil
	}
	return exit.With(status, fmt.Errorf("doctor: %d of %d checks failed", failed, len(r)))
}

// tell prints the report, and returns the error with which the command ends.
func (r report) tell(w io.Writer, asJSON bool) error {
	return errors.Join(show(w, asJSON, r, func(w io.Writer) error {
		_, err := io.WriteString(w, r.text())
		return err
	}), r.err())
}

func (r report) text() string {
	marks := map[string]string{"ok": "ok  ", "warning": "warn", "error": "FAIL"}
	var b strings.Builder
	for _, f := range r {
		fmt.Fprintf(&b, "%s  %-14s %s\n", marks[f.Status], f.Check, f.Found)
		if f.Fix != "" {
			fmt.Fprintf(&b, "      %-14s → %s\n", "", f.Fix)
		}
	}
	return b.String()
}
