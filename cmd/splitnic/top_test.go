package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/cmd/splitnic/internal/exit"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestTop runs `splitnic top` for two hosts, of which one does not exist.
func TestTop(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "a.sock")
	serveHost(t, there, connected(), nil)
	for _, line := range []string{"--once", "--count 1 --totals", "--count 1 --sort drops"} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append([]string{"top", "--interval", "1ms", there, there + "x"}, strings.Fields(line)...))
		root.SetOut(&out)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		lines := strings.Split(out.String(), "\n")
		if len(lines) != 4 || !strings.HasPrefix(lines[0], "CARD ") || !strings.HasPrefix(lines[1], "sn0 ") ||
			!strings.Contains(lines[2], "no process serves") {
			t.Errorf("%s:\n%s", line, &out)
		}
	}
	out, err := executed(t, "top", "--json", "--interval", "1ms", there)
	var cards []struct {
		Name    string   `json:"name"`
		OutBits *float64 `json:"out_bits_per_second"`
		Paths   []any    `json:"paths"`
	}
	if jsonErr := json.Unmarshal([]byte(out), &cards); jsonErr != nil || err != nil || len(cards) != 1 ||
		cards[0].Name != "sn0" || cards[0].OutBits == nil || cards[0].Paths == nil {
		t.Errorf("%s, %v, %v", out, err, jsonErr)
	}
	err = execute(t, "top", "--once", there+"x")
	if exit.Status(err) != exit.Missing {
		t.Fatalf("of nobody: %v", err)
	}
	testenv.Ended(t, exit.Missing, err.Error())
}

// TestTopAgent takes a sample of an agent, with a card that is also named. It expects the card once,
// and an error about the card that has failed.
func TestTopAgent(t *testing.T) {
	list, _ := machine(t)
	s, err := sample(t.Context(), []string{"agent", "web"}, list)
	if err == nil || !strings.Contains(err.Error(), "card broken: failed") {
		t.Errorf("error %v", err)
	}
	found := s.Since(s)
	if len(found) != 1 || found[0].Name != "web" {
		t.Errorf("cards %+v", found)
	}
}

func TestTopMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"top --interval 0s":                 "--interval 0s: must be above 0",
		"top --sort size":                   `--sort "size": must be one of name, out, in, packets, drops`,
		"top --count -1":                    "--count -1: must be 0 or more",
		"top --once --count 3":              "--count 3: --once and --json print one table",
		"top --interval 2":                  `--interval: "2" must be a time with its unit, such as 2s`,
		"top --sort size --interval -1s --": "--interval -1s: must be above 0\n--sort",
	} {
		err := execute(t, strings.Fields(line)...)
		if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
			continue
		}
		for text := range strings.Lines(err.Error()) {
			testenv.Ended(t, exit.Usage, strings.TrimSpace(text))
		}
	}
}
