package discovery

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// records reads "target:priority:weight" words.
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

// TestPriorities has the order that every host has.
func TestPriorities(t *testing.T) {
	for _, c := range []struct{ records, want string }{
		{"a:0:0", "a:1"},
		{"a:2:9 b:1:1 c:3:5", "b:1 a:1 c:1"},
		{"a:65535:65535 b:0:0", "b:1 a:1"},
		{"a:1:0 b:1:1", "b:1 a:1"}, // weight 0 is for none where there is a choice
		{"a:1:0 b:1:1 c:0:0", "c:1 b:1 a:1"},
		{"a:1:1 a:0:1", "a:1"}, // one of two records of an I/O unit: the first
		{"b:1:1 a:2:1 b:3:1", "b:1 a:1"},
	} {
		for host := range 20 {
			before := records(c.records)
			if got := strings.Join(Order(fmt.Sprint("host", host), before), " "); got != c.want {
				t.Errorf("%s: %s, want %s", c.records, got, c.want)
			}
			slices.Reverse(before) // answers are in any order
			if got := strings.Join(Order(fmt.Sprint("host", host), before), " "); got != c.want {
				t.Errorf("%s, turned round: %s, want %s", c.records, got, c.want)
			}
		}
	}
}

const manyHosts = 20000

// firsts counts the hosts of which each I/O unit is the first, and the first after another.
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

// TestWeights has hosts spread as RFC 2782 says: over all I/O units of the first priority,
// and those of one of them over the others of that.
func TestWeights(t *testing.T) {
	for _, c := range []struct {
		records string
		want    map[string]float64
	}{
		{"a:1:1 b:1:1 c:1:1 d:2:9", map[string]float64{"a:1": 1. / 3, "b:1": 1. / 3, "c:1": 1. / 3}},
		{"a:1:10 b:1:20 c:1:70", map[string]float64{"a:1": .1, "b:1": .2, "c:1": .7}},
		{"a:1:0 b:1:0", map[string]float64{"a:1": .5, "b:1": .5}}, // all 0: as if equal
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

// TestStable has I/O units come, go and change their weight: only the hosts are moved that
// have to be.
func TestStable(t *testing.T) {
	for _, c := range []struct {
		name, before, after string
		from, to            string // hosts move from it, or to it
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

// TestMost bounds how many I/O units a host takes; all hosts together use all.
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
