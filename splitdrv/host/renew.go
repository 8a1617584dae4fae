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

// renewIn is how long to wait until a session is renewed whose certificates are valid
// for a term: until between a third and half of it is left, at random, so that hosts
// which were started together do not come together. When it has been tried in vain,
// it is between a half and three quarters of what is left, so that there are more
// attempts as the end comes nearer. Nothing helps when none is left: the term is no
// matter to the peer then. share, from 0 up to 1, is the chance in it.
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

// keepRenewed renews the session in use before one of the certificates expires that
// were shown for it, and when this side has read its own again. It returns when ctx
// is done.
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

// chance is a random number from 0 up to 1.
func (c *Config) chance() float64 {
	const parts = 1 << 20
	return float64(c.Rand(parts)) / parts
}
