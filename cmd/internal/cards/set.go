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
)

// ErrFull is wrapped by errors of Add about one card too many.
var ErrFull = errors.New("the agent has its maximum number of cards")

// ErrStopping is returned by Add and Del when the process ends.
var ErrStopping = errors.New("the agent is ending")

// ConflictError is an error of Add about a name that another card has.
type ConflictError struct {
	Name  string
	Field string // the first one that differs
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: there is a card %s with another %s; delete it first, or choose another name", e.Field, e.Name,
		e.Field)
}

// Set are the cards of an agent. Its methods may be called from any goroutine. What is
// done about one card waits for nothing that is done about another.
type Set struct {
	maker  Maker
	store  *Store
	most   int // cards
	pauses pauses
	log    *slog.Logger

	collectEvery time.Duration

	mu      sync.Mutex // guards what follows; held for moments
	entries map[string]*entry
	names   map[string]*name // about which something is done
	making  int              // cards that are added now
	stopped bool
	doing   sync.WaitGroup // of Add and Del; none begins once stopped
}

// name is what something is done about.
type name struct {
	turn  chan struct{} // of capacity one: full while it is somebody's turn
	users int
}

// collectEvery is how often Collect looks: two system calls for each transient card.
const collectEvery = 5 * time.Second

// NewSet makes a set of at most that many cards.
func NewSet(maker Maker, store *Store, most int, log *slog.Logger) *Set {
	return &Set{
		maker: maker, store: store, most: most, pauses: pauses{time.Second, 30 * time.Second}, log: log,
		collectEvery: collectEvery, entries: map[string]*entry{}, names: map[string]*name{},
	}
}

// begin waits until nothing else is done about a name, and returns what ends that.
func (s *Set) begin(ctx context.Context, of string) (end func(), err error) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		return nil, ErrStopping
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

// concurrentOpens is how many cards are made at once when they come back.
const concurrentOpens = 16

// Restore makes the cards again that the store has. It returns when each has been tried:
// one that fails is tried again, beside the others. Cards whose records cannot be used are left
// out, and their names returned.
func (s *Set) Restore() (left []string) {
	specs, gone, errs := s.store.Load()
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
	var all sync.WaitGroup
	free := make(chan struct{}, concurrentOpens)
	for _, spec := range specs {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			card, err := s.maker.Open(&spec)
			if err != nil {
				s.log.Error("the card does not come back yet", "card", spec.Name, "error", err)
			}
			s.keep(&spec, card, err, 0)
		})
	}
	all.Wait()
	return left
}

// keep keeps a card, and counts so many less as making.
func (s *Set) keep(spec *Spec, card Card, err error, made int) *entry {
	e := &entry{spec: *spec, maker: s.maker, pauses: s.pauses, log: s.log}
	if spec.Transient {
		e.space, _ = spaceAt(spec.NetNS) // none, if it is not there
	}
	e.start(card, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[spec.Name] = e
	s.making -= made
	return e
}

// admit counts a card that is to be added, until it is kept or given up.
func (s *Set) admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.entries)+s.making >= s.most {
		return fmt.Errorf("%w: %d; raise --max-cards", ErrFull, s.most)
	}
	s.making++
	return nil
}

func (s *Set) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.making--
}

// Add makes a card and returns it when its netdevice is there; its session comes about
// later. A card with that request may be there: made says whether it was not. One with
// another request is a ConflictError. After an error there is what was there before.
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
	card, err := s.open(&spec)
	if err != nil {
		s.giveUp()
		return Info{}, false, err
	}
	return s.keep(&spec, card, nil, 1).info(), true, nil
}

// open records a card and makes it. After an error there is none.
func (s *Set) open(spec *Spec) (Card, error) {
	// First, so that the next process knows of all that is there, whenever this one is killed.
	if err := s.store.Put(spec); err != nil {
		return nil, errors.Join(err, s.store.Delete(spec.Name))
	}
	card, err := s.maker.Open(spec)
	if err != nil {
		return nil, errors.Join(err, s.maker.Forget(spec), s.store.Delete(spec.Name))
	}
	return card, nil
}

// Del removes a card. That there is none is no error.
func (s *Set) Del(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err // it could name a file outside of the directory
	}
	end, err := s.begin(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	if e := s.entry(name); e != nil {
		return s.remove(e)
	}
	// An earlier Del has failed, or Restore has left the card out.
	n, err := s.store.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		n.Spec = Spec{Name: name}
	}
	return errors.Join(s.maker.Forget(&n.Spec), s.store.Delete(name))
}

// remove removes a card, when it is the caller's turn.
func (s *Set) remove(e *entry) error {
	s.mu.Lock()
	delete(s.entries, e.spec.Name)
	s.mu.Unlock()
	err := e.stop(true)
	// Last, for the same reason as in Add.
	return errors.Join(err, s.store.Delete(e.spec.Name))
}

// entry is nil for no card.
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

// List returns all cards by name.
func (s *Set) List() []Info {
	all := s.all()
	list := make([]Info, 0, len(all))
	for _, e := range all {
		list = append(list, e.info())
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Spec.Name, b.Spec.Name) })
	return list
}

// all returns the entries, in no order.
func (s *Set) all() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.entries))
}

// Close ends all cards, which the next process may take over. Nothing is added or removed
// any more.
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
	s.mu.Lock() // requests may still read the list
	defer s.mu.Unlock()
	clear(s.entries)
	return errors.Join(errs...)
}
