package cards

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsReusedNumbers ends the agent and the network namespace of a transient card, and has
// another one, with the same numbers, at the same path. The next agent must not make the card in it.
func TestNetnsReusedNumbers(t *testing.T) {
	testenv.NeedRoot(t)
	m, store := newMaker(), newStore(t)
	path, made := filepath.Join(t.TempDir(), "pod"), 0
	next := func() space {
		t.Helper()
		name := fmt.Sprintf("sntest-cards-%d-%d", os.Getpid(), made)
		made++
		if err := netns.New(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(name) })
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(netns.Path(name), path); err != nil {
			t.Fatal(err)
		}
		in, err := holdSpace(path)
		if err != nil {
			t.Fatal(err)
		}
		defer in.release()
		return in.space
	}
	first := next()
	s := newSet(t, m, store)
	spec := Spec{Name: "pod", NetNS: path, Transient: true}
	if _, _, err := s.Add(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := netns.Delete(fmt.Sprintf("sntest-cards-%d-0", os.Getpid())); err != nil {
		t.Fatal(err)
	}
	now := next()
	if now.Cookie == first.Cookie {
		t.Fatalf("%+v and %+v have the same cookie", now, first)
	}
	// When the kernel gives the numbers again is its own affair.
	reused := &heldSpace{space: space{Dev: now.Dev, Ino: now.Ino, Cookie: first.Cookie}}
	if err := store.put(&spec, reused); err != nil {
		t.Fatal(err)
	}
	later := newSet(t, m, store)
	later.Restore()
	if m.opened["pod"] != 1 || m.forgotten["pod"] != 1 || len(store.names(t)) > 0 {
		t.Errorf("made %d times, forgotten %d times, %v noted", m.opened["pod"], m.forgotten["pod"], store.names(t))
	}
}
