package cards

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
)

// noting is a maker that expects the store to have a card while it opens and closes the card.
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

// TestNoted expects the store to have a card as long as any part of the card may exist. So if
// the process is killed in between, the next one finds what is left.
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
	// Card b was removed, but its record could not be deleted from the store.
	if err := store.Put(&Spec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Del(t.Context(), "b"); err != nil || len(store.names(t)) > 0 {
		t.Errorf("%v; the store has %v", err, store.names(t))
	}
}

// TestCollect removes the network namespaces of cards: the path is removed, becomes that of
// another namespace, or of an empty file. It expects the transient cards to be removed.
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

// TestCollectRestored restores a transient card whose network namespace does not exist any more.
// It expects the card, which cannot be made, to be removed.
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

// TestFailedInAnotherNamespace has a transient card fail whose path has become that of another
// network namespace. The card must not be made there, not even until it is removed.
func TestFailedInAnotherNamespace(t *testing.T) {
	m, store := newMaker(), newStore(t)
	s := newSet(t, m, store)
	path := filepath.Join(t.TempDir(), "pod")
	if err := os.Symlink("/proc/self/ns/net", path); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Add(t.Context(), Spec{Name: "pod", NetNS: path, Transient: true}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.Symlink("/proc/self/ns/mnt", path)); err != nil {
		t.Fatal(err)
	}
	m.get("pod").fail <- errors.New("its netdevice was deleted")
	opened := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.opened["pod"]
	}
	testenv.Eventually(t, func() bool {
		i, _ := s.Get("pod")
		return opened() > 1 || i.Status.Error == errElsewhere.Error()
	}, "another attempt")
	if n := opened(); n != 1 {
		t.Errorf("the card was made %d times", n)
	}
	s.collect(t.Context())
	if got := store.names(t); len(got) > 0 || len(s.List()) > 0 {
		t.Errorf("%v is noted, %+v there", got, s.List())
	}
}

// TestReplacedWhileMade replaces the network namespace of a transient card while the card is made.
// The card must not stay in the other namespace.
func TestReplacedWhileMade(t *testing.T) {
	m, store := newMaker(), newStore(t)
	s := newSet(t, m, store)
	path := filepath.Join(t.TempDir(), "pod")
	if err := os.Symlink("/proc/self/ns/net", path); err != nil {
		t.Fatal(err)
	}
	s.maker = replacing{m, func() {
		if err := errors.Join(os.Remove(path), os.Symlink("/proc/self/ns/mnt", path)); err != nil {
			t.Error(err)
		}
	}}
	_, _, err := s.Add(t.Context(), Spec{Name: "pod", NetNS: path, Transient: true})
	if !errors.Is(err, errElsewhere) || len(m.names()) > 0 || len(store.names(t)) > 0 {
		t.Errorf("%v; %v is open, %v noted", err, m.names(), store.names(t))
	}
	testenv.Explained(t, errElsewhere.Error())
}

// replacing is a maker that replaces a namespace before it makes a card.
type replacing struct {
	*maker
	replace func()
}

func (r replacing) Open(spec *Spec) (Card, error) {
	r.replace()
	return r.maker.Open(spec)
}
