package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
)

// TestHelpNamesValues expects the name of each flag's value to be one word. pflag takes text in
// backquotes for that name, also if it is a command: --key `splitnic keygen`.
func TestHelpNamesValues(t *testing.T) {
	flags := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			flags++
			if value, _ := pflag.UnquoteUsage(f); strings.Contains(value, " ") {
				t.Errorf("%s --%s %s: the name of a value is one word", c.CommandPath(), f.Name, value)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand())
	if flags == 0 {
		t.Error("no flag was looked at")
	}
}

// TestHelpIsGrouped expects the help of each command to fit into 80 columns, and the flags to be
// in groups if a command has many.
func TestHelpIsGrouped(t *testing.T) {
	root := rootCommand()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		var out strings.Builder
		c.SetOut(&out)
		c.InitDefaultHelpFlag()
		if err := c.Help(); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(out.String()) {
			// Lines of examples and usage may be longer: users copy them.
			n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			if n > 80 && !strings.HasPrefix(line, "  splitnic") && !strings.Contains(line, "=… splitnic") {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		list := sections(c)
		for _, s := range list {
			if !strings.Contains(out.String(), "\n"+s.title+":\n") {
				t.Errorf("%s: no group %s in\n%s", c.CommandPath(), s.title, &out)
			}
		}
		n := 0
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			n++
			if !strings.Contains(out.String(), "--"+f.Name) {
				t.Errorf("%s: no --%s in\n%s", c.CommandPath(), f.Name, &out)
			}
		})
		if n > 10 && (len(list) < 5 || list[0].flags.HasAvailableFlags() &&
			strings.Count(list[0].flags.FlagUsages(), "\n") > 2) {
			t.Errorf("%s has %d flags in %d groups:\n%s", c.CommandPath(), n, len(list), &out)
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "",
		"one two three":     "one two\nthree",
		"one\ntwo\n\nthree": "one two\n\nthree",
		"unbreakable words": "unbreakable\nwords",
		"äöü äöü äöü":       "äöü äöü\näöü",
	} {
		if got := wrap(text, 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestManualPages writes the manual pages of all commands, which have the groups of the help.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	if err := execute(t, "man", dir, "../../docs/cni.md", "../../docs/policy.md", "../../docs/trust.md"); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"splitnic.8": {".SH NAME\nsplitnic \\- A virtual", `splitnic-host\fP(8)`, ".SH COMMANDS",
			"\\fBsplitnic iounit drain\\fP\n", ".SH EXIT STATUS", "\\fB8\\fP\nWhat wait", ".SH FILES",
			`\fI/etc/splitnic/NAME.yaml\fP`},
		"splitnic-policy.5": {`splitnic-policy \- what`, ".SH SETTINGS", "\\fBmax-macs\\fP\n", "(default: 256)"},
		"splitnic-trust.5":  {`splitnic-trust \- the files of`, ".SH FORMAT", "alpha=sha256:"},
		"splitnic-host.8": {".SS Netdevice", ".SS Observability", `\fB--max-mtu\fP`, "(default 9000)", "failover",
			".SH ADVANCED SETTINGS", `\fBqp-timeout:\fP`},
		"splitnic-host-handlers.8":   {"handlers"},
		"splitnic-cni.8":             {`splitnic-cni \- the CNI plugin`, ".SH CONFIGURATION", `\fBvlan\fR`, "versions 0.1"},
		"splitnic-bench-bw.8":        {".SS Performance", `\fB-D\fP, \fB--duration\fP`},
		"splitnic-iounit-handlers.8": {`\fBsplitnic-iounit\fP(8)`},
	} {
		source, err := os.ReadFile(filepath.Join(dir, page+".md"))
		if err != nil {
			t.Error(err)
		}
		text := md2man.Render(source)
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s: no %q in\n%s", page, w, text)
			}
		}
		if strings.Contains(string(text), "](") || strings.Contains(string(text), "The order of the steps") {
			t.Errorf("%s has a link or picture that leads nowhere:\n%s", page, text)
		}
	}
}

