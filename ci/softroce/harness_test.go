// Package softroce_test checks the harness itself: that it tells a script that
// passed from one that failed, hung, or took the kernel down with it.
//
// It boots some twenty guests, so it only runs when SPLITNIC_REQUIRE lists
// softroce (or all), and needs more than the usual time: go test -timeout 30m.
package softroce_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// harnessLimit is the timeout of one run of the harness, far above what any run needs.
const harnessLimit = 8 * time.Minute

// result is the result of one run of the harness.
type result struct {
	status         int
	stdout, stderr string
}

func need(t *testing.T) {
	t.Helper()
	for _, f := range strings.Split(os.Getenv("SPLITNIC_REQUIRE"), ",") {
		if f = strings.TrimSpace(f); f == "softroce" || f == "all" {
			return
		}
	}
	t.Skip("boots guests; set SPLITNIC_REQUIRE=softroce to run it")
}

// start starts ./run with args in a new process group, so that a test can signal the group as a
// terminal does.
func start(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harnessLimit)
	t.Cleanup(cancel)
	var stdout, stderr bytes.Buffer
	// The guest has the default of exec; a later option in args overrides this one.
	cmd := exec.CommandContext(ctx, "./run", append([]string{"--smp", "2,1"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("start ./run %v: %v", args, err)
	}
	return cmd, &stdout, &stderr
}

// status waits for cmd and returns its exit status.
func status(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("wait for %v: %v", cmd.Args, err)
	}
	return cmd.ProcessState.ExitCode()
}

// run runs the harness to its end. Native mode is never used, because some of the self-tests
// destroy the machine that they run on, which is a guest.
func run(t *testing.T, args ...string) result {
	t.Helper()
	cmd, stdout, stderr := start(t, args...)
	rc := status(t, cmd)
	return result{rc, stdout.String(), stderr.String()}
}

// guestMode returns the mode for the tests, which is never native.
func guestMode(t *testing.T) string {
	t.Helper()
	need(t)
	if m := os.Getenv("SPLITNIC_SOFTROCE"); m == "kvm" || m == "tcg" {
		return m
	}
	return "guest"
}

func TestGuestStatus(t *testing.T) {
	mode := guestMode(t)
	tests := []struct {
		name    string
		options []string
		script  []string
		status  int
		stdout  string // a part of the output
	}{
		{"failure", nil, []string{"exit", "5"}, 5, ""},
		{"panic", nil, []string{"panic"}, 125, "before\n"},
		{"killed by the emulation", nil, []string{"lockup"}, 122, "before\n"},
		{"hang", []string{"--timeout", "40"}, []string{"hang"}, 124, "before\n"},
		// This script stops all processes, also those that pass its output on.
		{"guest deaf", []string{"--timeout", "8"}, []string{"deaf"}, 124, ""},
		{"complaint", nil, []string{"complain"}, 126, ""},
		{"known complaint", nil, []string{"defect", "2"}, 0, ""},
		{"complaint allowed", []string{"--allow-dmesg"}, []string{"complain"}, 0, ""},
		{"process left behind", nil, []string{"background"}, 0, "finished\n"},
		{"environment", []string{"--smp", "3,1"}, []string{"environment", "3", "1"}, 0, ""},
		{"arguments", nil, []string{"args", "a b", "it's", "$x", "*", ""}, 0, "<a b>\n<it's>\n<$x>\n<*>\n<>\n"},
		{"fabric", nil, []string{"fabric"}, 0, "fabric fine\n"},
		{"package", nil, []string{"package"}, 0, "package fine\n"},
		{"native", []string{"--allow-dmesg"}, []string{"native"}, 0, "native fine\n"},
		{"no such case", nil, []string{"nonsense"}, 1, "FAIL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--mode", mode}, tt.options...)
			r := run(t, append(append(args, "selftest.sh"), tt.script...)...)
			if r.status != tt.status || !strings.Contains(r.stdout, tt.stdout) {
				t.Errorf("status %d, want %d; stdout %q must contain %q; stderr:\n%s",
					r.status, tt.status, r.stdout, tt.stdout, r.stderr)
			}
			// The verdict is followed by the guest's console and processes.
			for line := range strings.Lines(r.stderr) {
				switch {
				case strings.HasPrefix(line, "softroce: the kernel met "): // no verdict
					testenv.Explained(t, strings.TrimSpace(line))
				case r.status >= 122 && strings.HasPrefix(line, "softroce: the "):
					testenv.Ended(t, r.status, strings.TrimSpace(line))
					return
				}
			}
		})
	}
}

