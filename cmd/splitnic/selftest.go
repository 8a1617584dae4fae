package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/fabric/conform"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/verbs"
)

// tested has the findings of the self-test about a device.
type tested struct {
	Device   string            `json:"device"`
	Driver   string            `json:"driver"`
	Verdict  string            `json:"verdict"`
	Findings []conform.Finding `json:"findings"`
}

// with returns the properties whose trials had an outcome.
func (d *tested) with(o conform.Outcome) (names []string) {
	for _, f := range d.Findings {
		if f.Outcome == o {
			names = append(names, f.Property)
		}
	}
	return names
}

// verdict says whether splitnic works on the device, and without what.
func (d *tested) verdict() string {
	if fails := d.with(conform.Fails); len(fails) > 0 {
		return fmt.Sprintf("splitnic does not work on %s (%s): %s", d.Device, d.Driver, strings.Join(fails, ", "))
	}
	v := fmt.Sprintf("splitnic works on %s (%s)", d.Device, d.Driver)
	if lacks := d.with(conform.Lacks); len(lacks) > 0 {
		v += ", without: " + strings.Join(lacks, ", ")
	}
	return v
}

// selfTests has the results of all devices that were tested.
type selfTests []tested

func (s selfTests) print(w io.Writer) error {
	if len(s) == 0 {
		return nil
	}
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
	err := tw.Flush()
	for i := range s {
		fmt.Fprintf(w, "\n%s\n", s[i].Verdict)
	}
	return err
}

// err returns an error about the first device with failed properties, or nil.
func (s selfTests) err() error {
	for i := range s {
		if n := len(s[i].with(conform.Fails)); n > 0 {
			return exit.With(exit.Failure,
				fmt.Errorf("self-test: %d of %d properties fail on %s", n, len(s[i].Findings), s[i].Device))
		}
	}
	return nil
}

// opener opens a device twice, for a trial of the self-test.
type opener func() (conform.Pair, error)

func (s *selfTests) test(ctx context.Context, device, driver string, open opener) error {
	found, err := conform.Examine(ctx, open)
	if len(found) > 0 {
		d := tested{Device: device, Driver: driver, Findings: found}
		d.Verdict = d.verdict()
		*s = append(*s, d)
	}
	if err != nil {
		return fmt.Errorf("self-test of %s: %w", device, err)
	}
	return nil
}

// testAll tests devices. One that cannot be tested, as an EFA device, does not stop the others.
func (s *selfTests) testAll(
	ctx context.Context, devices []verbs.DeviceInfo, open func(device string) opener,
) (err error) {
	for _, d := range devices {
		err = errors.Join(err, s.test(ctx, d.Name, d.Driver, open(d.Name)))
		if ctx.Err() != nil {
			break
		}
	}
	return err
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
			return conform.Pair{}, exit.With(exit.Missing, err) // as at the start of an endpoint
		}
		b, err := verbs.Open(name, verbs.WithGIDHint(hint))
		if err != nil {
			_ = a.Close()
			return conform.Pair{}, err
		}
		traits, err := conform.TraitsOf(a.Driver(), unix.ByteSliceToString(u.Release[:]), a.Limits())
		return conform.Pair{A: a, B: b, Traits: traits, Inline: messaging.DefaultInline,
			Patience: conform.ExaminePatience}, err
	}
}

// selfTest tests a device, or all if none is named, and prints what it found.
func selfTest(cmd *cobra.Command, device string, hint verbs.GIDHint, asJSON bool) error {
	var missing report
	devices := chosenDevices(&missing, device)
	if len(missing) > 0 {
		return missing.tell(cmd.OutOrStdout(), asJSON)
	}
	s := selfTests{} // [] in JSON
	ended := s.testAll(cmd.Context(), devices, func(device string) opener { return twice(device, hint) })
	return errors.Join(show(cmd.OutOrStdout(), asJSON, s, s.print), ended, s.err())
}
