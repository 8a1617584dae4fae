//go:build cgo

package verbs

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRejectedBind binds windows with providers that reject the bind, or only the SEND behind it,
// some after they have written the new key of the window already. The window may have the new key
// only if it is bound.
func TestRejectedBind(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no compiler: this is a guest")
	}
	cc, err := exec.CommandContext(t.Context(), "go", "env", "CC").Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "bind")
	args := append(strings.Fields(string(cc)), "-Wall", "-Wextra", "-Werror", "-o", bin, "testdata/provider/bind.c",
		"-libverbs")
	if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bin).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 20 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		var send, rejected, eager, forgetful int
		var result string
		var key uint32
		if _, err := fmt.Sscanf(strings.ReplaceAll(line, ",", " "), "send %d rejected %d eager %d forgetful %d: %s key %v",
			&send, &rejected, &eager, &forgetful, &result, &key); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		// Of a provider that does not say what it has rejected, nothing is taken to be posted.
		bound := rejected < 0 || rejected == 1 && forgetful == 0
		want := map[bool]uint32{false: 0x1234ff, true: 0x123400}[bound]
		if key != want || (result == "posted") != (rejected < 0) {
			t.Errorf("%s; want key %#x", line, want)
		}
	}
}