// TestComplaints expects ./complaints to find every complaint of the kernel except the known one
// and its call trace.
func TestComplaints(t *testing.T) {
	const (
		cut     = "[    1.0] ------------[ cut here ]------------"
		warning = "[    1.1] WARNING: CPU: 0 PID: 2 at drivers/infiniband/sw/rxe/rxe_pool.c:255 __rxe_cleanup+0x1/0x2 [rdma_rxe]"
		other   = "[    1.1] WARNING: CPU: 0 PID: 2 at drivers/infiniband/sw/rxe/rxe_qp.c:25 rxe_qp_do_cleanup+0x1/0x2 [rdma_rxe]"
		trace   = "[    1.2] Call Trace:"
		oops    = "[    1.3] Oops: 0000 [#1] PREEMPT SMP"
		end     = "[    1.4] ---[ end trace 0000000000000000 ]---"
	)
	known := []string{cut, warning, trace, end}
	tests := []struct {
		name     string
		messages []string
		want     []string
	}{
		{"nothing", []string{cut, end}, nil},
		{"another warning", []string{cut, other, trace, end}, []string{other, trace}},
		{"known", known, []string{"known: " + warning}},
		{"twice", slices.Concat(known, known), []string{"known: " + warning, "known: " + warning}},
		{
			"three times", slices.Concat(known, known, known),
			[]string{"known: " + warning, "known: " + warning, warning, trace},
		},
		{"an oops within", []string{cut, warning, oops, end}, []string{"known: " + warning, oops}},
		{"a trace behind", []string{cut, warning, trace, end, trace}, []string{"known: " + warning, trace}},
		{"without its end", []string{cut, warning, cut, other, trace}, []string{"known: " + warning, other, trace}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "./complaints")
			cmd.Stdin = strings.NewReader(strings.Join(tt.messages, "\n") + "\n")
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Collect(strings.Lines(string(out))); strings.Join(got, "") != joined(tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestEmulationKilled reads consoles of kernels that died. It expects a cause only for those that
// the emulation has killed.
func TestEmulationKilled(t *testing.T) {
	const (
		lockup = "Kernel panic - not syncing: softlockup"
		trap   = "[   66.1] Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\n" +
			"[   66.2] RIP: 0010:__netif_receive_skb_core.constprop.0+0x3d/0x1080\n" +
			"[   66.2] Code: 81 ec cc 48 89 5c 24 30 "
	)
	for _, tc := range []struct {
		console string
		killed  bool
	}{
		{"[ 61.0] " + lockup + ": hung tasks\n", true},
		{"[ 61.0] watchdog: BUG: soft lockup - CPU#1 stuck for 61s!\n", false},
		{trap + "0f <1f> 44 00 00 0f 1f\n", true},
		{trap + "c3 <1f> 44 00 00 0f 1f\n", true},
		{trap + "ec <1f> 44 00 00 0f 1f\n", true},
		{trap + "cc <1f> 44 00 00 0f 1f\n", false},
		{trap + "cc <1f> 44 00 00 0f 1f\n[   66.3] Code: 66 90 <49> 3b 66\n", false},
		{trap + "0f\n", false},
		{"[   66.1] Oops: 0000 [#1] PREEMPT SMP NOPTI\n[   66.2] Code: 24 30 0f <1f> 44 00 00\n", false},
		{"", false},
	} {
		file := filepath.Join(t.TempDir(), "console.log")
		if err := os.WriteFile(file, []byte(tc.console), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-c", `. ./judge.sh; emulation_killed "$1"`, "-", file).Output()
		if killed := err == nil && len(out) > 0; killed != tc.killed || (err == nil) != killed {
			t.Errorf("%q: %q, %v", tc.console, out, err)
		}
	}
}

// joined ends each of s with a newline.
func joined(s []string) string {
	var b strings.Builder
	for _, l := range s {
		b.WriteString(l + "\n")
	}
	return b.String()
}

// TestGuestOutputComplete expects every line, in order, of a script that writes much and then
// ends at once.
func TestGuestOutputComplete(t *testing.T) {
	const lines = 5000
	r := run(t, "--mode", guestMode(t), "selftest.sh", "lines", fmt.Sprint(lines))
	if r.status != 0 {
		t.Fatalf("status %d; stderr:\n%s", r.status, r.stderr)
	}
	var want strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if r.stdout != want.String() {
		t.Errorf("%d lines arrived, or not as they were written; want %d", strings.Count(r.stdout, "\n"), lines)
	}
}

// TestGuestWorkDirectory expects the files of the script in the work directory outside of the
// guest.
func TestGuestWorkDirectory(t *testing.T) {
	dir := t.TempDir()
	if r := run(t, "--mode", guestMode(t), "--work", dir, "selftest.sh", "environment", "2", "1"); r.status != 0 {
		t.Fatalf("status %d; stderr:\n%s", r.status, r.stderr)
	}
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil || string(got) != "written\n" {
		t.Errorf("the script's file holds %q, %v", got, err)
	}
}

// TestGuestParallel runs two guests at the same time and expects them not to affect each other.
func TestGuestParallel(t *testing.T) {
	mode := guestMode(t)
	a, _, _ := start(t, "--mode", mode, "selftest.sh", "exit", "3")
	b, _, _ := start(t, "--mode", mode, "selftest.sh", "exit", "4")
	if ra, rb := status(t, a), status(t, b); ra != 3 || rb != 4 {
		t.Errorf("status %d and %d, want 3 and 4", ra, rb)
	}
}

// TestGuestCable connects two guests by a cable.
func TestGuestCable(t *testing.T) {
	mode := guestMode(t)
	path := filepath.Join(t.TempDir(), "cable")
	a, outA, _ := start(t, "--mode", mode, "--cable", path+",a", "selftest.sh", "cable", "1")
	b, outB, _ := start(t, "--mode", mode, "--cable", path+",b", "selftest.sh", "cable", "2")
	if ra, rb := status(t, a), status(t, b); ra != 0 || rb != 0 {
		t.Errorf("status %d and %d, want 0; a said:\n%s\nb said:\n%s", ra, rb, outA, outB)
	}
}

// TestGuestInterrupt ends a run with Ctrl-C or a signal and expects no processes to be left.
func TestGuestInterrupt(t *testing.T) {
	mode := guestMode(t)
	for _, tt := range []struct {
		signal syscall.Signal
		status int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGKILL, -1}} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			cmd, _, stderr := start(t, "--mode", mode, "selftest.sh", "hang")
			group := cmd.Process.Pid
			eventually(t, func() bool { return members(t, group, "qemu-system-x86") == 1 }, "qemu does not start")
			var err error
			if tt.signal == syscall.SIGINT {
				err = syscall.Kill(-group, tt.signal) // a terminal signals the whole group
			} else {
				err = cmd.Process.Signal(tt.signal)
			}
			if err != nil {
				t.Fatal(err)
			}
			if rc := status(t, cmd); rc != tt.status {
				t.Errorf("status %d, want %d; stderr:\n%s", rc, tt.status, stderr)
			}
			eventually(t, func() bool { return members(t, group, "") == 0 }, "processes are left")
		})
	}
}

