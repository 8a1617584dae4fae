package results

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// key returns the key of a row in these tests.
func key(group, subject, metric string) Key {
	return Key{Group: group, Subject: subject, Size: 64, Queues: 1, Metric: metric}
}

// recorded returns the lines that add records.
func recorded(t *testing.T, add func(r *Recorder)) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	r := NewRecorder(&b)
	add(r)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// toOther compares every row to the subjects "other" and "another".
func toOther(r *Row) []Key {
	if r.Subject == "other" {
		return nil
	}
	k := r.Key
	k.Subject = "other"
	k2 := k
	k2.Subject = "another"
	return []Key{k, k2}
}

func TestSummarize(t *testing.T) {
	b := recorded(t, func(r *Recorder) {
		for _, v := range []float64{3, 6, 4} {
			r.Of("bw", "other", 64).Add("rate", "MiB/s", v)
			r.Of("bw", "ours", 64).Add("rate", "MiB/s", v*v)
		}
		r.Note("%d rounds", 3)
		r.Of("bw", "alone", 64).Add("ping", "us", 7)
	})
	samples, notes, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"3 rounds"}, notes); d != "" {
		t.Error(d)
	}
	for byRound, ratio := range map[bool]float64{false: 16.0 / 4, true: 4} {
		s := Suite{References: toOther, ByRound: byRound}
		got, err := s.summarize(samples)
		if err != nil {
			t.Fatal(err)
		}
		want := Rows{
			{Key: key("bw", "other", "rate"), Unit: "MiB/s", Samples: []float64{3, 6, 4}, Median: 4, Min: 3, Max: 6},
			{Key: key("bw", "ours", "rate"), Unit: "MiB/s", Samples: []float64{9, 36, 16}, Median: 16, Min: 9, Max: 36,
				Ratio: ratio, RatioTo: "other"},
			{Key: key("bw", "alone", "ping"), Unit: "us", Samples: []float64{7}, Median: 7, Min: 7, Max: 7},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("by round: %t: %s", byRound, d)
		}
	}
}

