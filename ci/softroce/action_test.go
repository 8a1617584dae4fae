package softroce_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// action is the contents of action.yml.
type action struct {
	Inputs map[string]struct {
		Default  string
		Required bool
	}
	Runs struct {
		Steps []struct {
			Name string
			Uses string
			ID   string
			Run  string
			Env  map[string]string
			With map[string]string
		}
	}
}

// input matches a reference to an input in the environment of a step.
var input = regexp.MustCompile(`^\$\{\{ inputs\.([a-z]+) \}\}$`)

func readAction(t *testing.T) action {
	t.Helper()
	text, err := os.ReadFile("action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var a action
	if err := yaml.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// withoutSudo makes a directory for PATH with a sudo that only runs its command. The tests need
// no privileges: their user is root or has set up this machine.
func withoutSudo(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	const sudo = "#!/bin/sh\nif [ \"$1\" = -E ]; then shift; fi\nexec \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "sudo"), []byte(sudo), 0o700); err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestActionStatus runs the last step of action.yml with a stub of run. It expects the status of
// run and no output, although run does not make the cache in native mode, and makes no files at
// all with a wrong option.
func TestActionStatus(t *testing.T) {
	steps := readAction(t).Runs.Steps
	bin := withoutSudo(t)
	for name, c := range map[string]struct {
		stub   string
		status int
	}{
		"native":       {"mkdir -p build/softroce results", 0},
		"wrong option": {"exit 2", 2},
		"script fails": {`mkdir -p build/softroce results "$SPLITNIC_CACHE"; exit 7`, 7},
	} {
		t.Run(name, func(t *testing.T) {
			path, project := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(path, "run"), []byte("#!/bin/sh\n"+c.stub+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", steps[len(steps)-1].Run)
			cmd.Dir = project
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GITHUB_ACTION_PATH="+path,
				"GITHUB_WORKSPACE="+project, "SPLITNIC_CACHE="+filepath.Join(project, "cache"), "INPUT_WORK=results")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != c.status || len(out) != 0 {
				t.Errorf("status %d, want %d; output %q, want none", got, c.status, out)
			}
		})
	}
}

// TestActionCache expects another name of the cache when a file has changed from which the cache
// is made. hashFiles cannot be used: the files of an action are not in the workspace of a project
// that uses the action.
func TestActionCache(t *testing.T) {
	recipe := func(initText string) string {
		path, output := t.TempDir(), filepath.Join(t.TempDir(), "output")
		for name, text := range map[string]string{"prepare": "fetch", "init": initText} {
			if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range readAction(t).Runs.Steps {
			if strings.Contains(step.With["key"], "hashFiles") {
				t.Errorf("%q has GitHub read files of the action, which it does not do: %s", step.Name, step.With["key"])
			}
			if step.ID != "cache" {
				continue
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", step.Run)
			cmd.Env = append(os.Environ(), "GITHUB_ACTION_PATH="+path, "GITHUB_OUTPUT="+output)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		text, err := os.ReadFile(output)
		if err != nil || !regexp.MustCompile("^recipe=[0-9a-f]{64}\n$").Match(text) {
			t.Errorf("the step writes %q, %v", text, err)
		}
		return string(text)
	}
	if a, b := recipe("boot"), recipe("boot faster"); a == b {
		t.Errorf("the cache has the same name for another init: %s", a)
	}
}

// TestGuestAction runs the steps of action.yml except those that prepare a runner's kernel and
// cache. The project is a copy of the example outside of the checkout.
func TestGuestAction(t *testing.T) {
	mode := guestMode(t)
	a := readAction(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	project, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(project, os.DirFS("example")); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "make", "-C", project).CombinedOutput(); err != nil {
		t.Fatalf("the example cannot be built: %v\n%s", err, out)
	}
	bin := withoutSudo(t)
	// The cache of the tests has the kernel already.
	kernels := os.Getenv("SPLITNIC_CACHE")
	if kernels == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		kernels = filepath.Join(dir, "splitnic/softroce")
	}
	given := map[string]string{"script": "test.sh", "mode": mode, "arguments": "one\ntwo words", "work": "results"}
	used := make(map[string]bool)
	ran := 0
	for _, step := range a.Runs.Steps {
		if step.Uses != "" || strings.HasPrefix(step.Name, "Soft-RoCE on this kernel") {
			continue
		}
		ran++
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", step.Run)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"),
			"GITHUB_ACTION_PATH="+here, "GITHUB_WORKSPACE="+project, "SPLITNIC_CACHE="+kernels,
			"GITHUB_OUTPUT="+filepath.Join(bin, "output"))
		for name, value := range step.Env {
			if name == "SPLITNIC_CACHE" {
				continue
			}
			m := input.FindStringSubmatch(value)
			if m == nil {
				t.Fatalf("the step %q has %s=%s", step.Name, name, value)
			}
			in, ok := a.Inputs[m[1]]
			if !ok {
				t.Fatalf("the step %q uses an input %q that there is not", step.Name, m[1])
			}
			used[m[1]] = true
			value = in.Default
			if v, ok := given[m[1]]; ok {
				value = v
			}
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("the step %q: %v\n%s%s", step.Name, err, &stdout, &stderr)
		}
		if ran == 3 && !strings.Contains(stdout.String(), "snrxe1: active") {
			t.Errorf("the example's program has not seen the devices:\n%s", &stdout)
		}
	}
	if ran != 3 {
		t.Errorf("%d steps ran, want 3", ran)
	}
	for name := range a.Inputs {
		if !used[name] {
			t.Errorf("the input %q is used by no step", name)
		}
	}
	got, err := os.ReadFile(filepath.Join(project, "results/arguments"))
	if err != nil || string(got) != "one\ntwo words\n" {
		t.Errorf("the script was given %q, %v", got, err)
	}
}
