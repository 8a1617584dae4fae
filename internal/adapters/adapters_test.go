package adapters

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestFacts reads the file, and some facts of each type.
func TestFacts(t *testing.T) {
	all, err := parse(facts)
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, f := range all {
		known = append(known, f.Name)
	}
	if want := []string{"mlx5", "mlx4", "bnxt_re", "irdma-e810", "irdma-gen3", "hns-hip08", "hns-hip09", "qedr", "mana",
		"erdma", "ionic", "vmw_pvrdma", "efa", "iwarp"}; !slices.Equal(known, want) {
		t.Errorf("families %q, want %q", known, want)
	}
	m, e := Named("mana"), Named("erdma")
	if m == nil || e == nil || Named("none") != nil {
		t.Fatalf("mana %v, erdma %v, none %v", m, e, Named("none"))
	}
	if a := m.ArmSolicited; a != -Answer(syscall.EOPNOTSUPP) || a.Errno() != syscall.EOPNOTSUPP || a.OK() {
		t.Errorf("mana arms with %d", a)
	}
	if m.QueryQP.OK() || !m.LateInline || m.InlineMax != NoLimit || m.FlushWakes || m.Driver != "mana" ||
		m.QPEvents != "fatal" {
		t.Errorf("mana: %+v", m)
	}
	if e.InlineMax != 96 || e.LateInline || !e.FlushWakes || e.PostInError != -Answer(syscall.EIO) || !e.QueryQP.OK() {
		t.Errorf("erdma: %+v", e)
	}
	if f := Named("irdma-gen3"); !f.ArmsAny || !f.ArmSolicited.OK() || f.Windows != "2B" || f.isRead("inline-max") ||
		!f.isRead("windows") {
		t.Errorf("irdma-gen3: %+v", f)
	}
}

// TestMistakesInFacts changes the file: each change has to be reported.
func TestMistakesInFacts(t *testing.T) {
	lines := strings.SplitAfter(facts, "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "mlx5 ") })
	for name, c := range map[string]struct{ line, message string }{
		"missing":     {"", "mlx5 lacks the fact driver"},
		"twice":       {lines[at] + lines[at], "has the fact driver already"},
		"no source":   {"mlx5 driver mlx5_core\n", "a source"},
		"unknown":     {"mlx5 color red here\n", "no such fact"},
		"no word":     {"mlx5 windows 3B here\n", "none of"},
		"no answer":   {"mlx5 uc never here\n", "no answer"},
		"negative ok": {"mlx5 uc -ok here\n", "no answer"},
		"no number":   {"mlx5 sge many here\n", "no number"},
		"zero":        {"mlx5 sge 0 here\n", "no number"},
	} {
		changed := slices.Clone(lines)
		changed[at] = c.line
		if _, err := parse(strings.Join(changed, "")); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTableInTheDocument compares the table of docs/adapters.md with the facts.
func TestTableInTheDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/adapters.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n\n"+table()+"\n") {
		t.Errorf("docs/adapters.md has another table of adapters than facts.txt, which gives:\n\n%s", table())
	}
}
