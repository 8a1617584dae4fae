package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// Beats is the ticker of the keep-alives of all sessions of the process.
var Beats ticker.Ticker

// The ticker divides a keep-alive interval into parts, and the peer time-out into at least
// timeoutParts. A beat is the check at the end of a part. A dead peer is detected at most
// two parts after the time-out.
const (
	parts        = 8
	timeoutParts = 32
)

// PartOf returns the length of a part.
func PartOf(o *Options) time.Duration {
	return max(min(o.KeepAlive/parts, o.PeerTimeout/timeoutParts), time.Millisecond)
}

// Signs sends keep-alives and detects that the peer is silent.
type Signs struct {
	c        *core.Session
	o        *Options
	control  *Channel
	requests *Requests

	reply chan protocol.CfgUtilReply // to a keep-alive

	// Used at each beat, and next to each other, because there are many sessions.
	silence
	part     time.Duration
	askAfter time.Duration
	period   uint64        // number of beats from one common beat to the next; 0: there is no common beat
	doubt    time.Duration // length of silence after which the peer counts as not heard
	timeout  time.Duration
	at       time.Duration // time of the last beat, by the clock
	rested   bool          // beats were left out before this one
	asked    bool          // a keep-alive is unanswered
	hears    bool
	apart    bool // the last keep-alive was not sent at a common beat
}

// NewSigns returns Signs that have not begun.
func NewSigns(c *core.Session, o *Options, control *Channel, requests *Requests) *Signs {
	return &Signs{c: c, o: o, control: control, requests: requests}
}

// Start begins to measure the silence of the peer. From now on Check has to be called at each beat: it
// sends a keep-alive whenever the peer has been silent for an interval, and ends the session when
// it has been silent for Config.PeerTimeout. Any message of the peer breaks the silence.
//
// A message noticed at a beat arrived within the part before it, and the reply to a
// keep-alive arrives within the part after it. So a side that asks two parts before the
// end of the interval hears something in each interval. A side with Config.AskLast asks
// only one part before the end, which leaves time for the peer to ask first. Half a part is
// a margin for beats that are not on time.
//
// Sessions with the same interval have a common beat, at most one interval after the one
// before. An idle session asks at the common beat, however short the silence is. So the
// processors of both sides wake up once for all idle sessions.
func (l *Signs) Start() {
	interval := l.o.KeepAlive
	l.part = PartOf(l.o)
	l.timeout = l.o.PeerTimeout
	early := 2 * l.part
	if l.o.AskLast {
		early = l.part
	}
	l.askAfter = max(interval-early, l.part) - l.part/2
	if !l.o.AskLast {
		l.period = uint64((l.askAfter+l.part-1)/l.part) + 1
	}
	l.doubt = interval - l.part - l.part/2
	l.silence.init(l, interval, math.MaxUint64) // the first beat counts as having heard the peer
	l.unlooked = l.askAfter + l.part
	l.reply = make(chan protocol.CfgUtilReply, 1)
	l.at = l.c.Clock.Now()
}

// Check is called at each beat. It sends a keep-alive if one is due, and ends the session
// if the peer has been silent for too long. It must not wait, because other sessions share
// the ticker. It returns how many of the next beats can be left out: in an idle session all
// except the one at which it asks and the one after that.
func (l *Signs) Check(t ticker.Tick) (rest int) {
	if l.c.Stopped.Load() {
		return ticker.MaxRest
	}
	now, heard := l.c.Clock.Now(), l.c.Heard.Load()
	lasted := l.Tick(now-l.at, 0, heard) // the clock has left out what was late
	if lasted == 0 && l.rested {
		// The message arrived before this part, while beats were left out. Count from
		// the end of the part in which it arrived.
		lasted = max((now-time.Duration(heard)).Round(l.part)-l.part, 0)
		l.lasted = lasted
	}
	l.at = now
	if hears := lasted < l.doubt; hears != l.hears {
		l.hears = hears
		l.o.OnHears(hears)
	}
	if l.asked {
		select {
		case <-l.reply: // any status will do
			l.asked = false
		default:
		}
	}
	if l.due(lasted, t.N) && !l.asked {
		l.asked = true
		l.ask()
	}
	if l.Over(l.timeout, l.c.Heard.Load()) {
		l.c.EndLater(fmt.Errorf("%w: nothing heard for %v", core.ErrPeerSilent, l.lasted))
	}
	rest = l.rest(lasted, t.N)
	l.rested = rest > 0
	return rest
}

