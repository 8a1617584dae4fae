package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/internal/cards/cardstest"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
)

func TestDoctorAgentState(t *testing.T) {
	dir := tree(t, map[string]string{"state/cards/web.json": "", "state/cards/db.json": "", "file": ""})
	for path, want := range map[string]string{
		"state": "ok with 2 cards", "file": "error is no directory", "none/below": "ok the agent will make it",
		"file/below": "error not a directory",
	} {
		var r report
		(&places{state: filepath.Join(dir, path), writable: func(string) error { return nil }}).checkState(&r)
		status, text, _ := strings.Cut(want, " ")
		if f := one(t, r); f.Status != status || !strings.Contains(f.Found, text) {
			t.Errorf("%s: %+v", path, f)
		}
	}
	// Directories of another user.
	for path, of := range map[string]string{"state": "", "none/below": "", "state/": "cards"} {
		forbidden := func(dir string) error {
			if of == "" || filepath.Base(dir) == of {
				return os.ErrPermission
			}
			return nil
		}
		var r report
		(&places{state: filepath.Join(dir, path), writable: forbidden}).checkState(&r)
		if f := one(t, r); f.status != exit.Permission || !strings.Contains(f.Found, of) {
			t.Errorf("%s, where %s cannot be written to: %+v", path, of, f)
		}
	}
}

func TestDoctorAgentNamespaces(t *testing.T) {
	dir := tree(t, map[string]string{"ns/net": "", "named/pod1": "", "named/pod2": ""})
	for _, c := range []struct {
		namespace string
		may       bool
		status    int
		want      string
	}{
		{"ns/net", true, 0, "2 have a name"},
		{"ns/net", false, exit.Permission, "CAP_SYS_ADMIN"},
		{"ns/none", true, exit.Missing, "no network namespaces"},
	} {
		var r report
		(&places{namespace: filepath.Join(dir, c.namespace), named: filepath.Join(dir, "named")}).checkNamespaces(&r, c.may)
		if f := one(t, r); f.status != c.status || !strings.Contains(f.Found, c.want) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

func TestDoctorAgentCNI(t *testing.T) {
	const network = `{"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": "splitnic-cni"}]}`
	for _, c := range []struct {
		files           map[string]string
		network, plugin string
	}{
		{map[string]string{"net.d/x.conflist": network, "bin/splitnic-cni": "#!"}, "ok", "ok"},
		{map[string]string{"net.d/x.conflist": network}, "ok", "error"},
		{map[string]string{"net.d/x.conflist": `{"type": "bridge"}`, "net.d/README": network}, "warning", "warning"},
		{map[string]string{"bin/splitnic-cni": "#!"}, "warning", "ok"},
		{map[string]string{"net.d/x.conf": network, "bin/splitnic-cni/x": "#!"}, "ok", "error"},
	} {
		dir := tree(t, c.files)
		if info, err := os.Stat(dir + "/bin/splitnic-cni"); err == nil && !info.IsDir() {
			if err := os.Chmod(dir+"/bin/splitnic-cni", 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var r report
		(&places{networks: dir + "/net.d", plugins: []string{dir + "/none", dir + "/bin"}}).checkCNI(&r)
		if len(r) != 2 {
			t.Fatalf("%+v", r)
		}
		if n, p := one(t, r[:1]), one(t, r[1:]); n.Status != c.network || p.Status != c.plugin {
			t.Errorf("%v: %+v", c.files, r)
		}
	}
}

// TestDoctorAgent checks the socket of an agent that runs, of one that was killed, of a process
// that is no agent, and one that does not exist.
func TestDoctorAgent(t *testing.T) {
	dir := t.TempDir()
	running, _ := cardstest.Serve(t, makeCard)
	left := filepath.Join(dir, "left.sock")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	host := filepath.Join(dir, "host.sock")
	serveHost(t, host, connected(), nil)
	for socket, want := range map[string]string{
		running: "ok", left: "warning", host: "error", filepath.Join(dir, "none.sock"): "ok",
	} {
		var r report
		(&places{socket: socket}).checkAgent(t.Context(), &r)
		if f := one(t, r); f.Status != want {
			t.Errorf("%s: %+v", socket, f)
		}
	}
}
