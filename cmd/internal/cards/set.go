package cards

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// errFull is wrapped by errors of Add if there would be too many cards.
var errFull = errors.New("the agent has its maximum number of cards")

// errStopping is returned by Add and Del when the process is ending.
var errStopping = errors.New("the agent is ending")

// ConflictError is an error of Add: another card has the name.
type ConflictError struct {
	Name  string
	Field string // the first one that differs
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: there is a card %s with another %s; delete it first, or choose another name", e.Field, e.Name,
		e.Field)
}

// Set has the cards of an agent. Any goroutine may call its methods. Operations on one card do
// not wait for those on another card.
type Set struct {
	maker  Maker
	store  *Store
	most   int // maximum number of cards
	pauses pauses
	log    *slog.Logger

	collectEvery time.Duration

	mu      sync.Mutex // guards the fields below; held only briefly
	entries map[string]*entry
	names   map[string]*name // cards with operations in progress or waiting
	making  int              // number of cards that are being added
	stopped bool
	doing   sync.WaitGroup // operations; none begins after stopped is set
}

// name serialises the operations on the card with a name.
type name struct {
	turn  chan struct{} // of capacity one: full while an operation is in progress
	users int
}

// collectEvery is the interval of the checks by Collect, which take two system calls for each
// transient card.
const collectEvery = 5 * time.Second

// NewSet makes a Set. most is the maximum number of its cards.
func NewSet(maker Maker, store *Store, most int, log *slog.Logger) *Set {
	return &Set{
		maker: maker, store: store, most: most, pauses: pauses{time.Second, 30 * time.Second}, log: log,
		collectEvery: collectEvery, entries: map[string]*entry{}, names: map[string]*name{},
	}
}

// begin waits until no other operation on a name is in progress, and begins one. The caller calls
// end when the operation is done.
func (s *Set) begin(ctx context.Context, of string) (end func(), err error) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil, errStopping
	}
	s.doing.Add(1)
	n := s.names[of]
	if n == nil {
		n = &name{turn: make(chan struct{}, 1)}
		s.names[of] = n
	}
	n.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n.users--; n.users == 0 {
			delete(s.names, of)
		}
		s.doing.Done()
	}
	select {
	case n.turn <- struct{}{}:
		return func() { <-n.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// concurrentOpens is the number of cards that Restore makes at the same time.
const concurrentOpens = 16

// Restore makes the cards in the store again. It returns when it has tried each card once. A card
// that fails is tried again in the background. left has the names of the cards whose records
// cannot be used; these cards are not made.
func (s *Set) Restore() (left []string) {
	all, gone, errs := s.store.load()
	for i := range gone {
		s.log.Info("a card is gone with its network namespace", "card", gone[i].Name, "netns", gone[i].NetNS)
		errs = append(errs, s.maker.Forget(&gone[i]), s.store.Delete(gone[i].Name))
	}
	for _, err := range errs {
		if err == nil {
			continue
		}
		if damaged := (*recordError)(nil); errors.As(err, &damaged) {
			left = append(left, damaged.name)
		}
		s.log.Error("a card does not come back", "error", err)
	}
	var opens errgroup.Group
	opens.SetLimit(concurrentOpens)
	for _, n := range all {
		opens.Go(func() error {
			e := s.newEntry(&n.Spec)
			if n.elsewhere(e.space) { // since load has looked
				e.space.release()
				e.space = nil
			}
			card, err := e.open()
			if err != nil {
				s.log.Error("the card does not come back yet", "card", n.Spec.Name, "error", err)
			}
			s.keep(e, card, err, 0)
			return nil
		})
	}
	_ = opens.Wait()
	return left
}

func (s *Set) newEntry(spec *Spec) *entry {
	return &entry{spec: *spec, maker: s.maker, pauses: s.pauses, log: s.log, space: spaceOf(spec)}
}

// keep adds and starts an entry, and reduces making by made.
func (s *Set) keep(e *entry, card Card, err error, made int) *entry {
	e.start(card, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[e.spec.Name] = e
	s.making -= made
	return e
}

// admit counts a card that is to be added in making. The caller calls keep or giveUp later.
func (s *Set) admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries)+s.making >= s.most {
		return fmt.Errorf("%w: %d; raise --max-cards", errFull, s.most)
	}
	s.making++
	return nil
}

func (s *Set) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making--
}