// execute runs a command line. Its standard output goes to the log of the test.
func execute(t *testing.T, args ...string) error {
	t.Helper()
	root := rootCommand()
	root.SetOut(t.Output())
	_, err := run(t.Context(), root, args)
	return err
}

func TestMistypedCommands(t *testing.T) {
	for line, want := range map[string]string{
		"hots":               `unknown command "hots" (did you mean host?); see ` + "`splitnic --help`",
		"stat":               "(did you mean stats or status?)",
		"bench bww":          "(did you mean bw?); see `splitnic bench --help`",
		"bench bandwidth":    `unknown command "bandwidth"; see`,
		"host failovr":       `unexpected argument "failovr" (did you mean failover?)`,
		"iounit eth1":        `unexpected argument "eth1" (did you mean --lan eth1?); see ` + "`splitnic iounit --help`",
		"host 10.0.0.1":      "(did you mean --iounit 10.0.0.1?)",
		"agent a.yaml":       "(did you mean --config a.yaml?)",
		"keygen key.pem":     "(did you mean --out key.pem?)",
		"doctor iounit":      "(did you mean --role iounit?)",
		"host --persist yes": "(did you mean --persist=yes?)",
		"genkey":             "`splitnic keygen` makes a key",
		"policy check x":     "`splitnic check iounit FILE`",
		"link show":          "`splitnic status` shows the cards",
		"version 1":          `unexpected argument "1"`,
		"reset a b":          `unexpected argument "b"`,
		"man":                "the directory is missing",
		"iounit handlers":    "HOST is missing",
		"doctor --peer gw":   `--peer "gw": not an IP address`,
		"status --json=odd":  `--json: "odd" must be yes or no; see`,
		"drain":              `unknown command "drain" (did you mean splitnic iounit drain?)`,
		"handlers":           "(did you mean splitnic host handlers or splitnic iounit handlers?)",
		"host undrain":       `unexpected argument "undrain" (did you mean splitnic iounit undrain?)`,
		"card rm x":          `unknown command "rm" (did you mean del?)`,
		"card show":          `unknown command "show" (did you mean list?)`,
		"card status":        "(did you mean splitnic status?)",
		"ps":                 "(did you mean status?)",
		"info":               "(did you mean status?)",
		"config":             "(did you mean check?)",
		"up":                 "(`splitnic host` makes a netdevice,",
		"start":              "systemctl start)",
		"down":               "systemctl stop splitnic-host@NAME)",
		"stop":               "systemctl stop splitnic-host@NAME",
		"logs":               "journalctl -u 'splitnic-*' shows",
		"bugreport":          "`splitnic doctor --report FILE`",
		"check check":        `unknown command "check"; see`,
		"iounit iounit":      `unexpected argument "iounit" (did you mean splitnic check iounit?)`,
		"xy":                 `unknown command "xy"; see`,
		"completion tcsh":    `unknown command "tcsh" (did you mean bash or`,
		"help stauts":        `unknown command "stauts" (did you mean stats or status?)`,
		"help host failovr":  "(did you mean failover?); see `splitnic host --help`",
		"hots --help":        `unknown command "hots" (did you mean host?); see ` + "`splitnic --help`",
		"card rm x -h":       `unknown command "rm" (did you mean del?)`,
	} {
		refused(t, line, want)
	}
	for _, line := range []string{
		"version", "help", "help iounit drain", "host --help", "iounit drain -h", "--help", "status sn0 -h",
	} {
		if err := execute(t, strings.Fields(line)...); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// refused runs a command line with a mistake, expects a usage error that contains want, and
// returns the text of the error.
func refused(t *testing.T, line, want string) string {
	t.Helper()
	err := execute(t, strings.Fields(line)...)
	if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), want) {
		t.Fatalf("%s: %v, want %q", line, err, want)
	}
	return err.Error()
}

