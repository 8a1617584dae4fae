package host

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// shortestRenewal is the shortest pause between two attempts to renew a session.
const shortestRenewal = 100 * time.Millisecond

// renewIn returns how long to wait before a session is renewed whose certificates are valid
// for the term t: until between a third and a half of the term is left. share is a random
// number from 0 to 1 that chooses the moment, so that hosts that were started together do
// not renew together. After a failed attempt it waits between a quarter and a half of the
// time that is left, so that attempts become more frequent. ok is false when no time is
// left.
func renewIn(t session.Term, now time.Time, tried bool, share float64) (wait time.Duration, ok bool) {
	left := t.Expires.Sub(now)
	if left <= 0 {
		return 0, false
	}
	if tried {
		return max(time.Duration(float64(left)*(0.25+share/4)), shortestRenewal), true
	}
	life := t.Expires.Sub(t.Begins)
	return max(left-time.Duration(float64(life)*(1+share/2)/3), 0), true
}

// keepRenewed renews the session in use before a certificate of either side expires, and
// after this side has read a new certificate. It returns when ctx is done.
func (h *Host) keepRenewed(ctx context.Context, a *attachment) {
	tried := false
	for {
		changed := h.cfg.Security.Changed()
		due := time.NewTimer(0)
		before, matters := a.client.Term()
		if wait, ok := renewIn(before, time.Now(), tried, h.cfg.chance()); matters && ok {
			due.Reset(wait)
		} else {
			due.Stop()
		}
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case <-changed:
			due.Stop()
		case <-due.C:
		}
		if before, matters = a.client.Term(); !matters {
			continue
		}
		err := a.client.Renew(ctx)
		after, _ := a.client.Term()
		first := !tried
		tried = !after.Expires.After(before.Expires)
		switch {
		case errors.Is(err, session.ErrNoRenewal):
			return
		case ctx.Err() != nil:
		case err != nil:
			level := slog.LevelDebug
			if first {
				level = slog.LevelWarn
			}
			h.cfg.Log.Log(ctx, level, "session not renewed", "iounit", a.addr, "error", err, "until", before.Expires)
		case !tried:
			h.sessions.renamed(a)
			h.cfg.Log.Info("session renewed", "iounit", a.addr, "key", a.client.Peer(), "until", after.Expires)
		}
	}
}

// chance returns a random number from 0 up to 1.
func (c *Config) chance() float64 {
	const parts = 1 << 20
	return float64(c.Rand(parts)) / parts
}
