package native

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/splitnic/splitnic/scripts/measure/results"
)

var (
	ours       = subject{what: splitnic, port: "macvtap"}
	theirs     = subject{what: relay, port: "macvtap"}
	noOffloads = subject{what: splitnic, port: "macvtap", plain: true}
	sealed     = subject{what: splitnic, port: "macvtap", encrypted: true}
)

func TestReferences(t *testing.T) {
	for _, c := range []struct{ group, subject, metric, want string }{
		{"tcp.tx", ours.String(), throughput, "relay/macvtap"}, {"tcp.tx", noOffloads.String(), cpuMachine, "relay/macvtap"},
		{"rtt", "splitnic/tap", median99, "relay/tap"}, {"tcp.tx", ours.String(), frameSize, ""},
		{"tcp.tx", theirs.String(), throughput, ""}, {"tcp.tx", veth, throughput, ""},
		{vhostOut, portSubject, rate, tapSubject}, {vhostCard, portSubject, rate, veth}, {vhostIn, tapSubject, rate, ""},
	} {
		r := results.Row{Key: results.Key{Group: c.group, Subject: c.subject, Size: 1500, Queues: 1, Metric: c.metric}}
		var got string
		for _, k := range references(&r) {
			got += k.Subject
			if k.Subject = r.Subject; k != r.Key {
				t.Errorf("%s of %s is compared to %+v", c.metric, c.subject, k)
			}
		}
		if got != c.want {
			t.Errorf("%s of %s is compared to %q, want %q", c.metric, c.subject, got, c.want)
		}
	}
}

// TestGoals has figures that just meet each goal, and figures that just miss it.
func TestGoals(t *testing.T) {
	for share, met := range map[float64]bool{1: true, 0.99: false} {
		var samples bytes.Buffer
		rec := results.NewRecorder(&samples)
		add := func(name string, s subject, metric string, v float64) {
			rec.Of(name, s.String(), 1500).Add(metric, "", v)
		}
		add("tcp.tx", theirs, throughput, 100)
		add("tcp.tx", ours, throughput, 80*share)
		add("tcp.tx", noOffloads, throughput, 16)
		add("tcp.tx", sealed, throughput, 48*share*share)
		add("udp.rx", sealed, rate, 42*share*share)
		add("tcp.tx", sealed, cpuEndpoint, 1/share)
		add("tcp.tx", subject{what: wireguardGo}, cpuEndpoint, 3.01)
		add("tcp.tx", sealed, cpuMachine, 2/share)
		add("tcp.tx", subject{what: wireguard}, cpuMachine, 6.02)
		add("tcp.tx", ours, callMetric, 1/share)
		add("tcp.tx", theirs, noCopy, 1)
		add("tcp.tx", ours, noCopy, 0.9/share)
		add("udp.rx", theirs, rate, 100)
		add("udp.rx", ours, rate, 60*share)
		add("udp.rx.64flows", ours, rate, 54*share*share)
		add("udp.rx", ours, callMetric, 0.5/share)
		add("rtt", theirs, median50, 100)
		add("rtt", ours, median50, 120/share)
		add("ping", theirs, average, 100)
		add("ping", ours, average, 110/share)
		add("overload.tx.full", ours, "arrived at 5", 0.8*share)
		add(idle, ours, idleMetric, 0.499/share)
		for subject, v := range map[string]float64{portSubject: 1000 * share, tapSubject: 100} {
			rec.Of(vhostOut, subject, vhostFrame).Add(rate, "", v)
			rec.Of(vhostIn, subject, vhostFrame).Add(rate, "", 2*v)
		}
		rec.Of(vhostCard, portSubject, vhostFrame).Add(rate, "", 3000*share)
		f, err := Suite().Read(&samples)
		if err != nil {
			t.Fatal(err)
		}
		want, got := map[string]bool{}, map[string]bool{}
		for _, a := range Suite().Aims {
			want[a.What] = met
		}
		// It is compared with TAP, which is 200 here.
		want["frames into a vhost-user port, to a TAP device"] = false
		for _, g := range f.Goals {
			got[g.What] = g.Met
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v of it: %s", share, d)
		}
	}
}

// TestSubjects parses the name of each subject. It expects all measurements of a subject that
// is measured in full, and at least two of any other.
func TestSubjects(t *testing.T) {
	all := measurements()
	for _, s := range subjects() {
		if got, ok := parseSubject(s.String()); !ok || got != s {
			t.Errorf("%s is read as %v, %t", s, got, ok)
		}
		if want := map[bool]float64{true: 2, false: 1}[s.what == splitnic || s.what == wireguardGo]; s.shares() != want {
			t.Errorf("%s: %v endpoints", s, s.shares())
		}
		if want := map[bool]float64{true: 1}[s.what == splitnic]; s.copies() != want {
			t.Errorf("%s: %v copies in memory", s, s.copies())
		}
		n := 0
		for i := range all {
			if all[i].of(s) {
				n++
			}
		}
		if want := map[bool]int{true: len(all)}[s.full()]; n < 2 || want != 0 && n != want {
			t.Errorf("%d measurements of %s", n, s)
		}
	}
	if _, ok := parseSubject("relay"); ok {
		t.Error("a relay to nowhere")
	}
}
