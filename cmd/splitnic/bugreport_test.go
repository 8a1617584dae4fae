package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestReportHasNoSecrets puts a private key in each place where a user might put one, and
// expects that the report does not contain it.
func TestReportHasNoSecrets(t *testing.T) {
	key := keyFile(t)
	body := strings.Split(key, "\n")[1]
	if len(body) < 43 {
		t.Fatalf("the body of the key is %q", body)
	}
	const print = "sha256:GgMXFgZ_61Zk93woPOEag5Y29AOZdDIfzxjcb-GkiXs"
	quoted := strings.TrimSpace(strings.ReplaceAll(key, "\n", " "))
	indented := "  " + strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n  ")
	dir := tree(t, map[string]string{
		"sn0.yaml":      "iounit: [10.0.0.1]\n# " + body + "\nkey: /etc/splitnic/key.pem\ntrust: [" + print + "]\n",
		"inline.yaml":   "lan: eth1\nkey: |\n" + indented + "\ncert: \"" + quoted + "\"\n",
		"wrong.yaml":    "iounit: a\nname: " + body + "\npassword: hunter2\nhost-name: " + body[:43] + "\n",
		"odd.yaml":      "iounit: [\n" + key,
		"key.pem":       key,
		"7/cmdline":     "/usr/bin/splitnic\x00host\x00--key\x00" + body + "\x00--name\x00sn7\x00",
		"9/cmdline":     "/usr/bin/splitnic\x00bench\x00bw\x00--secret\x00hunter2hunter2hunter2\x0010.0.0.1\x00",
		"10/cmdline":    "/usr/bin/splitnic\x00bench\x00lat\x00--secret=hunter2hunter2hunter2\x00",
		"8/cmdline":     "/usr/bin/editor\x00hunter2\x00",
		"cmdline":       "root=/dev/vda iommu=pt token=hunter2 " + body,
		"modules":       "tun 61440 1 - Live 0x0\nsecretive 1 0 - Live 0x0\nib_uverbs 1 2 - Live\n",
		"self/limits":   "Max locked memory 65536\n",
		"meminfo":       "MemTotal: 1 kB\n",
		"version":       "Linux version 6.1.0\n",
		"host-sn0.sock": "",
	})
	os.Remove(filepath.Join(dir, "host-sn0.sock"))
	sock := filepath.Join(dir, "host-sn0.sock")
	status := map[string]string{"name": "alpha", "last_error": "odd:\n" + key}
	s, err := statussock.Serve(sock, func() any { return status })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := bugReport{config: dir, proc: dir, sockets: func() ([]string, error) { return []string{sock, sock + "x"}, nil }}
	b.doctor.ok("tun", "there")
	path := filepath.Join(dir, "report.txt")
	if err := b.write(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{body, body[:40], body[8:], "BEGIN", "hunter2", "secretive"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is in\n%s", secret, text)
		}
	}
	for _, want := range []string{
		"version " + version, "Linux version 6.1.0", "tun 61440", "ib_uverbs", "Max locked memory", `iounit: ["10.0.0.1"]`,
		`key: ["/etc/splitnic/key.pem"]`, print, `lan: ["eth1"]`, "7: /usr/bin/splitnic host --key [left out] --name sn7",
		`"name": "alpha"`, "no process serves", "ok    tun", "a key that is no flag: left out", "left out: it is not YAML",
		" lo ", "iommu=pt",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	err = b.write(t.Context(), path)
	if exit.Status(err) != exit.Usage {
		t.Fatalf("over another file: %v", err)
	}
	testenv.Ended(t, exit.Usage, err.Error())
	if err := b.write(t.Context(), filepath.Join(dir, "none", "x")); exit.Status(err) != exit.Missing {
		t.Errorf("into no directory: %v", err)
	}
}