// members counts the live processes of a process group, all of them or those
// whose name starts with prefix.
func members(t *testing.T, group int, prefix string) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the process has ended meanwhile
		}
		// pid (name) state ppid pgrp ...; the name may hold spaces.
		line := string(b)
		open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
		if open < 0 || end < open {
			continue
		}
		fields := strings.Fields(line[end+1:])
		if len(fields) < 3 || fields[0] == "Z" || fields[2] != fmt.Sprint(group) {
			continue
		}
		if strings.HasPrefix(line[open+1:end], prefix) {
			n++
		}
	}
	return n
}

// eventually polls cond for a minute.
func eventually(t *testing.T, cond func() bool, complaint string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatal(complaint)
		}
	}
}

// TestGuestRefusals expects one clear line, and no guest, for arguments that cannot be run.
func TestGuestRefusals(t *testing.T) {
	need(t)
	for _, tt := range []struct {
		name   string
		args   []string
		status int
	}{
		{"no script", nil, 2},
		{"script missing", []string{"missing.sh"}, 2},
		{"script outside", []string{"/etc/passwd"}, 2},
		{"no such project", []string{"--project", "missing", "selftest.sh"}, 2},
		{"script outside of the project", []string{"--project", "example", "selftest.sh"}, 2},
		{"unknown mode", []string{"--mode", "xen", "selftest.sh"}, 2},
		{"unknown kernel", []string{"--kernel", "2.4", "selftest.sh"}, 2},
		{"kernel of a guest, natively", []string{"--kernel", "6.1", "--mode", "native", "selftest.sh"}, 2},
		{"timeout not a number", []string{"--timeout", "soon", "selftest.sh"}, 2},
		{"option without value", []string{"--mem"}, 2},
		{"cable without side", []string{"--mode", "tcg", "--cable", "x", "selftest.sh", "exit", "0"}, 123},
		{"agent that nobody calls", []string{"--mode", "tcg", "--agent", "/nowhere", "selftest.sh", "exit", "0"}, 123},
		{"control by nobody", []string{"--mode", "tcg", "--qmp", "/nowhere", "selftest.sh", "exit", "0"}, 123},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if r := run(t, tt.args...); r.status != tt.status || r.stderr == "" || r.stdout != "" {
				t.Errorf("status %d, want %d; stdout %q; stderr %q", r.status, tt.status, r.stdout, r.stderr)
			}
		})
	}
}
