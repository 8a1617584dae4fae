package cards

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// noting is a maker that looks at what the store has while a card is there.
type noting struct {
	*maker
	t     *testing.T
	store *Store
}

type notedCard struct {
	Card
	of   *noting
	name string
}

func (n *noting) look(name string) {
	if !slices.Contains(n.store.names(n.t), name) {
		n.t.Errorf("the store does not have %s, which is there", name)
	}
}

func (n *noting) Open(spec *Spec) (Card, error) {
	n.look(spec.Name)
	c, err := n.maker.Open(spec)
	return &notedCard{c, n, spec.Name}, err
}

func (c *notedCard) Close(remove bool) error {
	c.of.look(c.name)
	return c.Card.Close(remove)
}

// TestNoted has the store know of a card for as long as anything of it may be there: a
// process that is killed in between leaves nothing that the next one does not find.
func TestNoted(t *testing.T) {
	store := newStore(t)
	n := &noting{newMaker(), t, store}
	s := newSet(t, n.maker, store)
	s.maker = n
	s.add(t, "a")
	if err := s.Del(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if got := store.names(t); len(got) > 0 {
		t.Errorf("the store has %v", got)
	}
	// A card that was removed, and could not be taken out of the store.
	if err := store.Put(&Spec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Del(t.Context(), "b"); err != nil || len(store.names(t)) > 0 {
		t.Errorf("%v; the store has %v", err, store.names(t))
	}
}

// TestCollect takes the network namespaces of cards away: by their path, by another one
// that gets it, and by an empty file there. Cards that are transient go.
func TestCollect(t *testing.T) {
	m, store := newMaker(), newStore(t)
	s := newSet(t, m, store)
	s.collectEvery = time.Millisecond
	dir := t.TempDir()
	link := func(name, to string) (path string) {
		t.Helper()
		path = filepath.Join(dir, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const here, other = "/proc/self/ns/net", "/proc/self/ns/mnt"
	for _, name := range []string{"stays", "removed", "replaced", "unmounted", "kept"} {
		if _, _, err := s.Add(t.Context(), Spec{Name: name, NetNS: link(name, here), Transient: name != "kept"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"removed", "replaced", "unmounted", "kept"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("replaced", other)
	if err := os.WriteFile(filepath.Join(dir, "unmounted"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Collect(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	want := []string{"kept", "stays"}
	testenv.Eventually(t, func() bool { return slices.Equal(m.names(), want) }, "%v alone", want)
	testenv.Eventually(t, func() bool { return slices.Equal(store.names(t), want) }, "%v noted", want)
}

// TestCollectRestored has a transient card come back whose network namespace has gone: it
// cannot be made, and goes.
func TestCollectRestored(t *testing.T) {
	m, store := newMaker(), newStore(t)
	spec := Spec{Name: "late", Netdevice: "late", NetNS: filepath.Join(t.TempDir(), "gone"), Transient: true}
	if err := store.Put(&spec); err != nil {
		t.Fatal(err)
	}
	m.failing("late", os.ErrNotExist)
	s := newSet(t, m, store)
	s.Restore()
	s.collect(t.Context())
	if got := store.names(t); len(got) > 0 || len(s.List()) > 0 {
		t.Errorf("%v is noted, %+v there", got, s.List())
	}
}
