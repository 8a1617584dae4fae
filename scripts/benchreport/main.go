// Command benchreport turns repeated measurements into medians with their
// spread, and ratios: benchreport RESULTS JSON. RESULTS has a line for each
// measurement: name, subject, size, queues, metric, unit, value.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// yardstick is the subject that the others are compared to.
const yardstick = "ib_write_bw"

// row is one entry of build/bench/results.json.
type row struct {
	Name    string  `json:"name"`
	Subject string  `json:"subject"`
	Size    int     `json:"size"` // bytes in a message
	Queues  int     `json:"queues"`
	Metric  string  `json:"metric"`
	Unit    string  `json:"unit"`
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Runs    int     `json:"runs"`
	Ratio   float64 `json:"ratio,omitempty"`
	RatioTo string  `json:"ratio_to,omitempty"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: benchreport RESULTS JSON")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	f, err := os.Open(in)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := summarize(f)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return table(os.Stdout, rows)
}

// summarize reads measurements and returns a row for each subject, in the order
// in which they first came.
func summarize(r io.Reader) ([]row, error) {
	var rows []row
	values := map[row][]float64{} // by the row without its figures
	s := bufio.NewScanner(r)
	for n := 1; s.Scan(); n++ {
		f := strings.Fields(s.Text())
		if len(f) != 7 {
			return nil, fmt.Errorf("line %d has %d fields, not 7: %q", n, len(f), s.Text())
		}
		size, err1 := strconv.Atoi(f[2])
		queues, err2 := strconv.Atoi(f[3])
		value, err3 := strconv.ParseFloat(f[6], 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		key := row{Name: f[0], Subject: f[1], Size: size, Queues: queues, Metric: f[4], Unit: f[5]}
		if values[key] == nil {
			rows = append(rows, key)
		}
		values[key] = append(values[key], value)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("nothing was measured")
	}
	medians := map[row]float64{} // of the yardstick
	for i, key := range rows {
		v := slices.Sorted(slices.Values(values[key]))
		r := &rows[i]
		r.Runs, r.Min, r.Max, r.Median = len(v), v[0], v[len(v)-1], median(v)
		if key.Subject == yardstick {
			medians[key] = r.Median
		}
	}
	for i := range rows {
		r := &rows[i]
		key := row{Name: r.Name, Subject: yardstick, Size: r.Size, Queues: r.Queues, Metric: r.Metric, Unit: r.Unit}
		if m := medians[key]; r.Subject != yardstick && m > 0 {
			r.Ratio, r.RatioTo = r.Median/m, yardstick
		}
	}
	return rows, nil
}

// median is the middle of sorted values.
func median(v []float64) float64 {
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func table(w io.Writer, rows []row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "subject\tsize\tqueues\tmetric\tmedian\tmin\tmax\tunit\truns\tratio\t")
	for _, r := range rows {
		ratio := ""
		if r.RatioTo != "" {
			ratio = fmt.Sprintf("%.2f", r.Ratio)
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%.4g\t%.4g\t%.4g\t%s\t%d\t%s\t\n",
			r.Subject, r.Size, r.Queues, r.Metric, r.Median, r.Min, r.Max, r.Unit, r.Runs, ratio)
	}
	return tw.Flush()
}
