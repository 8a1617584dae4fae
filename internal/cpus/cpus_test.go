package cpus_test

import (
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/cpus"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		text, want string
		n          int
	}{
		{"", "", 0}, {"0", "0", 1}, {"3,1", "1,3", 2}, {"0-3,8", "0-3,8", 5}, {"4,2-4,3", "2-4", 3}, {"7,8", "7-8", 2},
		{"1023", "1023", 1},
	} {
		l, err := cpus.Parse(c.text)
		if err != nil || l.String() != c.want || len(l) != c.n {
			t.Errorf("%q: %v, %v", c.text, l, err)
		}
	}
	for _, text := range []string{",", "1,", "-1", "1-", "3-1", "a", "+1", "0x1", "1024", "0-99999999999999999999", " 1",
		"1--2"} {
		if l, err := cpus.Parse(text); err == nil {
			t.Errorf("%q: %v", text, l)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0-3,8", "1", "", "5,5-5", "-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := cpus.Parse(text)
		if err != nil {
			return
		}
		if !slices.IsSorted(l) || len(slices.Compact(slices.Clone(l))) != len(l) {
			t.Fatalf("%q: %d is no set", text, []int(l))
		}
		again, err := cpus.Parse(l.String())
		if err != nil || !slices.Equal(again, l) {
			t.Fatalf("%q: %v, %v", text, again, err)
		}
		set := l.Set()
		if got := cpus.Of(&set); !slices.Equal(got, l) {
			t.Fatalf("%q: %v as a mask is %v", text, l, got)
		}
	})
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		list string
		n    int
		want string
	}{
		{"0-3", 2, "0-1 2-3"}, {"0-3,8", 2, "0-1 2-3,8"}, {"0-3,8", 3, "0 1-2 3,8"}, {"1,5", 3, "1 5 1"}, {"7", 1, "7"},
	} {
		l, err := cpus.Parse(c.list)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range l.Spread(c.n) {
			got = append(got, s.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s for %d: %q, want %q", c.list, c.n, got, c.want)
		}
	}
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal(struct{ L cpus.List }{cpus.List{0, 1, 2, 9}})
	if err != nil || string(text) != `{"L":"0-2,9"}` {
		t.Errorf("%s, %v", text, err)
	}
	var back struct{ L cpus.List }
	if err := json.Unmarshal(text, &back); err != nil || !slices.Equal(back.L, cpus.List{0, 1, 2, 9}) {
		t.Errorf("%v, %v", back.L, err)
	}
	if err := json.Unmarshal([]byte(`{"L":"x"}`), &back); err == nil {
		t.Error("x was taken for processors")
	}
}

// TestMachine compares the processors of this machine with those that the Go runtime counts.
func TestMachine(t *testing.T) {
	allowed := cpus.Allowed()
	if len(allowed) != runtime.NumCPU() {
		t.Errorf("processors %v, the runtime counts %d", allowed, runtime.NumCPU())
	}
	if online := cpus.Online(); online != nil && len(allowed.Without(online)) > 0 {
		t.Errorf("processors %v, online %v", allowed, online)
	}
	if l := (cpus.List{1, 2, 3}).Without(cpus.List{2}); !slices.Equal(l, cpus.List{1, 3}) {
		t.Error(l)
	}
}
