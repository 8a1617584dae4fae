// Package container has the recipe of the container image. The tests do not build the image,
// which needs a registry. TestRDMAPod runs the contents of the image.
package container

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	checkout = "../.."
	module   = "github.com/splitnic/splitnic/"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSources expects .dockerignore to admit all sources of the program.
func TestSources(t *testing.T) {
	var admitted []string
	for line := range strings.Lines(read(t, filepath.Join(checkout, ".dockerignore"))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			admitted = append(admitted, name)
			if _, err := os.Stat(filepath.Join(checkout, name)); err != nil {
				t.Errorf(".dockerignore admits what is not there: %v", err)
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}}", "./cmd/splitnic",
		"./cmd/splitnic-cni")
	cmd.Dir = checkout
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	need := []string{"Makefile", "go.mod", "go.sum", "LICENSE"}
	for path := range strings.Lines(string(out)) {
		if path, ours := strings.CutPrefix(strings.TrimSpace(path), module); ours {
			need = append(need, path)
		}
	}
	if len(need) < 10 {
		t.Fatalf("go list knows %q only", need)
	}
	for _, path := range need {
		if top, _, _ := strings.Cut(path, "/"); !slices.Contains(admitted, top) {
			t.Errorf(".dockerignore keeps %s out of the image's sources: add !%s", path, top)
		}
	}
}

// TestToolchain expects the image to be built with the Go version of go.mod.
func TestToolchain(t *testing.T) {
	wanted := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(read(t, filepath.Join(checkout, "go.mod")))
	base := regexp.MustCompile(`(?m)^FROM \S+/golang:(1\.\d+)-`).FindStringSubmatch(read(t, "Dockerfile"))
	if wanted == nil || base == nil {
		t.Fatalf("go.mod asks for Go %q, and the Dockerfile takes %q", wanted, base)
	}
	if wanted[1] != base[1] {
		t.Errorf("go.mod asks for Go %s, and the Dockerfile takes %s", wanted[1], base[1])
	}
}

// TestTool runs scripts/image with several sets of tools, and expects it to use the first one
// that works.
func TestTool(t *testing.T) {
	const (
		works  = "#!/bin/sh\necho \"${0##*/} $*\"\n"
		fails  = "#!/bin/sh\nexit 1\n"
		client = "#!/bin/sh\n[ \"$1\" != info ] || exit 1\n" + "echo \"${0##*/} $*\"\n"
		flags  = " build --file deploy/container/Dockerfile --tag registry.example/splitnic:v1 --build-arg VERSION=v1" +
			" --build-arg REVISION=unknown --no-cache ."
	)
	for _, c := range []struct {
		name  string
		tools map[string]string
		runs  string   // the tool that is used, "" for none
		says  []string // parts of the error if no tool works
	}{
		{"all", map[string]string{"docker": works, "podman": works, "buildah": works}, "docker", nil},
		{"docker without daemon", map[string]string{"docker": client, "buildah": works}, "buildah", nil},
		{"podman", map[string]string{"podman": works, "buildah": works}, "podman", nil},
		{"none", nil, "", []string{"docker is not installed", "buildah is not installed", "apt-get install podman"}},
		{"docker without daemon alone", map[string]string{"docker": client}, "",
			[]string{"docker reaches no daemon", "podman is not installed"}},
		{"a build that fails", map[string]string{"podman": fails}, "", []string{"podman build failed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := t.TempDir()
			for tool, text := range c.tools {
				if err := os.WriteFile(filepath.Join(path, tool), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, tool := range []string{"bash", "sh", "dirname", "timeout"} {
				real, err := exec.LookPath(tool)
				if err == nil {
					err = os.Symlink(real, filepath.Join(path, tool))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(checkout, "scripts/image"), "registry.example/splitnic:v1",
				"v1", "--no-cache")
			cmd.Env = []string{"PATH=" + path}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if c.runs != "" {
				if want := c.runs + flags; err != nil || strings.TrimSpace(string(out)) != want {
					t.Errorf("%v, and it ran %q and not %q:\n%s", err, out, want, stderr.String())
				}
				return
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("it ended with %v:\n%s", err, stderr.String())
			}
			for _, what := range c.says {
				if !strings.Contains(stderr.String(), what) {
					t.Errorf("it does not say %q:\n%s", what, stderr.String())
				}
			}
		})
	}
}
