package cards

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// mortals makes cards that live for the next of the times in lives, and the last one until it is stopped.
type mortals struct {
	lives  []time.Duration
	ended  time.Time       // end of the last card
	pauses []time.Duration // from the end of a card until the next one
}

func (m *mortals) Open(*Spec) (Card, error) {
	m.pauses = append(m.pauses, time.Since(m.ended))
	return m.next(), nil
}

func (m *mortals) next() *mortal {
	c := &mortal{of: m}
	if len(m.lives) > 0 {
		c.life, m.lives = m.lives[0], m.lives[1:]
	}
	return c
}

func (m *mortals) Forget(*Spec) error { return nil }

type mortal struct {
	of   *mortals
	life time.Duration
}

func (c *mortal) Run(ctx context.Context) error {
	if c.life == 0 {
		<-ctx.Done()
		return nil
	}
	time.Sleep(c.life)
	c.of.ended = time.Now()
	return errors.New("gone")
}

func (c *mortal) Close(bool) error { return nil }

func (c *mortal) Status() Status { return Status{} }

// TestPauses has a card fail again and again. It expects pauses that double up to the longest one, and
// that begin again with the shortest after the card was there for long.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const short, long = time.Millisecond, 9 * time.Second
		m := &mortals{lives: []time.Duration{short, short, short, short, short, long, short}}
		e := &entry{maker: m, pauses: pauses{time.Second, 8 * time.Second}, log: slog.New(slog.DiscardHandler)}
		e.start(m.next(), nil)
		time.Sleep(10 * time.Minute)
		if err := e.stop(false); err != nil {
			t.Fatal(err)
		}
		var want []time.Duration
		for _, seconds := range []time.Duration{1, 2, 4, 8, 8, 1, 2} {
			want = append(want, seconds*time.Second)
		}
		if !slices.Equal(m.pauses, want) {
			t.Errorf("pauses %v, want %v", m.pauses, want)
		}
	})
}
