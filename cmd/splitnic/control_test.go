package main

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/daemon"
	"github.com/splitnic/splitnic/internal/statussock"
)

// reloads serves the reload command on the socket at path, and returns the counter of its calls.
func reloads(t *testing.T, path string, answer daemon.Reloaded, fail error) *int {
	t.Helper()
	n := 0
	s, err := statussock.Serve(path, func() any { return 1 }, statussock.Command{
		Name: daemon.CommandReload,
		Run: func(context.Context) (any, error) {
			n++
			return answer, fail
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &n
}

// TestReloadEach reloads an agent with a card, a host, and a host whose files have a mistake. It
// expects each process to be reloaded once, and the card to be left to its agent.
func TestReloadEach(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	agent := reloads(t, in("agent.sock"), daemon.Reloaded{Ended: 2, Cards: []string{in("host-web.sock")}}, nil)
	card := reloads(t, in("host-web.sock"), daemon.Reloaded{}, nil)
	host := reloads(t, in("host-sn0.sock"), daemon.Reloaded{Fingerprint: "f"}, nil)
	wrong := reloads(t, in("host-sn1.sock"), daemon.Reloaded{}, errors.New("mistake"))
	var out strings.Builder
	err := reloadEach(t.Context(), &out,
		[]string{in("agent.sock"), in("host-sn0.sock"), in("host-sn1.sock"), in("host-web.sock")}, false)
	if err == nil || !strings.Contains(err.Error(), "mistake") {
		t.Errorf("error %v", err)
	}
	if *agent != 1 || *card != 0 || *host != 1 || *wrong != 1 {
		t.Errorf("reloaded: agent %d, its card %d, host %d, host with a mistake %d", *agent, *card, *host, *wrong)
	}
	const want = "agent: reloaded, 2 sessions ended\nsn0: reloaded, key f, 0 sessions ended\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	out.Reset()
	err = reloadEach(t.Context(), &out, []string{in("host-sn0.sock"), in("host-sn1.sock")}, true)
	var list []reloaded
	if jsonErr := json.Unmarshal([]byte(out.String()), &list); jsonErr != nil || err == nil || len(list) != 2 ||
		list[0].Name != "sn0" || list[0].Fingerprint != "f" || !strings.Contains(list[1].Error, "mistake") {
		t.Errorf("%s, %v, %v", &out, err, jsonErr)
	}
}

// TestAnswersNameTheCard expects an error that a process answers with to name the process, or its
// socket where only that names it.
func TestAnswersNameTheCard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host-sn0.sock")
	refuse := func(context.Context) (any, error) { return nil, errors.New("there is no other I/O unit") }
	s, err := statussock.Serve(path, func() any { return 1 },
		statussock.Command{Name: daemon.CommandFailover, Run: refuse},
		statussock.Command{Name: daemon.CommandReload, Run: refuse},
		statussock.Command{Name: daemon.CommandHandlers, Run: refuse})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, c := range []struct{ line, want string }{
		{"reload PATH", "reload: " + path + ": there is no other I/O unit"},
		{"host failover PATH", "failover: " + path + ": there is no other I/O unit"},
		{"host handlers PATH --cpus 1=0", "handlers: " + path + ": there is no other I/O unit"},
	} {
		err := execute(t, strings.Fields(strings.ReplaceAll(c.line, "PATH", path))...)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", c.line, err, c.want)
		}
	}
	for path, want := range map[string]string{
		statussock.Dir + "/host-sn0.sock": "sn0", statussock.Dir + "/iounit-7580.sock": "iounit-7580", path: path,
	} {
		if got := shownName(path); got != want {
			t.Errorf("%s is called %q, want %q", path, got, want)
		}
	}
}