// rest returns how many beats after beat n can be left out, if the silence has lasted for
// lasted: those at which no keep-alive is due, whether the peer is heard until then or not.
func (l *Signs) rest(lasted time.Duration, n uint64) int {
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

// after returns the length of silence after which a keep-alive is sent at a beat that is
// not a common one.
func (l *Signs) after() time.Duration {
	if l.apart {
		return max(l.askAfter-l.part, l.part/2)
	}
	return l.askAfter
}

// due reports whether a keep-alive is due at beat n, if the silence has lasted for lasted.
// At a beat that is not a common one it is due as late as possible. If the last keep-alive
// was not sent at a common beat either, it is due one part earlier. Otherwise a session
// whose replies arrive just before the common beats, and which has no silence then, would
// never ask at a common beat.
func (l *Signs) due(lasted time.Duration, n uint64) bool {
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

// ask sends a keep-alive, now or as soon as there is room.
func (l *Signs) ask() {
	switch sent, err := l.requests.tryAsk(protocol.CfgKeepAlive, l.reply); {
	case err != nil:
		l.c.EndLater(err)
	case !sent:
		l.asking.Store(true)
		l.c.InBackground(func() error {
			_, err := l.requests.Ask(context.Background(), protocol.CfgKeepAlive, nil, l.reply)
			l.asking.Store(err != nil)
			return err
		})
	}
}

// Reach is Conn.Reach.
func (l *Signs) Reach(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	interval := min(l.o.KeepAlive, l.o.PeerTimeout/4)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	s := l.NewSilence(interval, 0)
	s.asking.Store(true)
	answered := make(chan error, 1)
	l.c.Background.Go(func() { answered <- l.askForLife(ctx, s) })
	for {
		select {
		case err := <-answered:
			if status := (*StatusError)(nil); errors.As(err, &status) {
				return nil
			}
			return err
		case due := <-tick.C:
			s.Tick(interval, time.Since(due), s.heard)
		}
		if s.Over(l.o.PeerTimeout, s.heard) {
			return fmt.Errorf("request about %v: %w", protocol.CfgKeepAlive, context.DeadlineExceeded)
		}
	}
}

// askForLife sends a keep-alive and waits for the reply.
func (l *Signs) askForLife(ctx context.Context, s *silence) error {
	p, err := l.requests.Ask(ctx, protocol.CfgKeepAlive, nil, make(chan protocol.CfgUtilReply, 1))
	if err != nil {
		return err
	}
	s.asking.Store(false)
	_, err = l.requests.await(ctx, p)
	return err
}

// silence measures for how long the peer has been silent. It counts only periods in which
// this process would have noticed a message of the peer. That is the case if
//
//   - the end of the period was noticed in time;
//   - no keep-alive was waiting to be sent, unless the maximum of requests was unanswered;
//   - the control handler had handled all messages that had arrived before the period.
//
// While this process does not run (it is stopped, or its machine is paused or overloaded),
// the peer's messages wait to be read, and its silence does not count.
type silence struct {
	interval time.Duration
	unlooked time.Duration // no look is needed before the silence has lasted for so long
	look     func() uint64 // requests a look of the control handler: see control.look
	looked   func() uint64 // returns the number of the last look done
	asking   atomic.Bool   // a keep-alive waits to be sent
	full     func() bool   // reports whether the maximum of requests is unanswered

	heard  uint64
	lasted time.Duration
	began  uint64 // look requested at the beginning of the current period
	last   uint64 // look requested when the time-out was reached; 0: it was not
}

// NewSilence begins to measure the silence of the peer, in periods of interval. heard is the count
// of its messages until now.
func (l *Signs) NewSilence(interval time.Duration, heard uint64) *silence {
	s := &silence{}
	s.init(l, interval, heard)
	return s
}

func (s *silence) init(l *Signs, interval time.Duration, heard uint64) {
	s.interval, s.heard = interval, heard
	s.look, s.looked, s.full = l.control.look, l.control.looked.Load, l.requests.full
	s.began = s.looked()
}

// Tick ends a period of length took, whose end was noticed late by late. heard differs from
// the value of the call before if a message has arrived. tick returns for how long the peer
// has been silent.
func (s *silence) Tick(took, late time.Duration, heard uint64) time.Duration {
	switch {
	case heard != s.heard:
		s.heard, s.lasted, s.last = heard, 0, 0
		return 0 // the first period of silence needs no look, because it decides nothing
	case late <= s.interval/2 && (!s.asking.Load() || s.full()) && s.looked() >= s.began:
		s.lasted += took
	}
	if s.lasted >= s.unlooked {
		s.began = s.look()
	}
	return s.lasted
}

// Over reports whether the peer has been silent for timeout. Before it reports true, it
// has the control handler look once more.
func (s *silence) Over(timeout time.Duration, heard uint64) bool {
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
