// Package cardstest has fake cards, and an agent that makes them.
package cardstest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/statussock"
)

// Card is a card that has this status until it is removed.
type Card cards.Status

// Run implements cards.Card.
func (Card) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements cards.Card.
func (Card) Close(bool) error { return nil }

// Status implements cards.Card.
func (c Card) Status() cards.Status { return cards.Status(c) }

// Maker is a function that makes a card, or fails.
type Maker func(*cards.Spec) (Card, error)

// Open implements cards.Maker.
func (m Maker) Open(spec *cards.Spec) (cards.Card, error) { return m(spec) }

// Forget implements cards.Maker.
func (Maker) Forget(*cards.Spec) error { return nil }

// Serve serves the API with at most two cards, and a status with them, on the socket that
// it returns, until the test ends.
func Serve(t *testing.T, m Maker) (sock string, set *cards.Set) {
	t.Helper()
	dir := t.TempDir()
	store, err := cards.OpenStore(filepath.Join(dir, "cards"))
	if err != nil {
		t.Fatal(err)
	}
	set = cards.NewSet(m, store, 2, slog.New(slog.DiscardHandler))
	sock = filepath.Join(dir, "agent.sock")
	s, err := statussock.ServeAPI(sock, cards.API(set), func() any {
		return map[string]any{"role": "agent", "max_cards": 2, "cards": set.List()}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), set.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return sock, set
}
