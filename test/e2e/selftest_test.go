package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// TestRDMASelfTest runs the self-test on Soft-RoCE. Every property has to hold except the bounds of
// windows and moderation. A missing device has to be reported.
func TestRDMASelfTest(t *testing.T) {
	bin := needFabric(t)
	out, err := exec.CommandContext(t.Context(), bin, "doctor", "--self-test", "--json", "--device", hostDevice).Output()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	var all []struct {
		Device, Driver, Verdict string
		Findings                []struct{ Property, Outcome, Means, Detail string }
	}
	if err := json.Unmarshal(out, &all); err != nil || len(all) != 1 || all[0].Device != hostDevice ||
		all[0].Driver != "rdma_rxe" {
		t.Fatalf("%v:\n%s", err, out)
	}
	outcomes := map[string]string{}
	for _, f := range all[0].Findings {
		outcomes[f.Property] = f.Outcome
		want := "holds"
		if f.Property == "window bounds" || f.Property == "moderation" {
			want = "lacks"
		}
		if f.Outcome != want {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	if v := all[0].Verdict; v != "splitnic works on "+hostDevice+" (rdma_rxe), without: moderation, window bounds" {
		t.Errorf("verdict %q", v)
	}
	for _, p := range []string{
		"loopback", "inline data", "empty writes", "data before messages", "flush", "reads", "memory keys",
		"window bounds", "other queue pair", "stale key", "invalidation by peer", "bind and send",
		"solicited events", "vectors",
	} {
		if outcomes[p] == "" {
			t.Errorf("nothing is said of %q:\n%s", p, out)
		}
	}
	table, err := exec.CommandContext(t.Context(), bin, "doctor", "--self-test", "--device", hostDevice).CombinedOutput()
	if err != nil || strings.Count(string(table), "\n"+hostDevice+" ") != len(outcomes) {
		t.Errorf("%v, want a line for each of %d properties:\n%s", err, len(outcomes), table)
	}
	mistake{"", []string{"doctor", "--self-test", "--device", "nodev0"}, exitMissing, []string{"failed"}}.fails(t, bin)
}