// Add makes a card, and returns it when its netdevice exists; the card connects later. If a card
// with an equal request exists, Add returns that one, and made is false. If a card with the same
// name but another request exists, the error is a ConflictError. After an error, the cards are
// the same as before.
func (s *Set) Add(ctx context.Context, spec Spec) (i Info, made bool, err error) {
	if spec, err = spec.Complete(); err != nil {
		return Info{}, false, err
	}
	end, err := s.begin(ctx, spec.Name)
	if err != nil {
		return Info{}, false, err
	}
	defer end()
	if e := s.entry(spec.Name); e != nil {
		if field := e.spec.Differs(&spec); field != "" {
			return Info{}, false, &ConflictError{spec.Name, field}
		}
		return e.info(), false, nil
	}
	if err := s.admit(); err != nil {
		return Info{}, false, err
	}
	e := s.newEntry(&spec)
	card, err := s.open(e)
	if err != nil {
		e.space.release()
		s.giveUp()
		return Info{}, false, err
	}
	return s.keep(e, card, nil, 1).info(), true, nil
}

// open records a card and makes it. After an error, neither the card nor its record exists.
func (s *Set) open(e *entry) (Card, error) {
	spec := &e.spec
	// The record comes first, so that the next process knows all cards whenever this process is
	// killed.
	if err := s.store.put(spec, e.space); err != nil {
		return nil, errors.Join(err, s.store.Delete(spec.Name))
	}
	card, err := e.open()
	if err != nil {
		return nil, errors.Join(err, s.maker.Forget(spec), s.store.Delete(spec.Name))
	}
	return card, nil
}

// Del removes a card. It is no error if there is no such card.
func (s *Set) Del(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err // the name could be the path of a file outside of the state directory
	}
	end, err := s.begin(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	if e := s.entry(name); e != nil {
		return s.remove(e)
	}
	// If there is a record, an earlier Del has failed, or Restore has left the card out.
	n, err := s.store.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		n.Spec = Spec{Name: name}
	}
	return errors.Join(s.maker.Forget(&n.Spec), s.store.Delete(name))
}

// remove removes a card. The caller has begun an operation on it.
func (s *Set) remove(e *entry) error {
	s.mu.Lock()
	delete(s.entries, e.spec.Name)
	s.mu.Unlock()
	err := e.stop(true)
	// The record goes last, for the same reason as in open.
	return errors.Join(err, s.store.Delete(e.spec.Name))
}

func (s *Set) entry(name string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[name]
}

// Get returns a card.
func (s *Set) Get(name string) (i Info, there bool) {
	if e := s.entry(name); e != nil {
		return e.info(), true
	}
	return Info{}, false
}

// List returns all cards, sorted by name.
func (s *Set) List() []Info {
	all := s.all()
	list := make([]Info, 0, len(all))
	for _, e := range all {
		list = append(list, e.info())
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return list
}

// all returns the entries in no particular order.
func (s *Set) all() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.entries))
}

// Close closes all cards, which the next process may adopt. Afterwards no card can be added or
// removed.
func (s *Set) Close() error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.doing.Wait()
	all := s.all()
	results := make(chan error)
	for _, e := range all {
		go func() { results <- e.stop(false) }()
	}
	var errs []error
	for range all {
		errs = append(errs, <-results)
	}
	s.mu.Lock() // requests may still call List
	defer s.mu.Unlock()
	clear(s.entries)
	return errors.Join(errs...)
}

// gone reports whether the network namespace of a transient card is gone: its path does not
// exist any more, or has another namespace. So the netdevice cannot be found by the path.
func (e *entry) gone() bool {
	if !e.spec.Transient {
		return false
	}
	is, err := e.space.isAt(e.spec.NetNS)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !is
}

// Collect removes transient cards whose network namespace is gone, until ctx is done. The
// kernel does not remove them, because the descriptors of a netdevice keep its namespace.
func (s *Set) Collect(ctx context.Context) {
	tick := time.NewTicker(s.collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.collect(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (s *Set) collect(ctx context.Context) {
	for _, e := range s.all() {
		if !e.gone() {
			continue
		}
		if err := s.collectOne(ctx, e.spec.Name); err != nil {
			s.log.Warn("a card whose network namespace is gone", "card", e.spec.Name, "error", err)
		}
	}
}

// collectOne waits until no other operation on the card is in progress. It removes the card if
// its namespace is then still gone.
func (s *Set) collectOne(ctx context.Context, name string) error {
	end, err := s.begin(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	e := s.entry(name)
	if e == nil || !e.gone() {
		return nil
	}
	s.log.Info("removing a card whose network namespace is gone", "card", name, "netns", e.spec.NetNS,
		"owner", e.spec.Owner)
	return s.remove(e)
}
