package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// headStart is how long an I/O unit has until the next one is tried as well, so
// that one whose machine is gone, which nobody says, holds up the others no
// longer than that (as in RFC 8305 for addresses). An I/O unit that refuses, or
// whose machine does, holds up nobody.
const headStart = 200 * time.Millisecond

// answerStart is how long it has from when its machine has answered: it is there,
// and only its process may not be.
const answerStart = time.Second

// patient is such a time with what the configuration says.
func (h *Host) patient(d time.Duration) time.Duration { return max(d, h.cfg.Patience) }

// connect is Run without those who follow the netdevice.
func (h *Host) connect(ctx context.Context) error {
	retry := backoff{min: h.cfg.RetryMin, max: h.cfg.RetryMax, rand: h.cfg.Rand}
	order := sequence(len(h.cfg.IOUnits), none)
	defer close(h.over)
	for {
		a, restarting, err := h.reach(ctx, order, &retry)
		if err != nil {
			return err
		}
		pause := time.Duration(0)
		if a != nil {
			e := h.serve(ctx, a)
			if errors.Is(e.err, ErrNetdeviceGone) {
				return e.err
			}
			order = sequence(len(h.cfg.IOUnits), e.unit)
			if e.next != none {
				order = startingWith(order, e.next)
			} else {
				pause = retry.ended(e.lasted)
			}
		} else {
			order = sequence(len(h.cfg.IOUnits), none)
			if restarting {
				pause = retry.restarting()
			} else {
				pause = retry.failed()
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// dialled is an I/O unit that answers and is the right one, or why not.
type dialled struct {
	unit   int
	client *session.Client
	took   time.Duration
	again  bool   // not for the first time in this race
	heard  func() // called when there was an answer in opening the session; may be nil
	err    error
}

// dial connects to an I/O unit and authenticates it. answered, which may be nil, is
// told when its machine has answered, if there is room.
func (h *Host) dial(ctx context.Context, unit int, answered chan<- struct{}) dialled {
	began := time.Now()
	c, err := session.Dial(ctx, h.cfg.IOUnits[unit], session.ClientConfig{
		Security: h.cfg.Security, PeerTimeout: h.cfg.Messaging.PeerTimeout, HandshakeTimeout: h.cfg.HandshakeTimeout,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				select {
				case answered <- struct{}{}:
				default:
				}
			}
			return c, err
		},
	})
	return dialled{unit: unit, client: c, took: time.Since(began), err: err}
}

// note makes an I/O unit the one that was tried last, in vain if there is an
// error.
func (h *Host) note(unit int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unit = h.cfg.IOUnits[unit]
	if err != nil {
		h.lastErr = err
		h.countEnd(err)
		h.attempts++
	}
}

// level is the level at which to log why there is no session with an I/O unit: an
// administrator wants to read the same reason once, until there was a session.
// Numbers make no other reason of it: how long to wait, how much memory is in use,
// which port a connection came from.
func (h *Host) level(unit int, err error) slog.Level {
	reason := numbers.ReplaceAllLiteralString(err.Error(), "0")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reasons[unit] == reason {
		return slog.LevelDebug
	}
	h.reasons[unit] = reason
	return slog.LevelWarn
}

// numbers are those in a text, with their units.
var numbers = regexp.MustCompile(`[0-9][0-9.a-zµ]*`)

func (h *Host) ever() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions
}
