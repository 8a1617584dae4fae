package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// row is one entry of results.json.
type row struct {
	Name    string  `json:"name"`    // what was measured: bw, pps, lat, net, rtt, overload-KIND or counters
	Subject string  `json:"subject"` // of what
	Size    int     `json:"size"`    // bytes in a message, or the MTU
	Queues  int     `json:"queues"`  // queue pairs, data channels, or streams
	Metric  string  `json:"metric"`
	Unit    string  `json:"unit"`
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Runs    int     `json:"runs"`
	Ratio   float64 `json:"ratio,omitempty"` // of the median to that of RatioTo
	RatioTo string  `json:"ratio_to,omitempty"`
}

// key is what two rows differ in at least.
type key struct {
	name, subject string
	size, queues  int
	metric        string
}

func (r *row) key() key { return key{r.Name, r.Subject, r.Size, r.Queues, r.Metric} }

// rows are in the order in which their measurements first came.
type rows []row

// find returns the row of k, nil if it was not measured.
func (rs rows) find(k key) *row {
	i := slices.IndexFunc(rs, func(r row) bool { return r.key() == k })
	if i < 0 {
		return nil
	}
	return &rs[i]
}

// subjects returns those of the measurements that match, in their order.
func (rs rows) subjects(match func(r *row) bool) []string {
	var list []string
	for i := range rs {
		if match(&rs[i]) && !slices.Contains(list, rs[i].Subject) {
			list = append(list, rs[i].Subject)
		}
	}
	return list
}

// numbers returns the different values of a field of the measurements that
// match, sorted.
func (rs rows) numbers(field func(r *row) int, match func(r *row) bool) []int {
	var list []int
	for i := range rs {
		if n := field(&rs[i]); match(&rs[i]) && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// summarize reads lines of name, subject, size, queues, metric, unit and value.
// What was not measured as often as the rest of its name is a hole, which is an
// error.
func summarize(r io.Reader) (rows, error) {
	var list rows
	values := map[key][]float64{}
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
		m := row{Name: f[0], Subject: f[1], Size: size, Queues: queues, Metric: f[4], Unit: f[5]}
		if values[m.key()] == nil {
			list = append(list, m)
		}
		values[m.key()] = append(values[m.key()], value)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("nothing was measured")
	}
	runs := map[string]int{}
	for i := range list {
		m := &list[i]
		v := slices.Sorted(slices.Values(values[m.key()]))
		m.Runs, m.Min, m.Max, m.Median = len(v), v[0], v[len(v)-1], median(v)
		runs[m.Name] = max(runs[m.Name], m.Runs)
	}
	var errs []error
	for _, m := range list {
		if m.Runs < runs[m.Name] {
			errs = append(errs, fmt.Errorf("%s %s, size %d, queues %d: %s was measured %d times, not %d",
				m.Name, m.Subject, m.Size, m.Queues, m.Metric, m.Runs, runs[m.Name]))
		}
	}
	list.compare()
	return list, errors.Join(errs...)
}

// median is the middle of v.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
