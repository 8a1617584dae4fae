package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const examplesDir = "../../examples/config/"

// roleExample is what the example of a role's configuration has beside the keys of the program.
type roleExample struct {
	intro string
	used  map[string]string // values of keys that have no # in front
}

var roleExamples = map[string]roleExample{
	"host": {
		"Configuration of a host: `splitnic host --config FILE`. The service splitnic-host@NAME reads\n" +
			"/etc/splitnic/NAME.yaml.",
		map[string]string{"iounit": "[10.0.0.1]", "trust-file": "/etc/splitnic/iounits"},
	},
	"iounit": {
		"Configuration of an I/O unit: `splitnic iounit --config FILE`. The service splitnic-iounit reads\n" +
			"/etc/splitnic/iounit.yaml.",
		map[string]string{"lan": "eth1", "trust-file": "/etc/splitnic/hosts", "policy": "/etc/splitnic/policy.yaml"},
	},
	"agent": {
		"Configuration of an agent: `splitnic agent --config FILE`. The service splitnic-agent reads\n" +
			"/etc/splitnic/agent.yaml. Except for the directory, metrics and the like, these are defaults of its\n" +
			"cards: `splitnic card add` can say otherwise for one.",
		map[string]string{"iounit": "[10.0.0.1]", "trust-file": "/etc/splitnic/iounits"},
	},
}

// exampleValues has examples for keys that have no default.
var exampleValues = map[string]string{
	"ca": "/etc/splitnic/ca.pem", "cert": "/etc/splitnic/cert.pem", "ciphers": "[aes-256-gcm]",
	"cq-moderation": "16,50us", "device": "mlx5_0",
	"fail-back": "30s", "gid-index": "3", "handler-cpus": "0-3", "handler-priority": "latency", "handlers": "2",
	"host-name": "alpha", "iounit-name": "[gw1.example]", "keep-alive": "500ms", "latency-service-level": "4",
	"latency-size": "128", "latency-traffic-class": "0xb8", "mac": "02:00:00:00:00:01", "max-memory": "2Gi",
	"max-pools": "8", "metrics": `":9580"`, "metrics-config": "/etc/splitnic/metrics.yml", "name": "gw1", "netns": "blue",
	"pkey": "0x8001", "protection": "one-touch", "qp-timeout": "16", "queues": "4", "revoked": "/etc/splitnic/revoked",
	"service-level": "3", "spin": "20us", "status-socket": "/run/splitnic/mine.sock", "traffic-class": "0x68",
	"trust":           "[peer=sha256:Gy3BTsNqyzANCAkECQMQ-kEvLLeqRzk8d8SfEeIy-Vc]",
	"vhost-zero-copy": "8Gi",
}

// remark writes text as lines of comments.
func remark(b *strings.Builder, prefix, text string) {
	for line := range strings.Lines(wrap(text, 98-len(prefix))) {
		fmt.Fprintf(b, "%s# %s\n", prefix, strings.TrimSpace(line))
	}
}

// writeExample writes the lines of a setting: what it means, and its value.
func writeExample(b *strings.Builder, prefix string, r settingRow, used map[string]string) {
	meaning := r.usage
	value := strings.Trim(r.def, "`")
	switch {
	case value != "" && strings.HasPrefix(r.def, "`"), r.value == "yes or no":
		if strings.Contains(value, ",") {
			value = "[" + strings.ReplaceAll(value, ",", ", ") + "]"
		}
		if strings.HasPrefix(value, ":") {
			value = `"` + value + `"`
		}
	case r.def != "":
		meaning += " (default: " + r.def + ")"
	}
	if example, ok := exampleValues[r.name]; ok && !strings.HasPrefix(r.def, "`") {
		value = example
	} else if value == "" && r.def == "" {
		value = "0"
	}
	fmt.Fprintln(b)
	remark(b, prefix, meaning)
	if now, ok := used[r.name]; ok {
		fmt.Fprintf(b, "%s%s: %s\n", prefix, r.name, now)
		return
	}
	fmt.Fprintf(b, "#%s%s: %s\n", prefix, r.name, value)
}