// TestMistypedFlags has unknown flags, and values of the wrong type. It expects errors in the
// words of splitnic, not of Go's libraries.
func TestMistypedFlags(t *testing.T) {
	for line, want := range map[string]string{
		"status --jsn":                         "unknown flag: --jsn (did you mean --json?); see `splitnic status --help`",
		"host --queus 3":                       "unknown flag: --queus (did you mean --queues?); see",
		"host -iounit a":                       "unknown flag: -iounit (did you mean --iounit or --iounit-name?); see",
		"host --mtu 1500":                      "unknown flag: --mtu (did you mean --max-mtu?); see",
		"card add x --max-mtu 1500":            "unknown flag: --max-mtu (did you mean --mtu?); see",
		"host --speed 3":                       "unknown flag: --speed; see",
		"host --peer 10.0.0.1":                 "unknown flag: --peer (did you mean --iounit?); see",
		"host --interface sn0":                 "unknown flag: --interface (did you mean --name?); see",
		"iounit --interface eth1":              "unknown flag: --interface (did you mean --lan or --name?); see",
		"host --lan eth1":                      "unknown flag: --lan (a flag of `splitnic iounit`); see",
		"iounit --iounit a":                    "unknown flag: --iounit (a flag of `splitnic agent` and `splitnic host`); see",
		"status -o json":                       "unknown flag: -o (did you mean --json?); see",
		"status --follow":                      "unknown flag: --follow (did you mean --watch?); see",
		"top -n 1":                             "unknown flag: -n (did you mean --interval?); see",
		"wait --for carrier":                   "unknown flag: --for (did you mean --connected or --carrier?); see",
		"agent --debug":                        "unknown flag: --debug (did you mean --log-level?); see",
		"status -x":                            "unknown flag: -x; see",
		"host --queues many":                   `--queues: "many" must be a whole number, such as 1; see`,
		"host --queues 9999999999999999999999": `is out of range; see`,
		"host --traffic-class 300":             `--traffic-class: "300" must be a whole number from 0 to 255`,
		"bench bw --ib-port 0":                 `--ib-port: "0": must be 1 to 255; see`,
		"bench lat --gid-index -1":             `--gid-index: "-1": must be 0 to 255; see`,
		"bench bw --pkey 0xzz":                 `--pkey: "0xzz": must be 0x0001 to 0xffff, and not 0x8000; see`,
		"capture --frames -1":                  `--frames: "-1" must be a whole number, such as 1000`,
		"bench bw --size 64,x":                 `--size: "64,x" must be whole numbers with commas between them, such as 64,1500`,
		"wait --timeout 5":                     `--timeout: "5" must be a time with its unit, such as 5s or 200ms`,
		"wait --timeout soon":                  `--timeout: "soon" must be a time with its unit, such as 5s or 200ms`,
		`host --iounit a,"b`:                   `must be words with commas between them and without quotation marks`,
	} {
		testenv.Ended(t, exit.Usage, refused(t, line, want))
	}
}

// TestMistypedPolicyKey expects the key that was meant behind an error of the policy, which comes
// from a package that knows no suggestions.
func TestMistypedPolicyKey(t *testing.T) {
	_, err := policy.Parse("p.yaml", []byte("default: {vlan: 3}\n"))
	if text := explain(fmt.Errorf("--policy: %w", err)); !strings.HasSuffix(text, "(did you mean vlans?)") {
		t.Error(text)
	}
}

func TestLogsJSON(t *testing.T) {
	for _, c := range []struct {
		format, line string
		want         bool
	}{
		{"json", "", true}, {"text", "--mtu 5", false}, {"text", "--nosuch --log-format json", true},
		{"text", "--nosuch --log-format=json", true}, {"text", "--nosuch --log-format", false},
		{"text", "--nosuch --log-format text json", false},
	} {
		if got := logsJSON(c.format, strings.Fields(c.line)); got != c.want {
			t.Errorf("%s %q: %t", c.format, c.line, got)
		}
	}
}
