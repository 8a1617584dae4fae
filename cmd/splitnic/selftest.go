package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/verbs"
)

// tested has the findings of the self-test about a device.
type tested struct {
	Device   string            `json:"device"`
	Driver   string            `json:"driver"`
	Findings []conform.Finding `json:"findings"`
}

// fails returns the number of properties that are expected of the device and that it lacks.
func (d *tested) fails() (n int) {
	for _, f := range d.Findings {
		if f.Outcome == conform.Fails {
			n++
		}
	}
	return n
}

// selfTests has the results of all devices that were tested.
type selfTests []tested

func (s selfTests) print(w io.Writer) error {
	marks := map[conform.Outcome]string{conform.Holds: "yes", conform.Lacks: "no", conform.Fails: "FAIL"}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DEVICE\tPROPERTY\tHOLDS\tWHAT")
	for _, d := range s {
		for _, f := range d.Findings {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", d.Device, f.Property, marks[f.Outcome], f.Means)
			if f.Detail != "" {
				fmt.Fprintf(tw, "\t\t\t→ %s\n", f.Detail)
			}
		}
	}
	return tw.Flush()
}

// err returns an error about the first device with failed properties, or nil.
func (s selfTests) err() error {
	for i := range s {
		if n := s[i].fails(); n > 0 {
			return exit.With(exit.Failure,
				fmt.Errorf("self-test: %d of %d properties fail on %s", n, len(s[i].Findings), s[i].Device))
		}
	}
	return nil
}

// opener opens a device twice, for a trial of the self-test.
type opener func() (conform.Pair, error)

// test tests the properties of a device.
func (s *selfTests) test(ctx context.Context, device, driver string, open opener) error {
	found, err := conform.Examine(ctx, open)
	if len(found) > 0 {
		*s = append(*s, tested{device, driver, found})
	}
	if err != nil {
		return fmt.Errorf("self-test of %s: %w", device, err)
	}
	return nil
}

// twice returns the opener of an RDMA device.
func twice(name string, hint verbs.GIDHint) opener {
	return func() (conform.Pair, error) {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return conform.Pair{}, fmt.Errorf("asking for the kernel's release: %w", err)
		}
		a, err := verbs.Open(name, verbs.WithGIDHint(hint))
		if err != nil {
			return conform.Pair{}, err
		}
		b, err := verbs.Open(name, verbs.WithGIDHint(hint))
		if err != nil {
			_ = a.Close()
			return conform.Pair{}, err
		}
		traits, err := conform.TraitsOf(a.Driver(), unix.ByteSliceToString(u.Release[:]), a.Limits())
		return conform.Pair{A: a, B: b, Traits: traits, Patience: conform.ExaminePatience}, err
	}
}

// selfTest tests a device, or all if none is named, and prints what it found.
func selfTest(cmd *cobra.Command, device string, hint verbs.GIDHint, asJSON bool) error {
	var missing report
	devices := chosenDevices(&missing, device)
	if len(missing) > 0 {
		return missing.tell(cmd.OutOrStdout(), asJSON)
	}
	var s selfTests
	var ended error
	for _, d := range devices {
		if ended = s.test(cmd.Context(), d.Name, d.Driver, twice(d.Name, hint)); ended != nil {
			break
		}
	}
	var err error
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), s)
	} else {
		err = s.print(cmd.OutOrStdout())
	}
	for _, e := range []error{err, ended, s.err()} {
		if e != nil {
			return e
		}
	}
	return nil
}
