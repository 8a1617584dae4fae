package daemon

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestHostSeries has a key with a new name at each request for metrics. The names in the metrics
// must be few, those of another key must stay, and no two hosts may have the same labels, which would
// fail all metrics.
func TestHostSeries(t *testing.T) {
	key := func(n byte) string { return session.Fingerprint{n}.String() }
	honest := iounit.HostStatus{Name: "honest", Fingerprint: key(1)}
	named := func(name string) iounit.HostStatus { return iounit.HostStatus{Name: name, Fingerprint: key(2)} }
	s, seen := newHostSeries(), map[string]bool{}
	now := time.Unix(1000, 0)
	const requests = 630 // half a minute after the last name that was free
	for i := range requests {
		hosts := []iounit.HostStatus{
			named("other-1"), honest, named(fmt.Sprint("x", i)), named(fmt.Sprint("y", i)),
			named(strings.Repeat("long", 20) + fmt.Sprint(i)),
		}
		once := map[peer]bool{}
		for n, p := range s.of(hosts, now) {
			if once[p] || p.key != hosts[n].Fingerprint || len(p.name) > seriesName {
				t.Fatalf("request %d: %+v for %s", i, p, hosts[n].Name)
			}
			if hosts[n].Name == "honest" && p.name != "honest" {
				t.Fatalf("the other key's host is %+v", p)
			}
			once[p], seen[p.name] = true, true
		}
		now = now.Add(time.Second)
	}
	if most := seriesBurst + requests/60 + 10; len(seen) > most || len(seen) < seriesBurst {
		t.Errorf("%d names, at most %d", len(seen), most)
	}
	if n := len(s.labels); n > seriesRemembered+5 {
		t.Errorf("%d labels are remembered", n)
	}
	// A host takes the name of the label that another one has, or that another one will have again.
	late := s.of([]iounit.HostStatus{named("late")}, now)[0]
	now = now.Add(time.Hour)
	twins := []iounit.HostStatus{named("late"), named(late.name), named("other-1")}
	if p := s.of(twins, now); p[0] != late || p[1] == late || p[2] == late || p[1] == p[2] {
		t.Errorf("%+v", p)
	}
	// A host that comes again has its name again.
	if p := s.of([]iounit.HostStatus{named("x0")}, now); p[0].name != "x0" {
		t.Errorf("%+v", p)
	}
}
