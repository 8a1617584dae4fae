package cards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/splitnic/splitnic/internal/testenv"
)

// maker is a Maker of fake cards.
type maker struct {
	mu        sync.Mutex
	open      map[string]*fake
	opened    map[string]int
	forgotten map[string]int
	fails     map[string]error         // Open of these cards fails
	held      map[string]chan struct{} // Open of these cards waits
	asked     func(name string)        // called by Status, if not nil
}

// fake is a card of a maker.
type fake struct {
	maker *maker
	name  string
	fail  chan error // what Run returns
}

func newMaker() *maker {
	return &maker{
		open: map[string]*fake{}, opened: map[string]int{}, forgotten: map[string]int{}, fails: map[string]error{},
		held: map[string]chan struct{}{},
	}
}

func (m *maker) Open(spec *Spec) (Card, error) {
	m.mu.Lock()
	held, err := m.held[spec.Name], m.fails[spec.Name]
	m.mu.Unlock()
	if held != nil {
		<-held
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opened[spec.Name]++
	if err != nil {
		return nil, err
	}
	if m.open[spec.Name] != nil {
		return nil, errors.New("opened twice")
	}
	f := &fake{maker: m, name: spec.Name, fail: make(chan error)}
	m.open[spec.Name] = f
	return f, nil
}

func (m *maker) Forget(spec *Spec) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgotten[spec.Name]++
	return nil
}

func (m *maker) names() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.open {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *maker) get(name string) *fake {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open[name]
}

func (m *maker) failing(name string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails[name] = err
}

func (f *fake) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.fail:
		return err
	}
}

func (f *fake) Close(bool) error {
	f.maker.mu.Lock()
	defer f.maker.mu.Unlock()
	delete(f.maker.open, f.name)
	return nil
}

func (f *fake) Status() Status {
	if f.maker.asked != nil {
		f.maker.asked(f.name)
	}
	return Status{State: Connected}
}

// newSet makes a set that is closed when the test ends. No card may be open then.
func newSet(t *testing.T, m *maker, store *Store) *Set {
	t.Helper()
	s := NewSet(m, store, 8, slog.New(slog.DiscardHandler))
	s.pauses = pauses{time.Millisecond, time.Millisecond}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if open := m.names(); len(open) > 0 {
			t.Errorf("%v are open after the end", open)
		}
		goleak.VerifyNone(t)
	})
	return s
}

