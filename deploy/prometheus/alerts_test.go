// Package prometheus has the alerts for Prometheus. The tests run `promtool test rules`, and
// check what that cannot check.
package prometheus

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/splitnic/splitnic/internal/testenv"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAlertRules runs alerts_test.yaml.
func TestAlertRules(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), testenv.Program(t, "usr/bin/promtool"), "test", "rules",
		"alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// ofCards matches the metrics in an expression that processes have for each of their cards.
var ofCards = regexp.MustCompile(
	`splitnic_(?:connected|carrier|(?:bytes|waits|dropped_frames|failed_attempts|failovers|direct_frames)_total|pool_elements)\b`)

// panel is a part of the dashboard.
type panel struct {
	Type, Title string
	FieldConfig struct {
		Defaults struct {
			Thresholds struct{ Steps []struct{ Color string } }
		}
	}
	Targets []struct{ Expr, LegendFormat string }
}

// panels returns the parts of the dashboard.
func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, "../grafana/splitnic.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

// TestDashboardTellsCardsApart expects each query about cards to select them by the variable, and
// not to add up several of them in one line of a graph.
func TestDashboardTellsCardsApart(t *testing.T) {
	n := 0
	for _, p := range panels(t) {
		for _, q := range p.Targets {
			if !ofCards.MatchString(q.Expr) {
				continue
			}
			n++
			if !strings.Contains(q.Expr, `card=~"$card"`) {
				t.Errorf("%s: %s does not ask for $card", p.Title, q.Expr)
			}
			if p.Type != "stat" && (!strings.Contains(q.LegendFormat, "{{card}}") ||
				strings.Contains(q.Expr, "sum") && !strings.Contains(q.Expr, "by (instance, card")) {
				t.Errorf("%s: %s, %q does not tell cards apart", p.Title, q.Expr, q.LegendFormat)
			}
		}
	}
	if n == 0 {
		t.Error("no query is about cards")
	}
}

// by matches the labels that a sum keeps.
var by = regexp.MustCompile(`by \(([^)]*)\)`)

// TestDashboardNamesLines expects the legend of each graph to have all labels by which its lines
// differ, and each number to have colours of its own: with Grafana's, 80 and more is red.
func TestDashboardNamesLines(t *testing.T) {
	for _, p := range panels(t) {
		if p.Type == "stat" && len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 {
			t.Errorf("%s has no colours", p.Title)
		}
		for _, q := range p.Targets {
			labels := "instance"
			if found := by.FindStringSubmatch(q.Expr); found != nil {
				labels = found[1]
			}
			for label := range strings.SplitSeq(labels, ", ") {
				if p.Type == "timeseries" && !strings.Contains(q.LegendFormat, "{{"+label+"}}") {
					t.Errorf("%s: the legend %q has no %s", p.Title, q.LegendFormat, label)
				}
			}
		}
	}
}

// heading matches a Markdown heading.
var heading = regexp.MustCompile(`(?m)^#+ (.*)$`)

// TestAlertsSayWhatToDo expects each alert to have a test and a description, and to refer to an
// existing section of docs/troubleshooting.md.
func TestAlertsSayWhatToDo(t *testing.T) {
	const page = "https://github.com/splitnic/splitnic/blob/main/docs/troubleshooting.md#"
	anchors := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(read(t, "../../docs/troubleshooting.md"), -1) {
		word := strings.NewReplacer(" ", "-", "/", "", "`", "", "'", "").Replace(strings.ToLower(h[1]))
		anchors[word] = true
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	tests := read(t, "alerts_test.yaml")
	n := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			n++
			if !strings.Contains(tests, `alertname="`+r.Alert+`"`) {
				t.Errorf("no test has %s fire", r.Alert)
			}
			if s := r.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("%s has the severity %q", r.Alert, s)
			}
			if len(r.Annotations["summary"]) == 0 || len(r.Annotations["description"]) < 40 {
				t.Errorf("%s does not say what to do: %q", r.Alert, r.Annotations)
			}
			if anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], page); !ok || !anchors[anchor] {
				t.Errorf("%s is explained at %q, which is not there", r.Alert, r.Annotations["runbook_url"])
			}
		}
	}
	if n == 0 {
		t.Error("there are no alerts")
	}
}
