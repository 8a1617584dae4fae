package main

import (
	"cmp"
	"fmt"
	"slices"
)

// row is one entry of build/bench/native.json.
type row struct {
	Name    string  `json:"name"`
	Subject string  `json:"subject"`
	Size    int     `json:"size"` // bytes: the MTU for streams, the payload of datagrams
	Queues  int     `json:"queues"`
	Metric  string  `json:"metric"`
	Unit    string  `json:"unit"`
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Runs    int     `json:"runs"`
	Ratio   float64 `json:"ratio,omitempty"` // of the medians
	RatioTo string  `json:"ratio_to,omitempty"`
	// Of rows of the name "goal" only: what Median, a figure derived from
	// others, has to reach, and whether it does.
	Goal string `json:"goal,omitempty"`
	Met  *bool  `json:"met,omitempty"`
}

// results are all figures of a run, in the order in which they first came.
type results struct {
	keys   []row // without figures
	values map[row][]float64
}

// samples takes the figures of one measurement of one subject.
type samples struct {
	to      *results
	name    string
	subject subject
	size    int
}

func newResults() *results { return &results{values: map[row][]float64{}} }

func (r *results) sink(name string, s subject, size int) *samples {
	return &samples{r, name, s, size}
}

func (s *samples) add(metric, unit string, v float64) {
	key := row{Name: s.name, Subject: s.subject.String(), Size: s.size, Queues: 1, Metric: metric, Unit: unit}
	if s.to.values[key] == nil {
		s.to.keys = append(s.to.keys, key)
	}
	s.to.values[key] = append(s.to.values[key], v)
}

// compared are the metrics of which a ratio says something.
var compared = []string{throughput, rate, median50, median99, average, cpuProcess, cpuMachine}

// rows are the medians, and what they are in comparison.
func (r *results) rows() []row {
	rows := make([]row, 0, len(r.keys))
	for _, key := range r.keys {
		v := slices.Sorted(slices.Values(r.values[key]))
		row := key
		row.Runs, row.Min, row.Max, row.Median = len(v), v[0], v[len(v)-1], median(v)
		rows = append(rows, row)
	}
	for i := range rows {
		w := &rows[i]
		s, ok := parseSubject(w.Subject)
		if !ok || s.what != splitnic || !slices.Contains(compared, w.Metric) {
			continue
		}
		to := s.yardstick().String()
		if y := find(rows, w.Name, to, w.Metric); y != nil && y.Median > 0 {
			w.Ratio, w.RatioTo = w.Median/y.Median, to
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(place(a.Name, measurementNames()), place(b.Name, measurementNames())),
			cmp.Compare(place(a.Subject, subjectNames()), place(b.Subject, subjectNames())))
	})
	return append(rows, goals(rows)...)
}

// place is where in a list something is; at the end if it is not.
func place(what string, list []string) int {
	if i := slices.Index(list, what); i >= 0 {
		return i
	}
	return len(list)
}

func measurementNames() (names []string) {
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	return names
}

func subjectNames() (names []string) {
	for _, s := range subjects() {
		names = append(names, s.String())
	}
	return names
}

// median is the middle of sorted values.
func median(v []float64) float64 {
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

func find(rows []row, name, subject, metric string) *row {
	i := slices.IndexFunc(rows, func(r row) bool { return r.Name == name && r.Subject == subject && r.Metric == metric })
	if i < 0 {
		return nil
	}
	return &rows[i]
}

// goals derives what the project wants to reach from rows, where they are there.
func goals(rows []row) []row {
	var out []row
	goal := func(s, what, unit string, v float64, goal string, met bool) {
		out = append(out, row{
			Name: goalName, Subject: s, Queues: 1, Metric: what, Unit: unit,
			Median: v, Min: v, Max: v, Runs: 1, Goal: goal, Met: &met,
		})
	}
	least := func(s, what string, a, b *row, bound float64) {
		if a != nil && b != nil && b.Median > 0 {
			v := a.Median / b.Median
			goal(s, what, "ratio", v, fmt.Sprintf(">= %g", bound), v >= bound)
		}
	}
	for _, sub := range subjects() {
		if sub.what != splitnic || sub.plain {
			continue
		}
		s, y := sub.String(), sub.yardstick().String()
		bare := subject{what: splitnic, port: sub.port, plain: true}.String()
		for _, way := range []string{"tx", "rx"} {
			tcp, udp := "tcp."+way, "udp."+way
			least(s, tcp+" beside the relay", find(rows, tcp, s, throughput), find(rows, tcp, y, throughput), 0.8)
			least(s, tcp+" beside none of the offloads", find(rows, tcp, s, throughput), find(rows, tcp, bare, throughput), 5)
			least(s, udp+" beside the relay", find(rows, udp, s, rate), find(rows, udp, y, rate), 0.6)
			least(s, udp+" of 64 flows beside one", find(rows, udp+".64flows", s, rate), find(rows, udp, s, rate), 0.9)
		}
		for _, name := range []string{"tcp.tx", "tcp.rx", "udp.tx", "udp.rx"} {
			if n, ok := allocationsOf(rows, name, s); ok {
				goal(s, name+" allocations", "/frame", n, "< 0.01", n < 0.01)
			}
			if r := find(rows, name, s, halfCalls); r != nil {
				bound := 1.0
				if name[:3] == "udp" {
					bound = 0.5
				}
				goal(s, name+" system calls of a half", "/frame", r.Median, fmt.Sprintf("<= %g", bound), r.Median <= bound)
			}
		}
		for _, d := range overloads {
			for _, way := range []string{"tx", "rx"} {
				for _, f := range factors {
					name := "overload." + way + "." + d.name
					if r := find(rows, name, s, arrivedAt(f)); r != nil {
						goal(s, fmt.Sprintf("%s at %g times the best", name, f), r.Unit, r.Median, ">= 0.8", r.Median >= 0.8)
					}
				}
			}
		}
		if r := find(rows, idle, s, idleHalf); r != nil {
			goal(s, "idle use of a processor, each half", r.Unit, r.Median, "< 0.5", r.Median < 0.5)
		}
	}
	return out
}

// allocationsOf is what a frame allocates, without what a session allocates that
// has no frames at all.
func allocationsOf(rows []row, name, subject string) (n float64, ok bool) {
	frames := find(rows, name, subject, frameRate)
	if frames == nil {
		frames = find(rows, name, subject, rate)
	}
	busy, calm := find(rows, name, subject, allocations), find(rows, idle, subject, allocations)
	if frames == nil || busy == nil || calm == nil || frames.Median == 0 {
		return 0, false
	}
	return max(busy.Median-calm.Median/frames.Median, 0), true
}