func (s *Set) add(t *testing.T, name string) Info {
	t.Helper()
	i, _, err := s.Add(t.Context(), Spec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestAddIsIdempotent adds a card again with an equal request, which succeeds, and with another
// one, which is a conflict.
func TestAddIsIdempotent(t *testing.T) {
	m := newMaker()
	s := newSet(t, m, newStore(t))
	for n := range 3 {
		i, made, err := s.Add(t.Context(), Spec{Name: "a", MTU: 1500})
		if err != nil || made != (n == 0) || i.Spec.Netdevice != "a" || i.Status.State != Connected {
			t.Errorf("%+v, %v, %v", i, made, err)
		}
	}
	_, _, err := s.Add(t.Context(), Spec{Name: "a", MTU: 1400})
	var conflict *ConflictError
	if !errors.As(err, &conflict) || conflict.Field != "mtu" {
		t.Error(err)
	}
	if i, there := s.Get("a"); !there || i.Spec.MTU != 1500 || m.opened["a"] != 1 {
		t.Errorf("%+v, %v, opened %v", i, there, m.opened)
	}
}

// TestDel removes cards, also one that does not exist.
func TestDel(t *testing.T) {
	m, store := newMaker(), newStore(t)
	s := newSet(t, m, store)
	s.add(t, "a")
	s.add(t, "b")
	for range 2 {
		if err := s.Del(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	}
	if got := m.names(); !slices.Equal(got, []string{"b"}) || m.forgotten["a"] != 1 || m.forgotten["b"] != 0 {
		t.Errorf("%v are open, %v forgotten", got, m.forgotten)
	}
	if got := store.names(t); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the store has %v", got)
	}
}

// TestAddFails adds cards that cannot be made, or not be recorded. It expects that nothing is
// left of them, and that other cards are not affected.
func TestAddFails(t *testing.T) {
	m, store := newMaker(), newStore(t)
	s := newSet(t, m, store)
	s.add(t, "good")
	broken := errors.New("broken")
	m.failing("bad", broken)
	if _, _, err := s.Add(t.Context(), Spec{Name: "bad"}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if got := store.names(t); !slices.Equal(got, []string{"good"}) {
		t.Errorf("the store has %v", got)
	}
	store.dir += "-not-there"
	if _, _, err := s.Add(t.Context(), Spec{Name: "unnoted"}); err == nil {
		t.Error("a card that cannot be noted was added")
	}
	if got := m.names(); !slices.Equal(got, []string{"good"}) || m.forgotten["bad"] != 1 || m.opened["unnoted"] > 0 {
		t.Errorf("%v are open, %v opened, %v forgotten", got, m.opened, m.forgotten)
	}
	if list := s.List(); len(list) != 1 || list[0].Spec.Name != "good" {
		t.Errorf("%+v", list)
	}
}

// TestFull adds one card more than the set may have.
func TestFull(t *testing.T) {
	s := newSet(t, newMaker(), newStore(t))
	for n := range 8 {
		s.add(t, fmt.Sprint("c", n))
	}
	if _, _, err := s.Add(t.Context(), Spec{Name: "c9"}); !errors.Is(err, errFull) {
		t.Error(err)
	}
	s.add(t, "c3") // exists already
	if err := s.Del(t.Context(), "c3"); err != nil {
		t.Error(err)
	}
	s.add(t, "c9")
}

// TestRestore restores the cards in the next process, in which one of them cannot be made at
// first.
func TestRestore(t *testing.T) {
	store := newStore(t)
	before := newMaker()
	first := NewSet(before, store, 8, slog.New(slog.DiscardHandler))
	for _, name := range []string{"a", "b", "c"} {
		first.add(t, name)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if len(before.names()) > 0 || len(before.forgotten) > 0 {
		t.Errorf("%v are open, %v forgotten", before.names(), before.forgotten)
	}
	if _, _, err := first.Add(t.Context(), Spec{Name: "d"}); !errors.Is(err, errStopping) {
		t.Error(err)
	}
	if err := first.Del(t.Context(), "a"); !errors.Is(err, errStopping) {
		t.Error(err)
	}
	m := newMaker()
	m.failing("b", errors.New("broken"))
	s := newSet(t, m, store)
	s.Restore()
	if got := m.names(); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%v have come back", got)
	}
	if i, there := s.Get("b"); !there || i.Status.State != Failed || i.Status.Error != "broken" {
		t.Errorf("%+v, %v", i, there)
	}
	m.failing("b", nil)
	testenv.Eventually(t, func() bool { i, _ := s.Get("b"); return i.Status.State == Connected }, "b")
}

// TestFailedCard has a card fail while it runs. It expects the card to be made again, the other
// card not to be affected, and that the card can be removed while it cannot be made.
func TestFailedCard(t *testing.T) {
	m := newMaker()
	s := newSet(t, m, newStore(t))
	s.add(t, "a")
	s.add(t, "b")
	m.get("a").fail <- errors.New("gone")
	testenv.Eventually(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.opened["a"] == 2 && m.open["a"] != nil
	}, "a second a")
	m.failing("a", errors.New("broken"))
	m.get("a").fail <- errors.New("gone")
	testenv.Eventually(t, func() bool {
		i, _ := s.Get("a")
		return i.Status.State == Failed && i.Status.Error == "broken"
	}, "a failing")
	if err := s.Del(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if m.opened["b"] != 1 || m.forgotten["a"] != 1 || !slices.Equal(m.names(), []string{"b"}) {
		t.Errorf("opened %v, forgotten %v, open %v", m.opened, m.forgotten, m.names())
	}
}

// TestFullWhileMaking adds as many cards as the set may have, all at the same time, and one more
// while they are being made, which must be refused.
func TestFullWhileMaking(t *testing.T) {
	m := newMaker()
	s := newSet(t, m, newStore(t))
	release, done := make(chan struct{}), make(chan error)
	names := make([]string, s.most)
	for n := range names { // before the first is made
		names[n] = fmt.Sprint("c", n)
		m.held[names[n]] = release
	}
	for _, name := range names {
		go func() {
			_, _, err := s.Add(context.Background(), Spec{Name: name})
			done <- err
		}()
	}
	testenv.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.making == s.most
	}, "all cards being made")
	if _, _, err := s.Add(t.Context(), Spec{Name: "more"}); !errors.Is(err, errFull) {
		t.Errorf("one more: %v", err)
	}
	close(release)
	for range s.most {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestOneCardHangs has the kernel block while a card is made. It expects that other cards can be
// added and removed in the meantime, and that requests for this card wait or time out.
func TestOneCardHangs(t *testing.T) {
	m := newMaker()
	s := newSet(t, m, newStore(t))
	release := make(chan struct{})
	m.held["slow"] = release
	done := make(chan error)
	go func() {
		_, _, err := s.Add(context.Background(), Spec{Name: "slow"})
		done <- err
	}()
	testenv.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.making == 1
	}, "slow being made")
	s.add(t, "fast")
	if err := s.Del(t.Context(), "fast"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Del(ctx, "slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestCountedOnce adds the last possible card at the moment when the one before it has been
// made. It expects each card to be counted once.
func TestCountedOnce(t *testing.T) {
	m := newMaker()
	s := newSet(t, m, newStore(t))
	for i := range s.most - 2 {
		if _, _, err := s.Add(t.Context(), Spec{Name: fmt.Sprint("c", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var last error
	m.asked = func(name string) {
		if name == "a" { // Add of a reads the status that it returns
			_, _, last = s.Add(t.Context(), Spec{Name: "b"})
		}
	}
	if _, _, err := s.Add(t.Context(), Spec{Name: "a"}); err != nil || last != nil {
		t.Errorf("a: %v, b: %v", err, last)
	}
}

// TestManyAtOnce adds and removes cards from many goroutines, several for each name.
func TestManyAtOnce(t *testing.T) {
	m, store := newMaker(), newStore(t)
	s := newSet(t, m, store)
	var all sync.WaitGroup
	for n := range 24 {
		name := fmt.Sprint("c", n%8)
		all.Go(func() {
			for range 20 {
				if _, _, err := s.Add(context.Background(), Spec{Name: name}); err != nil {
					t.Error(err)
				}
				if err := s.Del(context.Background(), name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := store.names(t); len(got) > 0 || len(m.names()) > 0 || len(s.List()) > 0 || len(s.names) > 0 {
		t.Errorf("%v in the store, %v open, %v listed, %v in use", got, m.names(), s.List(), s.names)
	}
}

// TestSetListsWhileItCloses lists the cards while the set is closed: the server of the socket
// does not wait for the requests that came before.
func TestSetListsWhileItCloses(t *testing.T) {
	s := NewSet(newMaker(), newStore(t), 8, slog.New(slog.DiscardHandler))
	for i := range 8 {
		if _, _, err := s.Add(t.Context(), Spec{Name: fmt.Sprint("c", i)}); err != nil {
			t.Fatal(err)
		}
	}
	var asking sync.WaitGroup
	began := time.Now()
	asking.Go(func() {
		for time.Since(began) < 200*time.Millisecond { // a channel would order the accesses
			s.List()
		}
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	asking.Wait()
	if l := s.List(); len(l) != 0 {
		t.Errorf("%d cards are left", len(l))
	}
}

// TestRestoreRemovesTheGone restores cards of an earlier boot whose network namespaces do not
// exist any more, even if a new namespace has the same path. It expects everything of such a
// card to be removed, also the key that was made for it, which another card of the same name
// must not get.
func TestRestoreRemovesTheGone(t *testing.T) {
	store := newStore(t)
	for _, spec := range []Spec{
		{Name: "pod", Netdevice: "pod", NetNS: "/run/netns/no-such-pod", NewKey: true},
		{Name: "process", Netdevice: "process", NetNS: "/proc/thread-self/ns/net", NewKey: true, Transient: true},
		{Name: "own", Netdevice: "own", NewKey: true},
	} {
		if err := store.Put(&spec); err != nil {
			t.Fatal(err)
		}
	}
	store.boot = "another"
	m := newMaker()
	s := newSet(t, m, store)
	s.Restore()
	if m.forgotten["pod"] != 1 || m.forgotten["process"] != 1 || m.forgotten["own"] != 0 ||
		!slices.Equal(m.names(), []string{"own"}) {
		t.Errorf("%v forgotten, %v open", m.forgotten, m.names())
	}
	if got := store.names(t); !slices.Equal(got, []string{"own"}) {
		t.Errorf("the store has %v", got)
	}
}

// TestRestoreInAnotherNamespace restores a transient card when the path of its network namespace
// has become that of another one, which must not get the card.
func TestRestoreInAnotherNamespace(t *testing.T) {
	store := newStore(t)
	const ns = "/proc/thread-self/ns/net"
	for name, transient := range map[string]bool{"pod": true, "reused": true, "same": true, "fixed": false} {
		if err := store.Put(&Spec{Name: name, Netdevice: name, NetNS: ns, Transient: transient}); err != nil {
			t.Fatal(err)
		}
	}
	here, err := holdSpace(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer here.release()
	if here.Cookie == 0 {
		t.Fatal("the namespace has no cookie")
	}
	// Namespace "reused" has the numbers of one that is gone.
	for name, number := range map[string]uint64{"pod": here.Ino, "fixed": here.Ino, "reused": here.Cookie} {
		text, err := os.ReadFile(store.path(name))
		if err != nil {
			t.Fatal(err)
		}
		other := strings.Replace(string(text), fmt.Sprintf(": %d", number), fmt.Sprintf(": %d", number+1), 1)
		if err := os.WriteFile(store.path(name), []byte(other), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newMaker()
	s := newSet(t, m, store)
	s.Restore()
	if m.forgotten["pod"] != 1 || m.forgotten["reused"] != 1 || !slices.Equal(m.names(), []string{"fixed", "same"}) {
		t.Errorf("%v forgotten, %v open", m.forgotten, m.names())
	}
}

// TestDelStaysInItsDirectory removes a card whose name is a path. It expects an error, and the
// file at this path to stay.
func TestDelStaysInItsDirectory(t *testing.T) {
	store := newStore(t)
	s := newSet(t, newMaker(), store)
	victim := store.path("../victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var field *FieldError
	if err := serve(t, s).Del(t.Context(), "../victim"); err == nil || !strings.Contains(err.Error(), "name") {
		t.Error(err)
	}
	if err := s.Del(t.Context(), "../victim"); !errors.As(err, &field) || field.Field != "name" {
		t.Error(err)
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
}