// exampleOf returns the example of a role's configuration, which has every key of the program.
func exampleOf(c *cobra.Command) string {
	var b strings.Builder
	e := roleExamples[c.Name()]
	wrapped := strings.ReplaceAll(e.intro, "\n", "\n# ")
	fmt.Fprintf(&b, "# %s\n#\n# All keys are here. Those without # in front are what a first one needs. The others "+
		"have their\n# default, or an example where their text says another default or none is possible. `splitnic\n"+
		"# check %s FILE` checks a file. This one is made from the program:\n"+
		"# go test ./cmd/splitnic -run TestExamples -update\n", wrapped, c.Name())
	write := func(prefix string, belong func(*pflag.Flag) bool) {
		for _, s := range sectionsOf(c, belong) {
			if s.title != "Flags" {
				fmt.Fprintf(&b, "\n%s## %s\n", prefix, s.title)
			}
			s.flags.VisitAll(func(f *pflag.Flag) {
				if f.Name != "help" && f.Name != "config" {
					writeExample(&b, prefix, newRow(c.Name(), f, false), e.used)
				}
			})
		}
	}
	write("", func(f *pflag.Flag) bool { return !f.Hidden })
	fmt.Fprint(&b, "\n# The defaults of these suit nearly everybody; who changes one has measured. Remove the # of\n"+
		"# `advanced` too.\n#advanced:\n")
	write("  ", isAdvanced)
	return b.String()
}

// exampleFiles returns a directory with the files that the examples name, and a function that
// changes a text so that it names them.
func exampleFiles(t *testing.T) (dir string, there func(string) string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"hosts", "iounits", "policy.yaml"} {
		text, err := os.ReadFile(examplesDir + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := execute(t, "keygen", "--out", filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	return dir, func(text string) string {
		return strings.ReplaceAll(text, "/etc/splitnic/", dir+"/") + "key: " + dir + "/key.pem\n"
	}
}

// commentedKey matches the line of a key with # in front.
var commentedKey = regexp.MustCompile(`(?m)^#(|  )([a-z][a-z-]*): .+$`)

// withOthers has keys that another key or file has to go with, and what the check says otherwise.
var withOthers = map[string]string{
	"insecure":        "--insecure does without keys",
	"iounit-name":     "--iounit-name needs certificates",
	"standby":         "there is one I/O unit only",
	"fail-back":       "there is one I/O unit only",
	"vhost-zero-copy": "needs --port vhost-user:PATH",
	"metrics-config":  "there are no metrics",
	"ca":              "no such file or directory",
	"cert":            "no such file or directory",
	"revoked":         "no such file or directory",
}

// TestExamples expects the examples of configurations to have all keys of the program, and
// `splitnic check` to accept them: as they are, and with each of the keys that have # in front.
func TestExamples(t *testing.T) {
	for _, c := range roles() {
		name := examplesDir + c.Name() + ".yaml"
		want := exampleOf(c)
		if *update {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not that of the program: go test ./cmd/splitnic -run TestExamples -update, and look at the "+
				"difference", name)
		}
		dir, there := exampleFiles(t)
		check := func(text string) string {
			file := filepath.Join(dir, c.Name()+".yaml")
			if err := os.WriteFile(file, []byte(there(text)), 0o600); err != nil {
				t.Fatal(err)
			}
			said, _ := executed(t, "check", c.Name(), file) // the error repeats what is printed
			return strings.ReplaceAll(said, file, c.Name()+".yaml")
		}
		if said := check(want); said != c.Name()+".yaml: ok\n" {
			t.Errorf("check: %s", said)
		}
		for _, m := range commentedKey.FindAllStringSubmatch(want, -1) {
			key := m[2]
			if key == "key" {
				continue // it is set above
			}
			line := strings.TrimPrefix(m[0], "#")
			if m[1] != "" {
				line = "advanced:\n" + line
			}
			said := check(want + line + "\n")
			if said != c.Name()+".yaml: ok\n" && (withOthers[key] == "" || !strings.Contains(said, withOthers[key])) {
				t.Errorf("%s with %q: %s", c.Name(), line, said)
			}
		}
	}
}