func TestRatios(t *testing.T) {
	row := func(subject string, v ...float64) Row {
		return Row{Key: key("bw", subject, "rate"), Samples: v, Median: Median(v)}
	}
	for _, c := range []struct {
		name    string
		rows    Rows
		byRound bool
		ratio   float64
		to      string
	}{
		{"of the medians", Rows{row("ours", 1, 2, 30), row("other", 1, 4, 5)}, false, 0.5, "other"},
		{"of the rounds", Rows{row("ours", 1, 2, 30), row("other", 1, 4, 5)}, true, 1, "other"},
		{"of rounds that both have", Rows{row("ours", 3, 2), row("other", 1)}, true, 3, "other"},
		{"of nothing", Rows{row("ours", 0), row("other", 1)}, true, 0, "other"},
		{"to the greater one", Rows{row("ours", 6), row("other", 2), row("another", 3)}, false, 2, "another"},
		{"to one that is 0", Rows{row("ours", 6), row("other", 0)}, false, 0, ""},
		{"to one that is missing", Rows{row("ours", 6)}, false, 0, ""},
	} {
		s := Suite{References: toOther, ByRound: c.byRound}
		if s.compare(c.rows, &c.rows[0]); c.rows[0].Ratio != c.ratio || c.rows[0].RatioTo != c.to {
			t.Errorf("%s: %v to %q, want %v to %q", c.name, c.rows[0].Ratio, c.rows[0].RatioTo, c.ratio, c.to)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	good := `{"group":"bw","subject":"x","size":64,"queues":1,"metric":"m","unit":"u","value":1}` + "\n"
	for _, c := range []struct{ name, text, says string }{
		{"nothing", "", "nothing"},
		{"a line cut short", good + good[:40], "sample 2"},
		{"a figure that is none", strings.Replace(good, ":1}", ":fast}", 1), "sample 1"},
		{"a field that is unknown", strings.Replace(good, "value", "figure", 1), "figure"},
		{"no subject", strings.Replace(good, `"x"`, `""`, 1), "does not say"},
		{"a hole", good + strings.Replace(good, `"x"`, `"y"`, 1) + good, "bw of y"},
	} {
		samples, _, err := read(strings.NewReader(c.text))
		if err == nil {
			_, err = (&Suite{}).summarize(samples)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.name == "a hole" {
			if _, err := (&Suite{Gaps: true}).summarize(samples); err != nil {
				t.Errorf("a hole that may be: %v", err)
			}
		}
	}
}

// TestGoals has aims for a median, for a ratio of the row, and for a ratio to a row that the aim
// names. A row has no goal if it does not match, or what it is compared to is missing.
func TestGoals(t *testing.T) {
	ours := Row{Key: key("bw", "ours/a", "rate"), Unit: "MiB/s", Median: 9, Ratio: 0.9, RatioTo: "other"}
	rows := Rows{ours, {Key: key("bw", "other", "rate"), Median: 3}, {Key: key("lat", "ours/a", "p50"), Median: 1}}
	other := func(k *Key) { k.Subject = "other" }
	for _, c := range []struct {
		aim   Aim
		value float64
		to    string
		met   bool
	}{
		{Aim{Subject: "ours/*", Metric: "rate", Op: ">=", Bound: 9}, 9, "", true},
		{Aim{Subject: "ours/*", Metric: "rate", Op: ">=", Bound: 9.1}, 9, "", false},
		{Aim{Subject: "ours/*", Metric: "rate", Op: "<", Bound: 9}, 9, "", false},
		{Aim{Subject: "ours/*", Metric: "ra??", Op: "<=", Bound: 9, Size: 64, Queues: 1}, 9, "", true},
		{Aim{Group: "bw", Ratio: true, Op: ">=", Bound: 0.9}, 0.9, "other", true},
		{Aim{Subject: "ours/*", To: other, Op: "<=", Bound: 2.9}, 3, "other", false},
		{Aim{Subject: "ours/*", To: func(k *Key) { k.Group, k.Metric = "lat", "p50" }, Metric: "rate", Op: ">=", Bound: 9}, 9,
			"lat", true},
		{aim: Aim{Subject: "ours/*", To: func(k *Key) { k.Size = 1 }}}, {aim: Aim{Group: "lat", Ratio: true}},
		{aim: Aim{Subject: "ours"}}, {aim: Aim{Size: 65}}, {aim: Aim{Queues: 2}}, {aim: Aim{Metric: "rat"}},
	} {
		got := c.aim.goals(rows)
		if c.value == 0 && len(got) > 0 || c.value > 0 && (len(got) != 1 || got[0].Value != c.value ||
			got[0].RatioTo != c.to || got[0].Met != c.met) {
			t.Errorf("%+v: %+v", c.aim, got)
		}
	}
}

// TestRun runs a suite, and reads its results.json and its tables.
func TestRun(t *testing.T) {
	s := &Suite{
		Name: "test", References: toOther, Remark: "A remark",
		Aims: []Aim{{What: "half of the other", Subject: "ours", Metric: "rate", Ratio: true, Op: ">=", Bound: 0.5}},
	}
	dir := filepath.Join(t.TempDir(), "new")
	r := Run{Suite: s, Dir: dir, Rounds: 2, look: time.Millisecond}
	s.Measure = func(_ context.Context, rec *Recorder, _ int, _ []string) error {
		for _, v := range []float64{12.34, 10} {
			rec.Of("bw", "ours", 64).Add("rate", "MiB/s", v)
			rec.Of("bw", "other", 64).Add("rate", "MiB/s", 2*v)
		}
		// Append lines as a script does.
		f, err := os.OpenFile(filepath.Join(dir, "samples.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(`{"group":"net","subject":"ours","size":1500,"queues":4,"metric":"ping","unit":"us","value":1e3}
{"note":"from elsewhere"}
`)
		return err
	}
	if err := r.Do(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	f, err := Load(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Suite != "test" || f.Rounds != 2 || f.Environment.Processors == 0 || f.Begin.IsZero() || len(f.Rows) != 3 ||
		f.Rows[2].Median != 1000 || len(f.Goals) != 1 || !f.Goals[0].Met || !slices.Contains(f.Notes, "from elsewhere") {
		t.Errorf("%+v", f)
	}
	text, err := os.ReadFile(filepath.Join(dir, "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| half of the other | bw    | ours    | >= 0.5 | 0.50 of other | met |",
		"| subject | size | queues | rate, MiB/s            | × of  |", "|---      |---   |---     |---                     |---    |",
		"| ours    | 64   | 1      | 11.2 (10.0–12.3) ×0.50 | other |", "| other   | 64   | 1      | 22.3 (20.0–24.7)       |       |",
		"Note: A remark.", "Note: from elsewhere.",
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
	// The next run begins anew, and leaves no results if it fails.
	broken := errors.New("broken")
	s.Measure = func(context.Context, *Recorder, int, []string) error { return broken }
	if err := r.Do(t.Context(), nil); !errors.Is(err, broken) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "results.*")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestMedian(t *testing.T) {
	for want, v := range map[float64][]float64{1: {1}, 1.5: {2, 1}, 2: {9, 1, 2}} {
		if got := Median(v); got != want {
			t.Errorf("median of %v: %v", v, got)
		}
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00176: "0.0018", 0.0321: "0.0321", 0.3214: "0.321", 3.214: "3.21",
		32.14: "32.1", 321.4: "321", 32140: "32140", math.Pi * 1e6: "3141593", -0.5: "-0.500"} {
		if got := Figure(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestInTurn(t *testing.T) {
	list := []int{1, 2, 3}
	for round, want := range [][]int{{1, 2, 3}, {3, 2, 1}, {1, 2, 3}} {
		if d := cmp.Diff(want, InTurn(round, list)); d != "" {
			t.Errorf("round %d: %s", round, d)
		}
	}
}

func TestSelection(t *testing.T) {
	for _, tc := range []struct {
		list, subject, group string
		asked                bool
		want                 bool
	}{
		{"", "veth", "tcp.tx", false, true},
		{"", "veth", "overload.tx", true, false},
		{"tcp", "veth", "tcp.tx", false, true},
		{"tcp", "veth", "udp.tx", false, false},
		{"overload", "veth", "overload.tx", true, true},
		{"overload", "veth", "tcp.tx", false, false},
		{"veth", "veth", "overload.tx", true, true},
		{"udp, tcp.rx", "veth", "tcp.rx", false, true},
		{"relay", "relay/tap", "udp.tx", false, true},
		{"relay", "veth", "overload.tx", true, false},
		{"relay:tcp", "relay/tap", "udp.tx", false, false},
		{"relay:tcp", "relay/tap", "tcp4.tx", false, true},
		{"relay:tcp", "veth", "tcp.tx", false, false},
		{" ,", "veth", "tcp.tx", false, true},
	} {
		if got := ParseSelection(tc.list).Has(tc.subject, tc.group, tc.asked); got != tc.want {
			t.Errorf("%q of %s, %s, asked for %t: %t", tc.list, tc.subject, tc.group, tc.asked, got)
		}
	}
}

// TestTransposed has a group with more metrics than subjects, and expects a line for each metric.
func TestTransposed(t *testing.T) {
	var rs Rows
	for _, metric := range strings.Split("abcdefg", "") {
		rs = append(rs, Row{Key: key("bw", "ours", metric), Unit: "u", Median: 2})
	}
	lines := rs.grid("bw")
	want := [][]string{{"subject", "ours"}, {"size", "64"}, {"queues", "1"}, {"a, u", "2.00"}}
	if d := cmp.Diff(want, lines[:4]); d != "" || len(lines) != 10 {
		t.Errorf("%d lines: %s", len(lines), d)
	}
}

// FuzzSamples reads any text as samples.jsonl. What is not a sample has to be an error, and each
// sample has to be in a row.
func FuzzSamples(f *testing.F) {
	for _, s := range []string{
		`{"group":"bw","subject":"x","size":64,"queues":1,"metric":"m","unit":"u","value":1}`, `{"note":"n"}`,
		`{"group":"bw","subject":"x","metric":"m","value":-1e308}{"group":"bw","subject":"x","metric":"m","value":1e308}`,
		`{`, `[]`, `null`, "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		samples, _, err := read(strings.NewReader(s))
		if err != nil {
			return
		}
		rows, err := (&Suite{References: toOther}).summarize(samples)
		if err != nil {
			return
		}
		n := 0
		for _, r := range rows {
			n += len(r.Samples)
			if r.Min > r.Max || r.Median < r.Min && !math.IsInf(r.Median, 0) {
				t.Errorf("%q has %+v", s, r)
			}
		}
		if n != len(samples) {
			t.Errorf("%d of %d samples have a row", n, len(samples))
		}
	})
}
