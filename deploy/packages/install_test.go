package packages

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
)

// rootPath is the PATH that sudo gives to commands.
const rootPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// TestInstall installs stand-ins of the programs with the PATH of sudo and without Go, and removes
// them. It expects all files to be where they belong, and none to be left.
func TestInstall(t *testing.T) {
	testenv.NeedTools(t, "make", "install", "sed")
	made, root := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"splitnic": "#!/bin/sh\necho \"$*\"\n", "splitnic-cni": "plugin", "splitnic.8": "page", "splitnic-cni.8": "page",
		"splitnic-policy.5": "page",
	} {
		if err := os.WriteFile(filepath.Join(made, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(target string, also ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{target, "GO=false", "binary=" + made + "/splitnic",
			"plugin=" + made + "/splitnic-cni", "manpages=" + made, "DESTDIR=" + root}, also...)...)
		cmd.Dir = checkout
		cmd.Env = []string{"PATH=" + rootPath}
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	installed := func() (files []string) {
		if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, strings.TrimPrefix(path, root))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return files
	}
	if said, err := run("install"); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	files := installed()
	for _, want := range []string{"bin/splitnic", "lib/cni/splitnic-cni", "lib/systemd/system/splitnic-host@.service",
		"share/man/man8/splitnic.8", "share/man/man5/splitnic-policy.5", "share/bash-completion/completions/splitnic",
		"share/zsh/site-functions/_splitnic", "share/doc/splitnic/examples/policy.yaml",
		"share/splitnic/prometheus/alerts.yaml",
	} {
		if !slices.Contains(files, "/usr/local/"+want) {
			t.Errorf("there is no %s in %q", want, files)
		}
	}
	fish, err := os.ReadFile(filepath.Join(root, "usr/local/share/fish/vendor_completions.d/splitnic.fish"))
	if err != nil || string(fish) != "completion fish\n" {
		t.Errorf("completion for fish: %q, %v", fish, err)
	}
	other := filepath.Join(root, "usr/local/bin/other")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := run("uninstall"); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if left := installed(); !slices.Equal(left, []string{"/usr/local/bin/other"}) {
		t.Errorf("left: %q", left)
	}
	if said, err := run("install", "manpages="+made+"/none"); err == nil || !strings.Contains(said, "make build man") {
		t.Errorf("without manual pages: %v\n%s", err, said)
	}
}
