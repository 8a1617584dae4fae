package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/cpus"
	"github.com/splitnic/splitnic/internal/errdoc"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/verbs"
)

// TestErrdocIsComplete expects an entry in the error documentation for each item of the lists
// in the code, such as the exit statuses.
func TestErrdocIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../" + errdoc.Page)
	if err != nil {
		t.Fatal(err)
	}
	entries := errdoc.All(string(page))
	keys := map[string]bool{}
	for _, e := range entries {
		keys[e.Key] = true
	}
	if len(exitStatuses) != exit.TimedOut+1 {
		t.Errorf("the manual page has %d exit statuses", len(exitStatuses))
	}
	for status := range exit.TimedOut + 1 {
		if !keys["exit status "+strconv.Itoa(status)] {
			t.Errorf("exit status %d is not in %s", status, errdoc.Page)
		}
	}
	var names []string
	for _, c := range session.Codes() {
		names = append(names, string(c))
	}
	for _, list := range [][]string{names, session.Reasons(), messaging.Codes(), iounit.Refusals(), iounit.Rules(),
		iounit.Endings()} {
		for _, name := range list {
			if errdoc.Explain(entries, errdoc.NoStatus, name) == nil {
				t.Errorf("%q is not in %s", name, errdoc.Page)
			}
		}
	}
}

// TestErrdocOfTheDoctor expects every check of the doctor, and its complaints, to be documented.
func TestErrdocOfTheDoctor(t *testing.T) {
	devices, _ := verbs.Devices()
	named := map[string]bool{}
	for _, d := range devices {
		named[d.Name] = true
	}
	for _, f := range examine(t.Context(), "", verbs.GIDHint{}, &plannedRole{role: "iounit"}) {
		if !named[f.Check] {
			testenv.Explained(t, f.Check)
		}
	}
	var r report
	checkProcessors(&r, cpus.List{0}, cpus.List{0, 1})
	noDevice(&r, "", nil, nil)
	noDevice(&r, "", nil, []string{"mlx5_0", "mlx5_1"})
	last := r[len(r)-1]
	if !strings.Contains(last.Found, "mlx5_0, mlx5_1") || !strings.Contains(last.Fix, "ibverbs-providers") {
		t.Errorf("%+v", last)
	}
	noDevice(&r, "nodev0", []verbs.DeviceInfo{{Name: "rxe0"}}, nil)
	for _, f := range r {
		testenv.Explained(t, f.Check+" "+f.Found)
	}
}

// TestErrdocOfDevices names devices that do not exist.
func TestErrdocOfDevices(t *testing.T) {
	for _, tc := range []struct {
		name, device string
		have         []string
		status       int
	}{
		{"none", "", nil, exit.Missing},
		{"several", "", []string{"rxe0", "rxe1"}, exit.Usage},
		{"another", "mlx5_0", []string{"rxe0"}, exit.Missing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := daemon.ChooseDevice(tc.device, tc.have)
			if err == nil {
				t.Fatal("no error")
			}
			testenv.Ended(t, exit.Status(err), err.Error())
			if exit.Status(err) != tc.status {
				t.Errorf("status %d, want %d", exit.Status(err), tc.status)
			}
		})
	}
	if name, err := daemon.ChooseDevice("", []string{"rxe0"}); name != "rxe0" || err != nil {
		t.Errorf("the only one: %q, %v", name, err)
	}
}

// TestErrdocOfNames selects a process without a name where none or several run, and by a name that
// none, several, or a failed card has. It expects documented errors.
func TestErrdocOfNames(t *testing.T) {
	list, _ := machine(t)
	for name, find := range map[string]func() (string, error){
		"nobody": func() (string, error) {
			return oneSocket(t.Context(), unitRole, nil, func() ([]string, error) { return nil, nil })
		},
		"which":        func() (string, error) { return oneSocket(t.Context(), hostRole, nil, list) },
		"neither":      func() (string, error) { return socketOf(t.Context(), anyRole, "sn1", list) },
		"ambiguous":    func() (string, error) { return socketOf(t.Context(), anyRole, "eth0", list) },
		"another role": func() (string, error) { return socketOf(t.Context(), hostRole, "gw1", list) },
		"failed":       func() (string, error) { return socketOf(t.Context(), anyRole, "broken", list) },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := find(); err == nil {
				t.Fatal("no error")
			} else {
				testenv.Ended(t, exit.Status(err), err.Error())
			}
		})
	}
}
