package discovery

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// records returns the records described by the words "target:priority:weight".
func records(words string) (list []Record) {
	for w := range strings.FieldsSeq(words) {
		f := strings.Split(w, ":")
		r := Record{Target: f[0], Port: 1}
		if _, err := fmt.Sscan(f[1]+" "+f[2], &r.Priority, &r.Weight); err != nil {
			panic(err)
		}
		list = append(list, r)
	}
	return list
}

// TestPriorities tests orders that are the same for every host.
func TestPriorities(t *testing.T) {
	for _, c := range []struct{ records, want string }{
		{"a:0:0", "a:1"},
		{"a:2:9 b:1:1 c:3:5", "b:1 a:1 c:1"},
		{"a:65535:65535 b:0:0", "b:1 a:1"},
		{"a:1:0 b:1:1", "b:1 a:1"}, // weight 0 comes after all other weights
		{"a:1:0 b:1:1 c:0:0", "c:1 b:1 a:1"},
		{"a:1:1 a:0:1", "a:1"}, // of two records of an I/O unit, the first in the order counts
		{"b:1:1 a:2:1 b:3:1", "b:1 a:1"},
	} {
		for host := range 20 {
			before := records(c.records)
			if got := strings.Join(Order(fmt.Sprint("host", host), before), " "); got != c.want {
				t.Errorf("%s: %s, want %s", c.records, got, c.want)
			}
			slices.Reverse(before) // the order of an answer does not matter
			if got := strings.Join(Order(fmt.Sprint("host", host), before), " "); got != c.want {
				t.Errorf("%s, turned round: %s, want %s", c.records, got, c.want)
			}
		}
	}
}

const manyHosts = 20000

// firsts returns for each I/O unit the share of the hosts that have it first. If after is not "",
// it returns the number of hosts that have the I/O unit second, after that one.
func firsts(records []Record, after string) map[string]float64 {
	share := map[string]float64{}
	for i := range manyHosts {
		order := Order(fmt.Sprint("host", i), records)
		if after == "" {
			share[order[0]] += 1.0 / manyHosts
		} else if order[0] == after {
			share[order[1]]++
		}
	}
	return share
}

// TestWeights expects hosts to be distributed by weight, like in RFC 2782, over all I/O units of
// the first priority. The second choices of the hosts of one I/O unit have to be distributed over
// the others in the same way.
func TestWeights(t *testing.T) {
	for _, c := range []struct {
		records string
		want    map[string]float64
	}{
		{"a:1:1 b:1:1 c:1:1 d:2:9", map[string]float64{"a:1": 1. / 3, "b:1": 1. / 3, "c:1": 1. / 3}},
		{"a:1:10 b:1:20 c:1:70", map[string]float64{"a:1": .1, "b:1": .2, "c:1": .7}},
		{"a:1:0 b:1:0", map[string]float64{"a:1": .5, "b:1": .5}}, // all weights 0 count as equal
		{"a:1:0 b:1:5 c:1:5", map[string]float64{"b:1": .5, "c:1": .5}},
	} {
		got := firsts(records(c.records), "")
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", c.records, got)
		}
		for unit, want := range c.want {
			if math.Abs(got[unit]-want) > .01 {
				t.Errorf("%s: %s has %.3f, want %.3f", c.records, unit, got[unit], want)
			}
		}
	}
	next := firsts(records("a:1:10 b:1:20 c:1:70"), "c:1")
	if ratio := next["b:1"] / next["a:1"]; math.Abs(ratio-2) > .1 {
		t.Errorf("after c: %v", next)
	}
}

// TestStable adds and removes I/O units and changes their weights. It expects only the necessary
// hosts to move.
func TestStable(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		from, to            string // I/O unit from which, or to which, hosts may move
	}{
		{"the same", "a:1:1 b:1:2", "b:1:2 a:1:1", "", ""},
		{"one more", "a:1:1 b:1:1 c:1:1", "a:1:1 b:1:1 c:1:1 d:1:1", "", "d:1"},
		{"one less", "a:1:1 b:1:1 c:1:1 d:1:1", "a:1:1 b:1:1 c:1:1", "d:1", ""},
		{"more weight", "a:1:1 b:1:1 c:1:1", "a:1:1 b:1:1 c:1:4", "", "c:1"},
		{"another one of a lower priority", "a:1:1 b:1:1", "a:1:1 b:1:1 c:2:1", "", ""},
	} {
		before, after := records(c.before), records(c.after)
		moved := 0
		for i := range 2000 {
			host := fmt.Sprint("host", i)
			was, is := Order(host, before), Order(host, after)
			if was[0] == is[0] {
				continue
			}
			if moved++; was[0] != c.from && is[0] != c.to {
				t.Errorf("%s: %s moves from %s to %s", c.name, host, was[0], is[0])
			}
		}
		if moves := c.from+c.to != ""; (moved > 0) != moves || moved > 2000/2 {
			t.Errorf("%s: %d of 2000 hosts move", c.name, moved)
		}
	}
}

// TestMost expects a host to use a bounded number of I/O units, and all hosts together to use
// nearly all.
func TestMost(t *testing.T) {
	var all []Record
	for i := range 1000 {
		all = append(all, Record{Priority: 1, Weight: 1, Port: 1, Target: fmt.Sprint("unit", i)})
	}
	used := map[string]bool{}
	for i := range 200 {
		order := Order(fmt.Sprint("host", i), all)
		if len(order) != most {
			t.Fatalf("%d I/O units", len(order))
		}
		for _, unit := range order {
			used[unit] = true
		}
	}
	if len(used) < 990 {
		t.Errorf("%d of 1000 are used", len(used))
	}
}
