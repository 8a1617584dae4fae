package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/cmd/internal/cards/cardstest"
	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
)

// makeCard makes a card without a network behind it. It fails for the name "broken".
func makeCard(spec *cards.Spec) (cardstest.Card, error) {
	if spec.Name == "broken" {
		return cardstest.Card{}, errors.New("out of paper")
	}
	return cardstest.Card{
		State: cards.Connected, Since: time.Now(), Fingerprint: "sha256:x", MAC: "02:00:00:00:00:01",
		Carrier: true, IOUnit: "u",
	}, nil
}

// executed runs a command in this process and returns its standard output.
func executed(t *testing.T, words ...string) (stdout string, err error) {
	t.Helper()
	c := rootCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs(words)
	err = c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestCardCommands adds, lists and removes cards.
func TestCardCommands(t *testing.T) {
	sock, _ := cardstest.Serve(t, makeCard)
	do := func(words ...string) string {
		t.Helper()
		out, err := executed(t, append([]string{"card", "--socket", sock}, words...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for range 2 {
		if out := do("add", "web", "--netns", "pod1", "--netdev", "eth0", "--owner", "shop/1"); out != "web eth0 sha256:x\n" {
			t.Errorf("%q", out)
		}
	}
	if out := do("add", "db", "--json"); !strings.Contains(out, `"name": "db"`) {
		t.Errorf("%q", out)
	}
	lines := strings.Split(do("list"), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "CARD") || !strings.Contains(lines[2], "pod1") ||
		!strings.Contains(lines[0], "OWNER") || !strings.Contains(lines[2], "shop/1") {
		t.Errorf("%q", lines)
	}
	if out := do("list", "--json"); !strings.Contains(out, `"cards": [`) {
		t.Errorf("%q", out)
	}
	for _, name := range []string{"web", "db", "db"} {
		if out := do("del", name); out != "" {
			t.Errorf("%q", out)
		}
	}
	if out := do("list"); out != "" {
		t.Errorf("%q", out)
	}
	if out := do("list", "--schema"); out != string(agentSchema) {
		t.Error("another schema is printed")
	}
}

// TestCardErrdoc makes requests that fail, each with its exit status and a documented error.
func TestCardErrdoc(t *testing.T) {
	sock, set := cardstest.Serve(t, makeCard)
	for _, name := range []string{"web", "db"} {
		if _, _, err := set.Add(t.Context(), cards.Spec{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	ending, ended := cardstest.Serve(t, makeCard)
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(t.TempDir(), "host.sock")
	s, err := statussock.Serve(host, func() any { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	locked := t.TempDir()
	store, err := cards.OpenStore(filepath.Join(locked, "cards"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := func(dir string) func() error {
		return func() error { _, err := cards.OpenStore(dir); return err }
	}
	card := func(sock string, words ...string) func() error {
		return func() error {
			_, err := executed(t, append([]string{"card", "--socket", sock}, words...)...)
			return err
		}
	}
	for name, x := range map[string]struct {
		do     func() error
		status int
	}{
		"no name":          {card(sock, "add"), exit.Usage},
		"bad name":         {card(sock, "add", "a/b"), exit.Usage},
		"bad netdevice":    {card(sock, "add", "a", "--netdev", "a-name-for-no-netdevice"), exit.Usage},
		"bad namespace":    {card(sock, "add", "a", "--netns", "a/b"), exit.Usage},
		"bad MAC":          {card(sock, "add", "a", "--mac", "x"), exit.Usage},
		"bad MTU":          {card(sock, "add", "a", "--mtu", "1"), exit.Usage},
		"bad queues":       {card(sock, "add", "a", "--queues", "-1"), exit.Usage},
		"bad name for DNS": {card(sock, "add", "a", "--iounit", "srv:a/b"), exit.Usage},
		"bad address":      {card(sock, "add", "a", "--iounit", ":1"), exit.Usage},
		"bad host name":    {card(sock, "add", "a", "--host-name", "a b"), exit.Usage},
		"two keys":         {card(sock, "add", "a", "--key", "k", "--new-key"), exit.Usage},
		"bad owner":        {card(sock, "add", "a", "--owner", "two words"), exit.Usage},
		"no key":           {card(sock, "add", "a", "--cert", "c"), exit.Usage},
		"another card":     {card(sock, "add", "web", "--mtu", "1500"), exit.AddressInUse},
		"too many":         {card(sock, "add", "more"), exit.Failure},
		"ending":           {card(ending, "add", "a"), exit.Failure},
		"nobody":           {card(sock+"x", "list"), exit.Missing},
		"host":             {card(host, "list"), exit.Usage},
		"relative state":   {func() error { _, err := executed(t, "agent", "--state", "x"); return err }, exit.Usage},
		"state in use":     {opened(filepath.Join(locked, "cards")), exit.AddressInUse},
		"state is a file":  {opened(filepath.Join(file, "cards")), exit.Failure},
		// The directory is in sysfs, where no process can make files.
		"unwritable state":  {opened("/sys/kernel"), exit.Permission},
		"--max-cards of 0":  {func() error { _, err := executed(t, "agent", "--max-cards", "0"); return err }, exit.Usage},
		"state is no state": {func() error { return damaged(t) }, exit.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			err := x.do()
			if got := exit.Status(err); err == nil || got != x.status {
				t.Fatalf("status %d: %v", got, err)
			}
			if text := err.Error(); x.status != exit.Failure || !strings.HasPrefix(text, "state of") {
				testenv.Ended(t, x.status, text)
			} else {
				testenv.Explained(t, text)
			}
		})
	}
}

// damaged loads a damaged state directory and returns the errors.
func damaged(t *testing.T) error {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := cards.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, _, errs := store.Load()
	return fmt.Errorf("%w", errors.Join(append(errs, store.Close())...))
}
