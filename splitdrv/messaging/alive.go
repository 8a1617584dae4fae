package messaging

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
)

// beats are what the sessions of this process have in common to look after them: their
// keep-alives, their pools, and their queue pairs, which may have a device take its time.
var beats, poolBeats, queryBeats ticker.Ticker

// The peer is looked after in each part of a keep-alive interval in which it might be time to
// do something. Of the time-out there are so many at least, too: the peer is found dead two
// parts after it at most.
const (
	parts        = 8
	timeoutParts = 32
)

// partOf is how long a part is.
func partOf(cfg *Config) time.Duration {
	return max(min(cfg.KeepAlive/parts, cfg.PeerTimeout/timeoutParts), time.Millisecond)
}

// signsOfLife asks the peer for signs of life.
type signsOfLife struct {
	c        *shared
	control  *control
	requests *requests

	beat  *ticker.Task
	reply chan protocol.CfgUtilReply // to a keep-alive

	// Of the beat, and together because it comes often and to many.
	silence
	part     time.Duration
	askAfter time.Duration
	period   uint64        // in beats, from one common beat of idle sessions to the next; 0: there is none
	doubt    time.Duration // silence from which on the peer is not heard
	timeout  time.Duration
	at       time.Duration // of the last one, by the clock
	rested   bool          // beats were left out before this one
	asked    bool          // a keep-alive has not been answered
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
	l.part = partOf(&l.c.cfg)
	l.timeout = l.c.cfg.PeerTimeout
	early := 2 * l.part
	if l.c.cfg.AskLast {
		early = l.part
	}
	l.askAfter = max(interval-early, l.part) - l.part/2
	if !l.c.cfg.AskLast {
		l.period = uint64((l.askAfter+l.part-1)/l.part) + 1
	}
	l.doubt = interval - l.part - l.part/2
	l.silence.init(l, interval, math.MaxUint64) // at the first beat it was heard since
	l.unlooked = l.askAfter + l.part
	l.reply = make(chan protocol.CfgUtilReply, 1)
	l.at = l.c.clock.Now()
	l.beat = beats.Every(l.part, l.check)
}

// check asks for a sign of life if it is time, and ends the session if there has been none
// for too long. It does not wait, because the other sessions do. It returns how many beats
// can be left out: in an idle session all but that at which it asks and the one behind.
func (l *signsOfLife) check(t ticker.Tick) (rest int) {
	if l.c.stopped.Load() {
		return ticker.MaxRest
	}
	now, heard := l.c.clock.Now(), l.c.heard.Load()
	lasted := l.tick(now-l.at, 0, heard) // the clock has left out what was late
	if lasted == 0 && l.rested {
		// As if it had been heard of at the beat behind.
		lasted = max((now-time.Duration(heard)).Round(l.part)-l.part, 0)
		l.lasted = lasted
	}
	l.at = now
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
	rest = l.rest(lasted, t.N)
	l.rested = rest > 0
	return rest
}

// rest is how many beats after that of number n can be left out after such a silence: it is
// no time to ask at any of them, whether the peer is heard meanwhile or not.
func (l *signsOfLife) rest(lasted time.Duration, n uint64) int {
	after := l.after()
	if l.asked || !l.hears || lasted >= after {
		return 0
	}
	beats := int((after - lasted + l.part - 1) / l.part)
	if l.period > 0 {
		beats = min(beats, int(l.period-(n+1)%l.period))
	}
	return beats - 1
}

// after is the silence after which it asks at another than the common beat.
func (l *signsOfLife) after() time.Duration {
	if l.apart {
		return max(l.askAfter-l.part, l.part/2)
	}
	return l.askAfter
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
	if lasted < l.after() {
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
	s := l.newSilence(interval, 0)
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

func (l *signsOfLife) newSilence(interval time.Duration, heard uint64) *silence {
	s := &silence{}
	s.init(l, interval, heard)
	return s
}

func (s *silence) init(l *signsOfLife, interval time.Duration, heard uint64) {
	s.interval, s.heard = interval, heard
	s.look, s.looked, s.full = l.control.look, l.control.looked.Load, l.requests.full
	s.began = s.looked()
}

// tick ends a time that took so long, so late, with a number that differs from the one before
// if something was heard. It
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
