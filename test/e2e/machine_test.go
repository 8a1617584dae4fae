package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// machine is a container that machine.sh boots: the real systemd, in new namespaces except for the
// network namespace, with the product installed by `make install`. clean.sh makes a machine too,
// with a clean root directory of Debian, for the packages.
type machine struct {
	t     testing.TB
	pid   int    // PID of the first process, as seen from outside
	root  string // path of the root directory, as seen from outside
	ended chan struct{}
}

const systemd = "/lib/systemd/systemd"

// newMachine boots a machine, which is switched off when the test ends.
func newMachine(t testing.TB) *machine {
	t.Helper()
	testenv.NeedTools(t, systemd, "systemctl", "journalctl", "systemd-analyze", "bash", "make", "nsenter", "pivot_root",
		"unshare")
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	m := startMachine(t, "./machine.sh", t.TempDir(), checkout, newControlGroup(t))
	if state := m.booted(); state != "running" {
		t.Fatalf("the machine is %s:\n%s", state, m.run("systemctl", "--no-pager", "--failed"))
	}
	m.install()
	return m
}

// startMachine starts a script that becomes the first process of a machine, which
// is switched off when the test ends.
func startMachine(t testing.TB, script string, args ...string) *machine {
	t.Helper()
	cmd := exec.Command(script, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	m := &machine{t: t, pid: pid, root: fmt.Sprintf("/proc/%d/root", pid), ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		_ = cmd.Wait() // the cleanup kills it
	}()
	t.Cleanup(func() {
		if t.Failed() {
			console, _ := os.ReadFile(said.Name()) // the log has what could be read
			journal, _ := m.try("journalctl", "--no-pager", "--lines=60")
			t.Logf("the machine's console:\n%s\nthe end of its journal:\n%s", console, journal)
		}
		_ = cmd.Process.Kill() // all processes of a PID namespace end with the first one
		<-m.ended
	})
	return m
}

// comesUp waits until a program succeeds on a machine that has been started, and returns its output.
func (m *machine) comesUp(args ...string) (last string) {
	m.t.Helper()
	eventually(m.t, func() bool {
		select {
		case <-m.ended:
			m.t.Fatal("the machine does not boot")
		default:
		}
		out, err := m.try(args...)
		last = strings.TrimSpace(out)
		return err == nil
	}, "a machine that is running")
	return last
}

// booted waits until systemd has booted the machine, and returns the state of the machine.
func (m *machine) booted() string {
	m.t.Helper()
	return m.comesUp("bash", "-c", "state=$(systemctl is-system-running) || [ \"$state\" = degraded ] && echo \"$state\"")
}

// newControlGroup makes a control group for a machine.
func newControlGroup(t testing.TB) string {
	t.Helper()
	tree := t.TempDir()
	if err := unix.Mount("cgroup", tree, "cgroup2", 0, ""); err != nil {
		testenv.Missing(t, "root", "no control groups of version 2: %v", err)
	}
	group := filepath.Join(tree, "splitnic-machine")
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() {
		// The processes that have been in it may still be ending.
		testenv.Eventually(t, func() bool {
			var groups []string
			err := filepath.WalkDir(group, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					groups = append(groups, path)
				}
				return err
			})
			slices.Reverse(groups) // children before their parents
			for _, g := range groups {
				err = errors.Join(err, os.Remove(g))
			}
			return err == nil
		}, "the control group of the machine to go")
		if err := unix.Unmount(tree, 0); err != nil {
			t.Error(err)
		}
	})
	return group
}

// try runs a program on the machine to its end.
func (m *machine) try(args ...string) (string, error) {
	inside := []string{"--target", strconv.Itoa(m.pid), "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wd",
		"--"}
	cmd := exec.Command("nsenter", append(inside, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try for a program that has to succeed.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("on the machine: %q: %v\n%s", args, err, out)
	}
	return out
}

// install installs the product, also over an installed one.
func (m *machine) install() {
	m.t.Helper()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		m.t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(checkout, "build/man/splitnic.8")); err != nil {
		testenv.Missing(m.t, "splitnic", "the manual pages are missing: %v; `make man` writes them", err)
	}
	m.run("make", "--silent", "--directory", checkout, "binary="+needBinary(m.t), "install")
	m.run("systemctl", "daemon-reload")
}

// write makes a file and its parent directories.
func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		m.t.Fatal(err)
	}
}

// service is a systemd unit on the machine.
type service struct {
	*machine
	unit, socket string
}

// do runs systemctl with a verb on the service, which has to succeed.
func (s *service) do(verb string, flags ...string) {
	s.t.Helper()
	s.run(append([]string{"systemctl", "--no-pager", verb, s.unit}, flags...)...)
}

// edit writes the drop-in that `systemctl edit` writes, or removes it if text is empty.
func (s *service) edit(text string) {
	s.t.Helper()
	dropIn := "/etc/systemd/system/" + s.unit + ".d/override.conf"
	if text == "" {
		s.run("rm", "--force", dropIn)
	} else {
		s.write(dropIn, text)
	}
	s.run("systemctl", "daemon-reload")
}

// show returns a property of the service.
func (s *service) show(property string) string {
	s.t.Helper()
	return strings.TrimSpace(s.run("systemctl", "show", "--property="+property, "--value", s.unit))
}

// is waits until a property has a value.
func (s *service) is(property, value string) {
	s.t.Helper()
	var last string
	eventually(s.t, func() bool { last = s.show(property); return last == value }, "%s of %s %q, it was %q", property,
		s.unit, value, last)
}

// process returns the directory below /proc of the service's main process.
func (s *service) process() string {
	s.t.Helper()
	return filepath.Join(s.root, "proc", s.show("MainPID"))
}

// kill ends the service's main process by SIGKILL.
func (s *service) kill() {
	s.t.Helper()
	s.run("kill", "-KILL", s.show("MainPID"))
}

// statusInto reads the status by `splitnic status` on the machine, and reports whether there is one.
func (s *service) statusInto(into any) bool {
	s.t.Helper()
	out, err := s.try("splitnic", "status", "--json", s.socket)
	list := []any{into}
	return err == nil && json.Unmarshal([]byte(out), &list) == nil && len(list) == 1
}

// last waits for a line with the text that the service itself has written to the journal, and
// returns the last one.
func (s *service) last(text string) string {
	s.t.Helper()
	var line string
	eventually(s.t, func() bool {
		out := s.run("journalctl", "--no-pager", "--output=cat", "--unit="+s.unit, "--identifier=splitnic")
		for l := range strings.Lines(out) {
			if strings.Contains(l, text) {
				line = strings.TrimSpace(l)
			}
		}
		return line != ""
	}, "%q in the journal", text)
	return line
}
