package messaging

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// signsOfLife asks the peer for signs of life.
type signsOfLife struct {
	c        *shared
	control  *control
	requests *requests
}

// keepAlive asks for a sign of life when there has been none for an interval,
// and ends the session after Config.PeerTimeout of silence. Any message of the
// peer's is a sign of life.
func (l *signsOfLife) keepAlive() error {
	tick := time.NewTicker(l.c.cfg.KeepAlive)
	defer tick.Stop()
	s := l.newSilence(l.c.cfg.KeepAlive)
	asked := false
	answered := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		select {
		case <-l.c.done:
			return nil
		case err := <-answered:
			// How it is answered does not matter, but that it can be sent.
			if status := (*StatusError)(nil); err != nil && !errors.As(err, &status) {
				return err
			}
			asked = false
		case due := <-tick.C:
			lasted := s.tick(time.Since(due), l.c.heard.Load())
			if lasted > 0 && !asked {
				asked = true
				s.asking.Store(true)
				l.c.background.Go(func() { answered <- l.askForLife(ctx, s) })
			}
		case <-l.control.lookDone:
		}
		if s.over(l.c.cfg.PeerTimeout, l.c.heard.Load()) {
			return fmt.Errorf("%w: nothing heard for %v", ErrPeerSilent, s.lasted)
		}
	}
}

// reach is Conn.Reach.
func (l *signsOfLife) reach(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interval := min(l.c.cfg.KeepAlive, l.c.cfg.PeerTimeout/4)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	s := l.newSilence(interval)
	s.asking.Store(true)
	answered := make(chan error, 1)
	l.c.background.Go(func() { answered <- l.askForLife(ctx, s) })
	for {
		select {
		case err := <-answered:
			if status := (*StatusError)(nil); errors.As(err, &status) {
				return nil
			}
			return err
		case due := <-tick.C:
			s.tick(time.Since(due), s.heard)
		}
		if s.over(l.c.cfg.PeerTimeout, s.heard) {
			return fmt.Errorf("request about %v: %w", protocol.CfgKeepAlive, context.DeadlineExceeded)
		}
	}
}

// askForLife sends a keep-alive and waits for the reply.
func (l *signsOfLife) askForLife(ctx context.Context, s *silence) error {
	p, err := l.requests.ask(ctx, protocol.CfgKeepAlive, nil)
	if err != nil {
		return err
	}
	s.asking.Store(false)
	_, err = l.requests.await(ctx, p)
	return err
}

// silence measures how long the peer has been silent, by intervals of which this
// process knows that it would have heard something: at the end of each it came to
// that in time, it was not busy with asking, or the peer had been asked as often as
// it can be, and the control channel's handler had seen everything that had come by
// the beginning. While this process stands still
// (it is stopped, its machine is paused or overloaded) nobody listens, and what
// the peer has sent meanwhile is still to be read.
type silence struct {
	interval time.Duration
	look     func() uint64 // has the handler look; see control.look
	looked   func() uint64 // how far it has got with that
	asking   atomic.Bool   // a keep-alive is to be sent, and has not been
	full     func() bool   // as many requests are unanswered as there can be: no keep-alive could be sent

	heard  uint64
	lasted time.Duration
	began  uint64 // the look at the beginning of the interval
	last   uint64 // the one before the end, 0: it has not come to that
}

func (l *signsOfLife) newSilence(interval time.Duration) *silence {
	s := &silence{interval: interval, look: l.control.look, looked: l.control.looked.Load, full: l.requests.full,
		heard: l.c.heard.Load()}
	s.began = s.looked()
	return s
}

// tick ends an interval, so late, with the count of what was heard so far. It
// returns how long the peer has been silent.
func (s *silence) tick(late time.Duration, heard uint64) time.Duration {
	switch {
	case heard != s.heard:
		s.heard, s.lasted, s.last = heard, 0, 0
		return 0 // the next one can be without a look: nothing is decided by it
	case late <= s.interval/2 && (!s.asking.Load() || s.full()) && s.looked() >= s.began:
		s.lasted += s.interval
	}
	s.began = s.look()
	return s.lasted
}

// over reports whether the peer has been silent for so long, when the handler has
// looked once more.
func (s *silence) over(timeout time.Duration, heard uint64) bool {
	switch {
	case s.lasted < timeout:
		return false
	case s.last == 0:
		s.last = s.look()
		return false
	case s.looked() < s.last:
		return false
	case heard != s.heard:
		s.heard, s.lasted, s.last = heard, 0, 0
		return false
	}
	return true
}
