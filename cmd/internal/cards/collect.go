package cards

import (
	"context"
	"errors"
	"io/fs"
	"time"
)

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
