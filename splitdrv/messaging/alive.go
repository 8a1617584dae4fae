package messaging

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
)

// beats are what the sessions of this process have in common to look after them: their
// keep-alives, their pools, and their queue pairs, which may have a device take its time.
var beats, poolBeats, queryBeats ticker.Ticker

// parts are those of a keep-alive interval: the peer is looked after once in each.
const parts = 8

// signsOfLife asks the peer for signs of life.
type signsOfLife struct {
	c        *shared
	control  *control
	requests *requests

	beat  *ticker.Task
	reply chan protocol.CfgUtilReply // to a keep-alive

	// Of the beat, and together because it comes often and to many.
	silence
	part     time.Duration // of a keep-alive interval
	askAfter time.Duration
	period   uint64        // in beats, from one common beat of idle sessions to the next; 0: there is none
	doubt    time.Duration // silence from which on the peer is not heard
	timeout  time.Duration
	at       time.Time // of the last one
	asked    bool      // a keep-alive has not been answered
	hears    bool
	apart    bool // asked at another than the common beat
}

// start has the peer asked for a sign of life when there has been none for an interval,
// and ends the session after Config.PeerTimeout of silence. Any message of the peer's is
// a sign of life.
//
// What was heard came within the part before a beat, and a reply is to be heard in the
// part behind: who asks two parts early hears something in each interval. Who asks last
// leaves one of them to the peer. Beats are not that regular, which is the half of one.
//
// Sessions of one interval have a common beat for that, at which they would ask anyway if
// they had asked at the common beat before. One that is idle asks then, however short its
// silence is, so that the processor wakes up once for all of them, and the peer's as well.
func (l *signsOfLife) start() {
	interval := l.c.cfg.KeepAlive
	l.part = max(interval/parts, time.Millisecond)
	l.timeout = l.c.cfg.PeerTimeout
	early := 2 * l.part
	if l.c.cfg.AskLast {
		early = l.part
	}
	l.askAfter = max(interval-early, l.part) - l.part/2
	if !l.c.cfg.AskLast {
		l.period = uint64((l.askAfter+l.part-1)/l.part) + 1
	}
	l.doubt = min(interval, l.timeout/4) - l.part - l.part/2
	l.silence.init(l, interval)
	l.unlooked = l.askAfter + l.part
	l.reply = make(chan protocol.CfgUtilReply, 1)
	l.at = time.Now()
	l.beat = beats.Every(l.part, l.check)
}

// check asks for a sign of life if it is time, and ends the session if there has been none
// for too long. It does not wait, because the other sessions do.
func (l *signsOfLife) check(t ticker.Tick) {
	if l.c.stopped.Load() {
		return
	}
	lasted := l.tick(t.Now.Sub(l.at), t.Late, l.c.heard.Load())
	l.at = t.Now
	if hears := lasted < l.doubt; hears != l.hears {
		l.hears = hears
		l.c.cfg.OnHears(hears)
	}
	if l.asked {
		select {
		case <-l.reply: // how it was answered does not matter, but that it could be sent
			l.asked = false
		default:
		}
	}
	if l.due(lasted, t.N) && !l.asked {
		l.asked = true
		l.ask()
	}
	if l.over(l.timeout, l.c.heard.Load()) {
		l.c.endLater(fmt.Errorf("%w: nothing heard for %v", ErrPeerSilent, l.lasted))
	}
}

// due reports whether it is time to ask, in the beat of that number, after such a silence.
// At another than the common beat that is as late as can be, and a part earlier if that was
// so the time before, too: who hears the replies at the common beats, and has no silence then,
// would never ask at one.
func (l *signsOfLife) due(lasted time.Duration, n uint64) bool {
	if l.period > 0 && n%l.period == l.period-1 {
		if lasted > 0 {
			l.apart = false
		}
		return lasted > 0
	}
	after := l.askAfter
	if l.apart {
		after = max(after-l.part, l.part/2)
	}
	if lasted < after {
		return false
	}
	l.apart = l.period > 0
	return true
}

// ask sends a keep-alive, or has one sent as soon as there is room.
func (l *signsOfLife) ask() {
	switch sent, err := l.requests.tryAsk(protocol.CfgKeepAlive, l.reply); {
	case err != nil:
		l.c.endLater(err)
	case !sent:
		l.asking.Store(true)
		l.c.inBackground(func() error {
			_, err := l.requests.ask(context.Background(), protocol.CfgKeepAlive, nil, l.reply)
			l.asking.Store(err != nil)
			return err
		})
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
			s.tick(interval, time.Since(due), s.heard)
		}
		if s.over(l.c.cfg.PeerTimeout, s.heard) {
			return fmt.Errorf("request about %v: %w", protocol.CfgKeepAlive, context.DeadlineExceeded)
		}
	}
}

// askForLife sends a keep-alive and waits for the reply.
func (l *signsOfLife) askForLife(ctx context.Context, s *silence) error {
	p, err := l.requests.ask(ctx, protocol.CfgKeepAlive, nil, make(chan protocol.CfgUtilReply, 1))
	if err != nil {
		return err
	}
	s.asking.Store(false)
	_, err = l.requests.await(ctx, p)
	return err
}

// silence measures how long the peer has been silent, by times of which this
// process knows that it would have heard something: at the end of each it came to
// that in time, it was not busy with asking, or the peer had been asked as often as
// it can be, and the control channel's handler had seen everything that had come by
// the beginning. While this process stands still
// (it is stopped, its machine is paused or overloaded) nobody listens, and what
// the peer has sent meanwhile is still to be read.
type silence struct {
	interval time.Duration
	unlooked time.Duration // silence before which the handler need not look: nothing is decided by that
	look     func() uint64 // has the handler look; see control.look
	looked   func() uint64 // how far it has got with that
	asking   atomic.Bool   // a keep-alive is to be sent, and has not been
	full     func() bool   // as many requests are unanswered as there can be: no keep-alive could be sent

	heard  uint64
	lasted time.Duration
	began  uint64 // the last look at the beginning of a time
	last   uint64 // the one before the end, 0: it has not come to that
}

func (l *signsOfLife) newSilence(interval time.Duration) *silence {
	s := &silence{}
	s.init(l, interval)
	return s
}

func (s *silence) init(l *signsOfLife, interval time.Duration) {
	s.interval, s.heard = interval, l.c.heard.Load()
	s.look, s.looked, s.full = l.control.look, l.control.looked.Load, l.requests.full
	s.began = s.looked()
}

// tick ends a time that took so long, so late, with the count of what was heard so far. It
// returns how long the peer has been silent.
func (s *silence) tick(took, late time.Duration, heard uint64) time.Duration {
	switch {
	case heard != s.heard:
		s.heard, s.lasted, s.last = heard, 0, 0
		return 0 // the next one can be without a look: nothing is decided by it
	case late <= s.interval/2 && (!s.asking.Load() || s.full()) && s.looked() >= s.began:
		s.lasted += took
	}
	if s.lasted >= s.unlooked {
		s.began = s.look()
	}
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
