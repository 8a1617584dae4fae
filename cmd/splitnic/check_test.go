package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testca"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// checked returns what `splitnic check` prints about files, without the path of their directory.
// The configuration is x.yaml.
func checked(t *testing.T, role string, files map[string]string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir() + "/"
	for name, text := range files {
		if err := os.WriteFile(dir+name, []byte(strings.ReplaceAll(text, "DIR/", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	root := rootCommand()
	root.SetArgs(append([]string{"check", role, dir + "x.yaml"}, args...))
	root.SetOut(&out)
	err := root.ExecuteContext(t.Context())
	return strings.ReplaceAll(out.String(), dir, ""), err
}

// keyFile returns the text of a new private key file.
func keyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := execute(t, "keygen", "--out", path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCheck expects each mistake to be reported with its file and line, and nothing else.
func TestCheck(t *testing.T) {
	key := keyFile(t)
	k, err := session.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	peer := k.Fingerprint().String()
	const keys = "key: DIR/key.pem\ntrust-file: DIR/trust\n"
	for _, c := range []struct {
		name, role string
		files      map[string]string
		args       []string
		want       []string // beginnings of the lines
	}{
		{"host", "host", map[string]string{"x.yaml": "iounit: a\n" + keys, "key.pem": key, "trust": peer}, nil, nil},
		{"I/O unit", "iounit", map[string]string{"x.yaml": "lan: eth1\npolicy: DIR/p\n" + keys, "key.pem": key,
			"trust": "alpha=" + peer, "p": "hosts:\n  alpha: {vlans: [5]}\n"}, nil, nil},
		{"agent", "agent", map[string]string{"x.yaml": "max-cards: 8\nstate: /var/lib/x\n" + keys, "key.pem": key,
			"trust": peer}, nil, nil},
		{"several of an agent", "agent", map[string]string{"x.yaml": "max-cards: 0\nstate: x\nqueues: 0\nname: sn0\n" +
			keys, "trust": "x"}, nil, []string{"x.yaml:1: --max-cards 0", "x.yaml:2: --state \"x\"", "x.yaml:3: --queues 0",
			"x.yaml:4: unknown key \"name\"", "x.yaml:5: ", "trust:1: "}},
		{"several", "host", map[string]string{"x.yaml": "queues: 0\nmax-mtu: 20\nmode: [imm, odd]\nstandby: perhaps\n" +
			"colour: red\n\nlog-level: loud\nadvanced: {qp-retries: 9}\nmac: 5\noffloads: [all, some]\ninsecure: yes\n"}, nil, []string{
			"x.yaml: --iounit is missing", "x.yaml:1: --queues 0", "x.yaml:2: --max-mtu 20", "x.yaml:3: --mode: ",
			"x.yaml:4: standby: ", "x.yaml:5: unknown key \"colour\"; keys are the flags of `splitnic host --help`",
			`x.yaml:7: log-level: "loud" must be`, "x.yaml:8: advanced.qp-retries 9", "x.yaml:9: --mac: ", "x.yaml:10: --offloads: "}},
		{"mistyped keys", "host", map[string]string{"x.yaml": "iounits: a\nnam: sn1\ninsecure: yes\n"}, nil, []string{
			"x.yaml: --iounit is missing", "x.yaml:1: unknown key \"iounits\" (did you mean iounit?); keys are the flags of",
			"x.yaml:2: unknown key \"nam\" (did you mean name?); "}},
		{"a key of the other side", "host", map[string]string{"x.yaml": "iounit: a\nlan: eth1\ninsecure: yes\n"}, nil,
			[]string{"x.yaml:2: unknown key \"lan\" (a key of `splitnic iounit`); keys are the flags of "}},
		{"a bad value is not missing", "host", map[string]string{"x.yaml": "insecure: yes\niounit: [a, ~]\n"}, nil,
			[]string{`x.yaml:2: iounit: must be a word`}},
		{"policy", "iounit", map[string]string{"x.yaml": "lan: tap:br0\ninsecure: yes\npolicy: DIR/p\n",
			"p": "default: {max-queues: 0}\nhosts:\n  alpha:\n    max-queues: many\n    vlans: [5]\n    colour: red\n    vlan: 5\n"}, nil,
			[]string{`p:1: default: max-queues: `, `p:4: host alpha: max-queues: `,
				`p:6: host alpha: unknown key "colour"; there are`,
				`p:7: host alpha: unknown key "vlan"; there are `}},
		{"no policy", "iounit", map[string]string{"x.yaml": "lan: tap:br0\n\npolicy: DIR/p\ninsecure: yes"}, nil,
			[]string{`x.yaml:3: --policy: `}},
		{"files of keys", "host", map[string]string{"x.yaml": "iounit: a\n" + keys + "revoked: DIR/r\nca: DIR/none\n",
			"trust": "x\n" + peer + "\nalpha\n", "r": "\n\ny"}, nil,
			[]string{"x.yaml:2: ", "x.yaml:5: ", "trust:1: ", "trust:3: ", "r:3: "}},
		{"files whose names begin alike", "host", map[string]string{"x.yaml": "iounit: a\n" + keys +
			"revoked: DIR/trust.revoked\nca: DIR/trust.ca\n", "key.pem": key}, nil,
			[]string{"x.yaml:3: trust file: ", "x.yaml:4: revoked keys: ", "x.yaml:5: authorities: "}},
		{"without keys", "host", map[string]string{"x.yaml": "iounit: a\n" + keys, "trust": peer},
			[]string{"--no-keys"}, nil},
		{"trust without keys", "host", map[string]string{"x.yaml": "iounit: a\n" + keys, "trust": "x"},
			[]string{"--no-keys"}, []string{"trust:1: "}},
		{"the trust in the file", "host", map[string]string{"x.yaml": "iounit: a\nkey: DIR/key.pem\ntrust: [x]\n",
			"key.pem": key}, nil, []string{"x.yaml:3: --trust: "}},
		{"several in the file", "host", map[string]string{"x.yaml": "iounit: a\nkey: DIR/key.pem\ntrust: [x, " + peer +
			", b=y]\n", "key.pem": key}, nil,
			[]string{"x.yaml:3: --trust: number 1 of 3: ", "x.yaml:3: --trust: number 3 of 3: "}},
		{"another flag of a mistake", "host", map[string]string{"x.yaml": "iounit: a\ninsecure: yes\n" +
			"advanced: {keep-alive: 2s}\n"}, nil, []string{"x.yaml:3: --peer-timeout 1s must exceed advanced.keep-alive"}},
		{"an I/O unit twice", "host", map[string]string{"x.yaml": "insecure: yes\niounit: [a, 'A:7580', b, 'srv:_x.y', 'srv:_X.y']\n"},
			nil, []string{`x.yaml:2: --iounit "A:7580" is in the list twice`,
				`x.yaml:2: --iounit "srv:_X.y" is in the list twice`}},
		{"no YAML", "host", map[string]string{"x.yaml": "iounit: a: b\n"}, []string{"--no-keys"},
			[]string{"x.yaml:1: not YAML"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := checked(t, c.role, c.files, c.args...)
			if c.want == nil {
				if err != nil || got != "x.yaml: ok\n" {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			good := exit.Status(err) == exit.Usage && len(lines) == len(c.want)
			for i := range c.want {
				good = good && strings.HasPrefix(lines[i], c.want[i])
			}
			if !good {
				t.Errorf("%v:\n%s\nwant\n%s", err, got, strings.Join(c.want, "\n"))
			}
			if err != nil {
				testenv.Ended(t, exit.Status(err), err.Error())
			}
		})
	}
}

// TestCheckMissingFile checks a file that does not exist: it has no mistakes, and the status is that
// of a missing file, as for `splitnic host`.
func TestCheckMissingFile(t *testing.T) {
	got, err := checked(t, "host", nil, "--no-keys")
	if got != "" || exit.Status(err) != exit.Missing {
		t.Fatalf("%q, %v", got, err)
	}
	testenv.Ended(t, exit.Status(err), err.Error())
}

// TestCheckWarnings has policy entries that match no host by its name or its key, and expects a
// warning for each. There is no warning if certificates can give a host that name, or if the
// entry only reserves an address.
func TestCheckWarnings(t *testing.T) {
	key := keyFile(t)
	one, err := session.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	two, err := session.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	authority := testca.New(t).File
	const rules = "default: {vlans: none}\nhosts:\n  alpha: {vlans: 5}\n  alhpa: {vlans: 5}\n  PRINT: {vlans: 5}\n" +
		"  gateway: {macs: 02:00:00:00:00:01}\n"
	for name, c := range map[string]struct {
		config, trust, revoked string
		want                   []string
	}{
		"a name":        {"", "alpha=PRINT", "", []string{"p:4: warning: host alhpa: "}},
		"another's key": {"", "alpha=OTHER", "", []string{"p:4: warning: host alhpa: ", "p:5: warning: host PRINT: "}},
		"a revoked key": {"revoked: DIR/r\n", "alhpa=PRINT\nalpha=OTHER", "PRINT", []string{
			"p:4: warning: host alhpa: ", "p:5: warning: host PRINT: "}},
		"certificates": {"ca: " + authority + "\n", "alpha=OTHER", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			fill := strings.NewReplacer("PRINT", one.Fingerprint().String(), "OTHER", two.Fingerprint().String()).Replace
			got, err := checked(t, "iounit", map[string]string{
				"x.yaml":  "lan: eth1\npolicy: DIR/p\nkey: DIR/key.pem\ntrust-file: DIR/trust\n" + c.config,
				"key.pem": key, "trust": fill(c.trust), "r": fill(c.revoked), "p": fill(rules),
			})
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			good := len(lines) == len(c.want)+1 && lines[len(lines)-1] == "x.yaml: ok"
			for i := range c.want {
				good = good && strings.HasPrefix(lines[i], fill(c.want[i]))
			}
			if !good {
				t.Fatalf("%s\nwant %q", got, c.want)
			}
			for _, line := range lines[:len(c.want)] {
				testenv.Explained(t, line)
			}
		})
	}
}

func TestCheckMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"check host":         "the file is missing; see `splitnic check host --help`",
		"check hots x.yaml":  `unknown command "hots" (did you mean host?)`,
		"check x.yaml":       "whose configuration is x.yaml?",
		"check iounit x y":   `unexpected argument "y"`,
		"check host x --key": "unknown flag: --key",
	} {
		err := execute(t, strings.Fields(line)...)
		if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
			continue
		}
		testenv.Ended(t, exit.Usage, err.Error())
	}
	if err := execute(t, "check"); err != nil { // prints its help
		t.Error(err)
	}
}

// TestCheckCertificates expects certificates that cannot work to be mistakes, at their lines.
func TestCheckCertificates(t *testing.T) {
	a := testca.New(t)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	issued := func(a *testca.Authority, usage x509.ExtKeyUsage, lasts time.Duration) string {
		file := filepath.Join(t.TempDir(), "cert.pem")
		a.Issue(t, testca.Member("alpha", usage, lasts), public, file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	old := testca.NewFor(t, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	for name, c := range map[string]struct {
		ca, cert string
		want     []string
	}{
		"good":            {a.File, issued(a, x509.ExtKeyUsageClientAuth, time.Minute), nil},
		"expired":         {a.File, issued(a, x509.ExtKeyUsageClientAuth, -time.Minute), []string{"x.yaml:3: certificate "}},
		"future":          {a.File, issued(a, x509.ExtKeyUsageClientAuth, 2*time.Hour), []string{"x.yaml:3: certificate "}},
		"I/O unit's":      {a.File, issued(a, x509.ExtKeyUsageServerAuth, time.Minute), []string{"x.yaml:3: certificate "}},
		"no intermediate": {a.File, issued(testca.New(t), x509.ExtKeyUsageClientAuth, time.Minute), []string{"x.yaml:3: certificate "}},
		"old authority": {old.File, issued(old, x509.ExtKeyUsageClientAuth, time.Minute),
			[]string{"x.yaml:3: certificate ", "x.yaml:4: authorities "}},
	} {
		files := map[string]string{
			"x.yaml": "iounit: a\nkey: DIR/key.pem\ncert: DIR/c\nca: " + c.ca + "\n", "key.pem": key, "c": c.cert,
		}
		got, err := checked(t, "host", files)
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if len(c.want) == 0 {
			if err != nil || got != "x.yaml: ok\n" {
				t.Errorf("%s: %v, %q", name, err, got)
			}
			continue
		}
		if err == nil || !slices.EqualFunc(lines, c.want, strings.HasPrefix) {
			t.Errorf("%s: %v, %q", name, err, got)
			continue
		}
		for _, line := range lines {
			testenv.Explained(t, line)
		}
		if got, err := checked(t, "host", files, "--no-keys"); err != nil {
			t.Errorf("%s: without keys: %v, %q", name, err, got)
		}
	}
}

// TestCheckMarkedFiles checks files with a byte-order mark.
func TestCheckMarkedFiles(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	k, err := session.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	got, err := checked(t, "iounit", map[string]string{
		"x.yaml": mark + "lan: eth1\npolicy: DIR/p\nkey: DIR/key.pem\ntrust-file: DIR/trust\n", "key.pem": mark + keyFile(t),
		"trust": mark + "alpha=" + k.Fingerprint().String() + "\r\n", "p": mark + "default: {vlans: none}\r\n",
	})
	if err != nil || got != "x.yaml: ok\n" {
		t.Errorf("%v, %q", err, got)
	}
	got, err = checked(t, "host", map[string]string{"x.yaml": "\xff\xfei\x00"})
	if err == nil || !strings.HasPrefix(got, "x.yaml:1: not YAML: the text is in UTF-16") {
		t.Errorf("UTF-16: %v, %q", err, got)
	}
	_, err = checked(t, "iounit", map[string]string{
		"x.yaml": "lan: eth1\ninsecure: yes\npolicy: DIR/p\n", "p": mark + "# nothing\n",
	})
	if err == nil {
		t.Error("an empty policy with a mark is accepted")
	}
}

// TestCheckJSON expects the mistakes of a file in a list, which is empty for a file without any.
func TestCheckJSON(t *testing.T) {
	for text, want := range map[string]struct {
		list   string
		status int
	}{
		"lan: tap:br0\ninsecure: yes\n":           {"[]", 0},
		"lan: tap:br0\ninsecure: yes\nqueus: 2\n": {`["x.yaml:3: unknown key \"queus\"`, exit.Usage},
	} {
		out, err := checked(t, "iounit", map[string]string{"x.yaml": text}, "--json")
		var flat bytes.Buffer
		if jsonErr := json.Compact(&flat, []byte(out)); jsonErr != nil || exit.Status(err) != want.status ||
			!strings.HasPrefix(flat.String(), `{"file":"x.yaml","mistakes":`+want.list) {
			t.Errorf("%s, %v, %v, want %s", out, err, jsonErr, want.list)
		}
	}
}

// TestMeant looks for the line of mistakes that name files, some with names that are parts of others.
func TestMeant(t *testing.T) {
	o := origin{values: []setting{
		{key: "cert", words: []string{"/etc/x/key"}}, {key: "revoked", words: []string{"body"}},
		{key: "ca", words: []string{"a b.pem"}},
		{key: "trust-file", words: []string{"b.pem"}}, {key: "queues", words: []string{"0"}},
	}}
	for text, want := range map[string]string{
		"load key: open /etc/x/key.pem: no such file": "",
		"load certificate: open /etc/x/key: no such":  "cert",
		"nobody knows":                      "",
		"authorities: read a b.pem: EOF":    "ca",
		"trust file: 'b.pem' is no file":    "trust-file",
		"--max-mtu 5: too small for queues": "",
		"--max-mtu 5: --queues":             "queues",
	} {
		got := ""
		if s := o.meant(text); s != nil {
			got = s.key
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
