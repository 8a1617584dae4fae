package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/splitnic/splitnic/internal/testenv"
)

// machine is a root directory for the scripts of the packages, with systemd and an enabled host.
type machine struct{ root string }

const (
	keyFile  = "etc/splitnic/key.pem"
	ownFile  = "etc/splitnic/own.pem" // of an administrator
	runDir   = "run/splitnic"
	stateDir = "var/lib/splitnic"
	wanted   = "etc/systemd/system/multi-user.target.wants/splitnic-host@sn0.service"
	others   = "etc/systemd/system/multi-user.target.wants/other.service"
)

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t.TempDir()}
	for _, dir := range []string{
		"run/systemd/system", "bin", runDir, stateDir, filepath.Dir(keyFile), filepath.Dir(wanted),
	} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{keyFile, ownFile, runDir + "/lock", stateDir + "/x"} {
		if err := os.WriteFile(filepath.Join(m.root, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{wanted, others} {
		if err := os.Symlink("/none", filepath.Join(m.root, link)); err != nil {
			t.Fatal(err)
		}
	}
	said := "#!/bin/sh\necho \"${0##*/} $*\" >>" + m.root + "/did\n"
	for name, text := range map[string]string{
		"systemctl": said + "[ \"$1\" != list-units ] || echo splitnic-iounit.service loaded active running x\n",
		"splitnic":  said + "echo sha256:x\n",
	} {
		if err := os.WriteFile(filepath.Join(m.root, "bin", name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// run runs a script with the machine as the root directory, and returns the first two words of each
// command that it has run, and its output.
func (m machine) run(t *testing.T, script string, args ...string) (did []string, said string) {
	t.Helper()
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.NewReplacer("/usr/bin/splitnic", m.root+"/bin/splitnic", " /etc/", " "+m.root+"/etc/",
		" /run/", " "+m.root+"/run/", " /var/", " "+m.root+"/var/").Replace(string(text))
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", moved, script}, args...)...)
	cmd.Env = []string{"PATH=" + m.root + "/bin:" + rootPath}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", script, args, err, out)
	}
	list, err := os.ReadFile(filepath.Join(m.root, "did"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		did = append(did, strings.Join(strings.Fields(line)[:2], " "))
	}
	return did, string(out)
}

// TestScripts runs the scripts of the packages as dpkg and rpm do, where other directories take the
// place of those of the machine. It expects a key only after the first installation, what runs to end
// only before the package is removed, and the key and the state to go only when it is purged.
func TestScripts(t *testing.T) {
	testenv.NeedTools(t, "cut", "find", "sh", "tr")
	const keygen, stop = "splitnic keygen", "systemctl stop"
	const reload, list = "systemctl daemon-reload", "systemctl list-units"
	for name, c := range map[string]struct {
		script, arg, old string // old is the previous version
		did, gone        []string
	}{
		"deb, installed":         {"postinst", "configure", "", []string{keygen, reload}, nil},
		"deb, upgraded":          {"postinst", "configure", "0.1.0-1", []string{reload, list}, nil},
		"deb, other step":        {"postinst", "abort-upgrade", "0.1.0-1", nil, nil},
		"rpm, installed":         {"postinst", "1", "", []string{keygen, reload}, nil},
		"rpm, upgraded":          {"postinst", "2", "", []string{reload, list}, nil},
		"deb, before removal":    {"prerm", "remove", "", []string{stop}, nil},
		"deb, before an upgrade": {"prerm", "upgrade", "0.2.0-1", nil, nil},
		"rpm, before removal":    {"prerm", "0", "", []string{stop}, nil},
		"rpm, before an upgrade": {"prerm", "1", "", nil, nil},
		"deb, removed":           {"postrm", "remove", "", []string{reload}, []string{runDir}},
		"deb, purged":            {"postrm", "purge", "", []string{reload}, []string{runDir, stateDir, keyFile, wanted}},
		"deb, after an upgrade":  {"postrm", "upgrade", "0.2.0-1", nil, nil},
		"rpm, removed":           {"postrm", "0", "", []string{reload}, []string{runDir, wanted}},
		"rpm, after an upgrade":  {"postrm", "1", "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			args := []string{c.arg}
			if c.old != "" || c.arg == "configure" {
				args = append(args, c.old)
			}
			did, said := m.run(t, c.script, args...)
			if !slices.Equal(did, c.did) {
				t.Errorf("it runs %q, and not %q", did, c.did)
			}
			if slices.Contains(did, list) != strings.Contains(said, "systemctl restart splitnic-iounit.service\n") {
				t.Errorf("it says %q", said)
			}
			for _, path := range []string{keyFile, ownFile, runDir, stateDir, wanted, others} {
				_, err := os.Lstat(filepath.Join(m.root, path))
				if there := err == nil; there == slices.Contains(c.gone, path) {
					t.Errorf("%s is there: %t", path, there)
				}
			}
		})
	}
}

// TestRecipe expects the recipe to have the scripts, each for its step, and the files of an administrator
// to stay when the package is upgraded.
func TestRecipe(t *testing.T) {
	text, err := os.ReadFile("nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var recipe struct {
		Contents []struct{ Src, Dst, Type string }
		Scripts  map[string]string
	}
	if err := yaml.Unmarshal(text, &recipe); err != nil {
		t.Fatal(err)
	}
	for step, want := range map[string]string{"postinstall": "postinst", "preremove": "prerm", "postremove": "postrm"} {
		if got := recipe.Scripts[step]; got != "scripts/"+want {
			t.Errorf("the script %s is %q", step, got)
		}
	}
	kept := false
	for _, c := range recipe.Contents {
		if strings.HasPrefix(c.Dst, "/etc/") && c.Type != "dir" {
			kept = true
			if c.Type != "config|noreplace" {
				t.Errorf("%s is %q, and an upgrade replaces it", c.Dst, c.Type)
			}
		}
	}
	if !kept {
		t.Error("there are no files in /etc")
	}
}
