package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

// configured returns the configuration that `splitnic host` reads from a command line and a
// file with this text.
func configured(t *testing.T, text string, args ...string) (daemon.Host, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var f hostFlags
	c := &cobra.Command{Use: "x"}
	f.add(c.Flags())
	if err := c.ParseFlags(append(args, "--config", path)); err != nil {
		t.Fatal(err)
	}
	return configure(c, &f.set.Common, addHostSources, f.config)
}

func TestReadConfig(t *testing.T) {
	h, err := configured(t,
		"queues: 3\nadvanced:\n  spin: 20us\niounit: [a, b]\nmetrics: \":1\"\nstandby: yes\nlatency-queue: off\nname: file\n", "--name",
		"line")
	if err != nil || h.Queues != 3 || len(h.IOUnits) != 2 || h.Metrics != ":1" || !h.Standby || h.Latency != nil ||
		h.Netdevice != "line" {
		t.Errorf("%+v, %v", h, err)
	}
	h, err = configured(t, "iounit: a\nadvanced:\n  ciphers: [chacha20-poly1305, aes-128-gcm]\n")
	if err != nil || len(h.Ciphers) != 2 {
		t.Errorf("ciphers %v, %v", h.Ciphers, err)
	}
	one, err := configured(t, "iounit: a\noffloads: [csum, tso4]\n")
	both, bothErr := configured(t, "iounit: a\noffloads: csum,tso4\n")
	if err = errors.Join(err, bothErr); err != nil || one.Offloads != both.Offloads {
		t.Errorf("offloads %v as a list, %v with a comma, %v", one.Offloads, both.Offloads, err)
	}
	for text, want := range map[string]string{
		"iounit: a\nmetrics:\n":                              "x.yaml:2: metrics: must be a word or a list of words",
		"iounit: [a, ~]\n":                                   "x.yaml:1: iounit: must be",
		"iounit: [[a]]\n":                                    "x.yaml:1: iounit: must be",
		"iounit: {a: 1}\n":                                   "x.yaml:1: iounit: must be",
		"iounit: a\nqueues: many\n":                          "x.yaml:2: queues: ",
		"iounit: a\n\nstandby: perhaps\n":                    "x.yaml:3: standby: ",
		"config: other\n":                                    `x.yaml:1: unknown key "config"`,
		"iounit: a\nunit-address: b\n":                       `x.yaml:2: unknown key "unit-address"`,
		"- a\n":                                              "x.yaml:1: must be a map",
		"iounit: a\nname: \"b\n":                             "x.yaml:2: not YAML",
		"iounit: a\n---\nname: b\n":                          "x.yaml:2: more than one YAML document",
		"queues: many\nmax-mtu: plenty\n":                    "x.yaml:2: max-mtu: ", // both mistakes are reported
		"iounit: a\nname: [b, c]\n":                          "x.yaml:2: name: must be one value, not the list b, c",
		"iounit: a\nstandby: [on, off]\n":                    "x.yaml:2: standby: must be one value, not the list on, off",
		"iounit: a\nadvanced: {ciphers: [aes-128-gcm, x]}\n": "x.yaml:2: advanced.ciphers: ",
		"iounit: a\niounit: b\n":                             "x.yaml:2: not YAML",
		"":                                                   "--iounit is missing",
		"iounit: a\nmax-mtu: 20\n":                           "--max-mtu 20",
		"iounit: a\nkey: k\ninsecure: on\ntrust: [a]\n":      "--insecure does without",
	} {
		if _, err := configured(t, text); exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		} else if strings.Count(err.Error(), "x.yaml:2: metrics:") > 1 {
			t.Errorf("%q: two errors about one line: %v", text, err)
		}
	}
}

// TestReread reads the configuration again, as a reload does. It expects the new keys, and the
// names of the settings that have changed but need a restart.
func TestReread(t *testing.T) {
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := configured(t, "iounit: a\nkey: k\ntrust-file: t\nadvanced: {qp-retries: 5}\n", "--trust",
		"a=sha256:"+strings.Repeat("A", 43), "--insecure=no", "--peer-timeout", "5s")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want daemon.Keys
		late string
	}{
		{"iounit: a\nlog-level: debug\nkey: k2\nadvanced:\n  qp-retries: 5\ntrust: [x]\n", daemon.Keys{Key: "k2", Trust: h.Keys.Trust}, ""},
		{"iounit: a\nca: c\niounit-name: [gw1, gw2]\nadvanced: {qp-retries: 2, max-pools: 5}\n",
			daemon.Keys{Key: defaultKey, CA: "c", IOUnitNames: []string{"gw1", "gw2"}, Trust: h.Keys.Trust},
			"advanced.max-pools advanced.qp-retries"},
		{"iounit: b\ninsecure: yes\npeer-timeout: 7s\n",
			daemon.Keys{Key: defaultKey, Trust: h.Keys.Trust}, "advanced.qp-retries iounit"},
	} {
		write(h.ConfigFile, c.text)
		s, late, err := h.Reread()
		if err != nil || !reflect.DeepEqual(s.Keys, c.want) || !slices.Equal(late, strings.Fields(c.late)) {
			t.Errorf("%q: %+v, late %q, %v", c.text, s, late, err)
		}
		if debug := strings.Contains(c.text, "debug"); (s.LogLevel == slog.LevelDebug) != debug {
			t.Errorf("%q: the level of the log is %v", c.text, s.LogLevel)
		}
	}
	for _, text := range []string{"key: [\n", "keys: a\n", "policy: p\n", "ca:\n"} {
		write(h.ConfigFile, text)
		if _, _, err := h.Reread(); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
