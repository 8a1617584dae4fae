package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
)

// TestOneSocket selects a process without a name.
func TestOneSocket(t *testing.T) {
	list, at := machine(t)
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(t.TempDir(), "host-left.sock") // of a killed process
	for _, c := range []struct {
		of    role
		there []string
		want  string
		code  int
	}{
		{hostRole, []string{at("host-sn0"), at("iounit-7580")}, at("host-sn0"), 0},
		{hostRole, []string{at("host-sn0"), left}, at("host-sn0"), 0},
		{hostRole, []string{left}, left, 0}, // asking it says what is wrong
		{frameRole, []string{at("agent"), at("host-sn0")}, at("host-sn0"), 0},
		{hostRole, []string{at("iounit-7580")}, "no host runs on this machine", exit.Missing},
		{frameRole, []string{at("agent")}, "no host or I/O unit runs on this machine", exit.Missing},
		{unitRole, nil, "no I/O unit runs on this machine", exit.Missing},
		{hostRole, all, "which host? There are: db (node1.db, eth0), sn0 (node1.sn0, lan0), web (node1.web, eth0)", exit.Usage},
		{frameRole, []string{at("host-web"), at("iounit-sn0")},
			"which host or I/O unit? There are: web (node1.web, eth0), iounit-sn0 (gw2)", exit.Usage},
	} {
		got, err := oneSocket(t.Context(), c.of, nil, func() ([]string, error) { return c.there, nil })
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) || exit.Status(err) != c.code {
			t.Errorf("%v of %q: %s (status %d), want %s", c.of, c.there, got, exit.Status(err), c.want)
		}
	}
}

// machine serves the status of two cards whose netdevices have one name, of a host, of two I/O
// units and of an agent. It returns the lister of their sockets, and a function that returns the
// path of one.
func machine(t *testing.T) (list lister, at func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	at = func(name string) string { return filepath.Join(dir, name+".sock") }
	card := func(name, netdevice string) (s daemon.HostStatus) {
		s.Role, s.Card, s.Name, s.Netdevice.Name, s.Security.Platform = "host", name, "node1."+name, netdevice, 1
		return s
	}
	unit := func(name string) (s daemon.UnitStatus) {
		s.Role, s.Name, s.Security.Platform = "iounit", name, 1
		return s
	}
	agent := daemon.AgentStatus{Role: "agent", Name: "node1", Cards: []cards.Info{
		{Spec: cards.Spec{Name: "web", Netdevice: "eth0"}, Status: cards.Status{State: cards.Connected}},
		{
			Spec:   cards.Spec{Name: "broken", Netdevice: "eth7"},
			Status: cards.Status{State: cards.Failed, Error: "no such namespace"},
		},
	}}
	var all []string
	for name, s := range map[string]any{
		"host-web": card("web", "eth0"), "host-db": card("db", "eth0"), "host-sn0": card("sn0", "lan0"),
		"iounit-7580": unit("gw1"),
		"iounit-sn0":  unit("gw2"), "agent": agent,
	} {
		server, err := statussock.Serve(at(name), func() any { return s })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		all = append(all, at(name))
	}
	slices.Sort(all)
	return func() ([]string, error) { return all, nil }, at
}

