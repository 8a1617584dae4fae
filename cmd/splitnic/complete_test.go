package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/splitnic/splitnic/cmd/internal/cards/cardstest"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

func TestCompleteNames(t *testing.T) {
	list := func() ([]string, error) {
		return []string{"/run/splitnic/agent.sock", "/run/splitnic/host-sn0.sock", "/run/splitnic/host-sn1.sock",
			"/run/splitnic/iounit-7580.sock"}, nil
	}
	for _, c := range []struct {
		role role
		args []string
		want []string
	}{
		{anyRole, nil, []string{"agent", "sn0", "sn1", "iounit-7580"}}, {hostRole, nil, []string{"sn0", "sn1"}},
		{anyRole, []string{"sn0"}, []string{"agent", "sn1", "iounit-7580"}}, {unitRole, nil, []string{"7580"}},
	} {
		if got, _ := completeNames(c.role, list)(nil, c.args, ""); !slices.Equal(got, c.want) {
			t.Errorf("%q, %q: %q, want %q", c.role, c.args, got, c.want)
		}
	}
}

// TestCompleteOfProcesses completes names that running processes report: the hosts of an I/O
// unit and the cards of an agent.
func TestCompleteOfProcesses(t *testing.T) {
	dir := t.TempDir()
	unit, left := filepath.Join(dir, "iounit-7580.sock"), filepath.Join(dir, "iounit-1.sock")
	s, err := statussock.Serve(unit, func() any {
		return daemon.UnitStatus{Status: iounit.Status{Role: "iounit", Hosts: []iounit.HostStatus{{Name: "alpha.sn0"},
			{Name: "beta.sn0"}}}, Security: daemon.SecurityStatus{Platform: 1}}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := &cobra.Command{}
	c.SetContext(t.Context())
	complete := completeHosts(func() ([]string, error) { return []string{left, unit, statussock.Path("host-sn0")}, nil })
	if got, _ := complete(c, nil, ""); !slices.Equal(got, []string{"alpha.sn0", "beta.sn0"}) {
		t.Errorf("hosts of an I/O unit: %q", got)
	}
	if got, _ := complete(c, []string{"alpha.sn0"}, ""); !slices.Equal(got, []string{"1", "7580"}) {
		t.Errorf("I/O units behind a host: %q", got)
	}
	sock, _ := cardstest.Serve(t, makeCard)
	for _, name := range []string{"web", "db"} {
		if err := execute(t, "card", "--socket", sock, "add", name); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := executed(t, "__complete", "card", "--socket", sock, "del", ""); err != nil || out != "db\nweb\n:4\n" {
		t.Errorf("cards: %q, %v", out, err)
	}
}

// TestCompleteLAN completes the argument of --lan, and the names of network namespaces.
func TestCompleteLAN(t *testing.T) {
	complete := completeLAN(func() []string { return []string{"eth0", "br0"} })
	places := []string{"eth0", "br0"}
	for _, k := range lan.Kinds() {
		places = append(places, string(k.Name)+":")
	}
	for typed, want := range map[string][]string{
		"":            places,
		"packet:":     {"packet:eth0", "packet:br0"},
		"vhost-user:": nil,
	} {
		if got, _ := complete(nil, nil, typed); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pod1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string][]string{dir: {"pod1"}, filepath.Join(dir, "none"): nil} {
		if got, _ := completeNetNS(place)(nil, nil, ""); !slices.Equal(got, want) {
			t.Errorf("namespaces: %q, want %q", got, want)
		}
	}
}

// TestCompletions requests completions as a shell does.
func TestCompletions(t *testing.T) {
	modes := ""
	for _, m := range protocol.Modes() {
		if m != protocol.ModeImm {
			modes += "imm," + string(m) + "\n"
		}
	}
	for line, want := range map[string]string{
		"top --sort ":           "name\nout\nin\npackets\ndrops\n:4\n",
		"doctor --role ":        "host\nagent\niounit\n:4\n",
		"host --protection ":    "region\nwindow\none-touch\n:4\n",
		"iounit --log-format ":  "text\njson\n:4\n",
		"iounit --modes imm,":   modes + ":6\n",
		"host --port ":          "tap\nvhost-user:\n:6\n",
		"host --offloads csum,": "csum,all\ncsum,none\ncsum,tso4\ncsum,tso6\ncsum,tsoecn\ncsum,uso\n:6\n",
		"help host ": "failover\tSwitch a host on this machine to another I/O unit\n" +
			"handlers\tShow and change the completion-queue handlers of a host on this machine\n:4\n",
	} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append([]string{"__complete"}, strings.Split(line, " ")...))
		root.SetOut(&out)
		root.SetErr(t.Output())
		if err := root.ExecuteContext(t.Context()); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v", line, out.String(), err)
		}
	}
}
