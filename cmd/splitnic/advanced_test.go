package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testenv"
)

// roles has the commands with settings.
func roles() []*cobra.Command {
	root := rootCommand()
	var all []*cobra.Command
	for _, name := range []string{"host", "iounit", "agent"} {
		c, _, _ := root.Find([]string{name})
		all = append(all, c)
	}
	return all
}

// TestFewFlags expects no more flags in the help of a command than one can read.
func TestFewFlags(t *testing.T) {
	most := map[string]int{"host": 40, "iounit": 32, "agent": 40}
	for _, c := range roles() {
		var out strings.Builder
		c.SetOut(&out)
		c.InitDefaultHelpFlag()
		if err := c.Help(); err != nil {
			t.Error(err)
		}
		n := 0
		for line := range strings.Lines(out.String()) {
			if before, _, found := strings.Cut(line, "--"); found && strings.Trim(before, " -,h") == "" {
				n++
			}
		}
		if n > most[c.Name()] || n < 20 {
			t.Errorf("%s has %d flags, may have %d:\n%s", c.Name(), n, most[c.Name()], &out)
		}
	}
}

// TestMovedFlags gives each advanced setting on the command line, and as a key of the whole file. It
// expects errors that name its key, also without a value, and with an invalid one.
func TestMovedFlags(t *testing.T) {
	for _, c := range roles() {
		n := 0
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !isAdvanced(f) {
				return
			}
			n++
			want := f.Name + ": is now the key advanced." + f.Name + " of the configuration file; see splitnic-" + c.Name() +
				"(8)"
			lines := []string{c.Name() + " --" + f.Name + "=?", c.Name() + " --" + f.Name}
			if value := f.Value.String(); value != "" {
				lines = append(lines, c.Name()+" --"+f.Name+"="+strings.Trim(value, "[]"))
			}
			for _, line := range lines {
				if text := refused(t, line, "--"+want); n == 1 {
					testenv.Ended(t, exit.Usage, text)
				}
			}
			got, err := checked(t, c.Name(), map[string]string{"x.yaml": "\n" + f.Name + ": 1\n"})
			if err == nil || !strings.Contains(got, "x.yaml:2: "+want+"\n") {
				t.Errorf("%s: %v\n%s", f.Name, err, got)
			}
		})
		if n < 20 {
			t.Errorf("%s has %d advanced settings", c.Name(), n)
		}
	}
}

func TestAdvancedKeys(t *testing.T) {
	h, err := configured(t, "iounit: a\nadvanced:\n  qp-retries: 2\n  latency-dscp: [ef, cs6]\n  plain: yes\n",
		"--latency-queue")
	if m := &h.Messaging; err != nil || m.Timing.RetryCount != 2 || h.Latency == nil || !h.Plain ||
		h.Latency.DSCP != 1<<46|1<<48 || m.PoolIdle != 10*time.Second {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := configured(t, "iounit: a\nadvanced:\n"); err != nil {
		t.Errorf("no advanced settings: %v", err)
	}
	_, err = configured(t, "iounit: a\nspin: 20us\n")
	if err == nil {
		t.Fatal("an advanced setting is a key of the whole file")
	}
	testenv.Ended(t, exit.Status(err), err.Error())
	for text, want := range map[string]string{
		"iounit: a\nadvanced: {\n":                      "x.yaml:2: not YAML",
		"iounit: a\nadvanced: 3\n":                      "x.yaml:2: advanced: must be a map, lines of the form `key: value`",
		"iounit: a\nadvanced: [spin]\n":                 "x.yaml:2: advanced: must be a map",
		"iounit: a\nadvanced:\n  spin:\n":               "x.yaml:3: advanced.spin: must be a word or",
		"iounit: a\nadvanced:\n  spin: soon\n":          "x.yaml:3: advanced.spin: ",
		"iounit: a\nadvanced:\n  qp-retries: 300\n":     `x.yaml:3: advanced.qp-retries: "300" must be a whole number`,
		"iounit: a\nadvanced:\n  qp-retries: 7\n":       "advanced.qp-retries 7: must be 1 to 6",
		"iounit: a\nadvanced:\n  qp-retrie: 7\n":        `unknown key "advanced.qp-retrie" (did you mean qp-retries?); `,
		"iounit: a\nadvanced:\n  colour: red\n":         `unknown key "advanced.colour"; x(8) has the keys below advanced`,
		"iounit: a\nadvanced:\n  queues: 2\n":           `unknown key "advanced.queues" (did you mean queues?); it is not below`,
		"iounit: a\nadvanced:\n  advanced: {spin: 1}\n": `unknown key "advanced.advanced"`,
		"advanced.spin: 20us\n":                         `unknown key "advanced.spin"`,
		"queue: 3\n":                                    "(did you mean queues?); keys are the flags",
	} {
		if _, err := configured(t, text); exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