// TestSocketOf names processes in all possible ways.
func TestSocketOf(t *testing.T) {
	list, at := machine(t)
	for _, c := range []struct {
		of         role
		name, want string
		status     int
	}{
		{anyRole, "web", at("host-web"), 0}, {hostRole, "host-web", at("host-web"), 0},
		{hostRole, "node1.web", at("host-web"), 0},
		{hostRole, "lan0", at("host-sn0"), 0}, {anyRole, "7580", at("iounit-7580"), 0},
		{unitRole, "gw1", at("iounit-7580"), 0},
		{unitRole, "iounit-7580", at("iounit-7580"), 0},
		{anyRole, "agent", at("agent"), 0}, {anyRole, "node1", at("agent"), 0},
		{anyRole, "./x", "./x", 0}, {hostRole, "/run/x", "/run/x", 0}, {hostRole, "x.sock", "x.sock", 0},
		// A name of several processes is taken if only one of them has the role.
		{hostRole, "sn0", at("host-sn0"), 0}, {unitRole, "sn0", at("iounit-sn0"), 0},
		{anyRole, "sn0", `"sn0" is ambiguous; name one of: host-sn0, iounit-sn0`, exit.Usage},
		{hostRole, "eth0", `"eth0" is ambiguous; name one of: db (node1.db, eth0), web (node1.web, eth0)`, exit.Usage},
		{hostRole, "gw9", `no process serves "gw9" on this machine; there are: db (node1.db, eth0), sn0 (node1.sn0, lan0)`, exit.Missing},
		{hostRole, "gw1", `"gw1" is an I/O unit, and this command is for a host; there are: db (node1.db, eth0), sn0 (`, exit.Usage},
		{hostRole, "7580", `"7580" is an I/O unit, and this command is for a host; there are: db`, exit.Usage},
		{frameRole, "agent", `"agent" is an agent, and this command is for a host or I/O unit; there are: db`, exit.Usage},
		{hostRole, "node1", `"node1" is an agent, and this command is for a host; there are: db`, exit.Usage},
		{unitRole, "lan0", `"lan0" is a host, and this command is for an I/O unit; there are: iounit-7580 (gw1)`, exit.Usage},
		{anyRole, "eth1", "web (node1.web, eth0), iounit-7580 (gw1), iounit-sn0 (gw2)", exit.Missing},
		{hostRole, "broken", "card broken: failed, and is tried again: no such namespace", exit.Missing},
		{hostRole, "eth7", "card broken: failed", exit.Missing},
		{unitRole, "7581", "there are: iounit-7580 (gw1)", exit.Missing},
	} {
		got, err := socketOf(t.Context(), c.of, c.name, list)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || err == nil && got != c.want || exit.Status(err) != c.status {
			t.Errorf("%q, %s: %s (status %d), want %s", string(c.of), c.name, got, exit.Status(err), c.want)
		}
	}
}

// TestSocketOfSilent names a card whose process does not answer, by the name of its socket, and
// looks for another one. The socket that a killed process has left is not among those that exist.
func TestSocketOfSilent(t *testing.T) {
	left := filepath.Join(t.TempDir(), "host-sn0.sock")
	list := func() ([]string, error) { return []string{left}, nil }
	if got, err := socketOf(t.Context(), hostRole, "sn0", list); got != left || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := socketOf(t.Context(), hostRole, "sn1", list); exit.Status(err) != exit.Missing ||
		!strings.HasSuffix(err.Error(), "; there are: none") {
		t.Error(err)
	}
}

// TestSocketsOr names processes of which one does not exist, and one of them twice. It expects
// the sockets of the others, and an error.
func TestSocketsOr(t *testing.T) {
	list, at := machine(t)
	got, err := socketsOr(t.Context(), []string{"sn1", "lan0", "7580", "host-sn0"}, list)
	if !slices.Equal(got, []string{at("host-sn0"), at("iounit-7580")}) || exit.Status(err) != exit.Missing {
		t.Errorf("%q, %v", got, err)
	}
}

// TestStatusOfNobody reads the status where no process runs. It expects an empty list in JSON
// and an error.
func TestStatusOfNobody(t *testing.T) {
	nobody := func() ([]string, error) { return nil, nil }
	for _, names := range [][]string{nil, {filepath.Join(t.TempDir(), "x.sock")}} {
		var out bytes.Buffer
		f := statusFlags{json: true}
		if err := f.show(t.Context(), &out, names, nobody); exit.Status(err) != exit.Missing || out.String() != "[]\n" {
			t.Errorf("%q: %q, %v", names, out.String(), err)
		}
	}
}
