package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// prometheus is a running Prometheus that scrapes every second.
type prometheus struct{ url string }

// startPrometheus starts a Prometheus at addr with the project's alerts. jobs has the address that
// each job scrapes.
func startPrometheus(t testing.TB, addr string, jobs map[string]string) *prometheus {
	t.Helper()
	program, dir := testenv.Program(t, "usr/bin/prometheus"), t.TempDir()
	alerts, err := filepath.Abs("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [" + alerts + "]\nscrape_configs:\n"
	for job, at := range jobs {
		config += fmt.Sprintf("  - {job_name: %s, static_configs: [{targets: [%q]}]}\n", job, at)
	}
	out, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(program, "--config.file="+write(t, dir, "prometheus.yml", config),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait() // the exit status does not matter
		if t.Failed() {
			text, _ := os.ReadFile(out.Name()) // the log has what could be read
			t.Logf("Prometheus:\n%s", text)
		}
	})
	return &prometheus{"http://" + addr}
}

// ask sends a request to the API of Prometheus and decodes the answer's data into data.
func (p *prometheus) ask(path string, values url.Values, data any) error {
	resp, err := http.Get(p.url + "/api/v1/" + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return nil
}

// series returns the number of series in the result of a query.
func (p *prometheus) series(query string) (int, error) {
	var data struct{ Result []any }
	err := p.ask("query", url.Values{"query": {query}}, &data)
	return len(data.Result), err
}

// panel is a part of a dashboard.
type panel struct {
	Type, Title string
	Targets     []struct{ Expr string }
}

// queries returns the queries of the dashboard, by the title of the panel and a number. Variables
// are replaced as Grafana does for all instances.
func queries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/splitnic.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q asks nothing", p.Title)
		}
		for i, target := range p.Targets {
			expr := strings.NewReplacer("$instance", ".+", "$card", ".*", "$__rate_interval", "30s").Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("the panel %q asks %q, of which something is not replaced", p.Title, expr)
			}
			all[fmt.Sprintf("%s %d", p.Title, i)] = expr
		}
	}
	return all
}

// metricName matches the names of metrics in an expression.
var metricName = regexp.MustCompile(`\b(?:splitnic|process|go)_[a-z_]+`)

// TestRDMAMonitoring runs a real Prometheus that scrapes a host and its I/O unit. Each query of the
// dashboard has to return data, the expressions of the alerts may only use metrics that exist, and
// no alert may be active.
func TestRDMAMonitoring(t *testing.T) {
	testenv.Program(t, "usr/bin/prometheus")
	const unit, host = "127.0.0.1:9595", "127.0.0.1:9596"
	r := newFixture(t, "macvtap", "--metrics", unit, "--max-memory", "2G")
	h := r.host(t, "--metrics", host)
	p := startPrometheus(t, "127.0.0.1:9597", map[string]string{"splitnic-iounits": unit, "splitnic-hosts": host})
	eventually(t, func() bool {
		ping(t, h.ns, addr(0), 1, 100)
		n, err := p.series("rate(splitnic_frames_total[30s])")
		return err == nil && n > 0
	}, "rates of frames")
	for title, query := range queries(t) {
		var n int
		var err error
		eventually(t, func() bool {
			n, err = p.series(query)
			return err != nil && strings.HasPrefix(err.Error(), "error") || n > 0
		}, "%q, %s, to have data", title, query)
		if err != nil {
			t.Errorf("%q, %s: %v", title, query, err)
		}
	}
	var names []string
	if err := p.ask("label/__name__/values", nil, &names); err != nil {
		t.Fatal(err)
	}
	// The first exists only for endpoints with a certificate, the others only for those that use DNS.
	names = append(names, "splitnic_certificate_expiry_seconds", "splitnic_dns_answered_timestamp_seconds",
		"splitnic_dns_failures_total")
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Query, Health, State, LastError string }
		}
	}
	var wrong []string
	defer func() {
		if t.Failed() {
			t.Logf("the rules are %q", wrong)
		}
	}()
	// A late scrape makes its alert pending for a moment.
	eventually(t, func() bool {
		if err := p.ask("rules", nil, &rules); err != nil {
			t.Fatal(err)
		}
		wrong = nil
		for _, g := range rules.Groups {
			for _, rule := range g.Rules {
				if rule.Health != "ok" || rule.State != "inactive" {
					wrong = append(wrong, fmt.Sprintf("%s is %s, %s: %s", rule.Name, rule.Health, rule.State, rule.LastError))
				}
			}
		}
		return len(rules.Groups) > 0 && len(wrong) == 0
	}, "rules that are evaluated, and no alert")
	for _, g := range rules.Groups {
		for _, rule := range g.Rules {
			for _, name := range metricName.FindAllString(rule.Query, -1) {
				if !slices.Contains(names, name) {
					t.Errorf("%s asks for %s, which nobody has", rule.Name, name)
				}
			}
		}
	}
}
