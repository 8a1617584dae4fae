package iounit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/iounit/guard"
	"github.com/splitnic/splitnic/splitdrv/iounit/policy"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Unit is an I/O unit.
type Unit struct {
	cfg        Config
	protecting messaging.ProtectionInForce // protection in modes that lend memory
	without    string                      // why a mode is not offered; empty if all are that were asked for
	started    time.Time
	lines      limit.Log               // limit of log lines about connections
	setups     *limit.Queue[limit.Key] // see newSetups
	costs      *limit.Keyed            // limit of the cost of hosts' requests

	listener atomic.Pointer[session.Listener] // nil before Run

	common
	*tallies
	roster
	policy   atomic.Pointer[policy.Policy] // written under roster.mu
	handling map[string]cq.Handling        // by key of hosts whose handlers were changed; guarded by roster.mu
}

// New returns an I/O unit, which does nothing before Run.
func New(cfg Config) (*Unit, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	protecting, err := messaging.ChooseProtection(cfg.Messaging.Protection, device.WindowsOf(cfg.Device))
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", cfg.Device.Name(), err)
	}
	if err := device.Lacks(cfg.Device, fabric.RC); err != nil {
		return nil, err
	}
	without, err := cfg.carried()
	if err != nil {
		return nil, err
	}
	u := &Unit{
		cfg: cfg, protecting: protecting, without: without, started: time.Now(), setups: newSetups(),
		costs: limit.NewKeyed(requestRate),
		common: common{
			addresses: newAddresses(cfg.LinkState),
			stations:  guard.NewStations(),
			encrypt:   cfg.Encrypt,
		},
		tallies:  newTallies(),
		roster:   roster{log: cfg.Log, hosts: make(map[string]*attachment), left: make(chan struct{})},
		handling: make(map[string]cq.Handling),
	}
	u.policy.Store(cfg.Policy)
	if cfg.Direct {
		u.direct = newDirecting(cfg, &u.policy)
	}
	return u, nil
}

// Captures returns the point where frames on the fabric can be captured.
func (u *Unit) Captures() *capture.Point { return &u.captures }

// Rejected counts and logs a connection that did not become a session. It is meant for
// session.ServerConfig.Rejected.
func (u *Unit) Rejected(remote net.Addr, err error) {
	reason := session.Reason(err)
	if reason == reasonElsewhere {
		u.wentElsewhere(u.cfg.Log, "from", remote, "error", err)
		return
	}
	u.turnedAway(reason)
	u.lines.Once(connectionRefused(remote, err), u.cfg.Log, slog.LevelWarn, "connection refused",
		"from", remote, "error", err)
}

// wentElsewhere counts and logs a host that said that it uses another I/O unit.
func (u *Unit) wentElsewhere(log *slog.Logger, args ...any) {
	u.elsewhere.Add(1)
	log.Debug("a host uses another I/O unit", args...)
}

// leastBurst is the least number of sessions that a key may open at once. It is enough for
// several restarts and fail-overs of its hosts in a row.
const leastBurst = 16

// Burst returns how many sessions a peer may open at once: twice as many as it may have, as
// after a restart of this I/O unit, but at least leastBurst. It is meant for
// session.ServerConfig.Burst.
func (u *Unit) Burst(id session.Identity) int {
	if id.Insecure {
		return max(leastBurst, 2*u.cfg.MaxHosts) // all hosts have this identity
	}
	return max(leastBurst, 2*u.policy.Load().For(id.Fingerprint.String(), id.Name).MaxSessions)
}

// paced returns for how long a request of a host has to wait (messaging.Config.Pace). All
// sessions of a key share the limit, including those that have ended.
func (u *Unit) paced(h *host, t protocol.CfgType, data []byte) time.Duration {
	burst := costSession * u.Burst(h.peer())
	return u.costs.Spend(time.Now(), h.limits, costOf(t, data), burst)
}

// over counts and logs the end of a session, or of an attempt to open one.
func (u *Unit) over(a *attachment, err error) {
	args := []any{"session", a.s.SessionID(), "error", err, "lasted", time.Since(a.since).Round(time.Millisecond)}
	if a.established {
		u.violation(err)
		u.count(u.ended, ending(err))
		a.log.Log(context.Background(), severity(err), "session ended", args...)
		return
	}
	reason := session.Reason(err)
	switch {
	case reason == reasonElsewhere:
		u.wentElsewhere(a.log, args...)
		return
	case errors.Is(err, errPolicy):
		reason = string(session.CodePolicy)
	}
	u.turnedAway(reason)
	u.lines.Once(hostRefused(a.key, reason, err), a.log, slog.LevelWarn, "session ended", args...)
}

// refuseForNow refuses a host that may try again later.
func (u *Unit) refuseForNow(a *attachment, err error) {
	code := session.CodeBusy
	switch {
	case errors.Is(err, errFull), errors.Is(err, errSessions):
		code = session.CodeFull
	case errors.Is(err, errDraining):
		code = session.CodeDraining
	case errors.Is(err, context.Canceled):
		code, err = session.CodeShuttingDown, errShuttingDown
	}
	u.refuse(a, code, err)
}

// decline refuses a host because of the error of a step before its session is established.
func (u *Unit) decline(a *attachment, err error) {
	code := codeOf(err)
	if coded := (*codedError)(nil); errors.As(err, &coded) {
		code, err = coded.code, coded.err
	}
	u.refuse(a, code, err)
}

func (u *Unit) refuse(a *attachment, code session.Code, err error) {
	u.turnedAway(string(code))
	u.lines.Once(hostRefused(a.key, string(code), err), a.log, slog.LevelWarn, "host refused", "code", code, "error", err)
	if err := a.s.Refuse(code, err.Error()); err != nil {
		a.log.Debug("refusal not delivered", "error", err)
	}
}

// patience returns the time until which a host's previous session has to end. It is half of
// the time that is left for the handshake, so that the host can still be refused with a
// reason.
func patience(now, deadline time.Time) time.Time { return now.Add(deadline.Sub(now) / 2) }

// enter adds a to the hosts. A host that connects again, because it was killed or lost the
// connection and that was not noticed yet, replaces its old session, which is ended first and
// has to end before deadline. Of several attempts that wait for that, the latest one wins.
func (u *Unit) enter(ctx context.Context, a *attachment, deadline time.Time) error {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errEnding)
	defer cancel()
	for {
		u.mu.Lock()
		if u.draining != nil { // the old session goes on: its host may be moving
			u.mu.Unlock()
			return errDraining
		}
		old := u.present(a)
		if old == nil {
			defer u.mu.Unlock()
			a.policy = a.by(u.policy.Load())
			if len(u.hosts) >= u.cfg.MaxHosts {
				return fmt.Errorf("%w: %d", errFull, len(u.hosts))
			}
			if n := u.sessionsOf(a.owner); a.owner != "" && n >= a.policy.MaxSessions {
				return fmt.Errorf("%w: %d", errSessions, n)
			}
			u.addresses.setShare(&a.host, a.policy.Share)
			u.hosts[a.key] = a
			return nil
		}
		u.mu.Unlock()
		if old.since.After(a.since) {
			return errReplaced
		}
		old.cancel(errReplaced)
		select {
		case <-old.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (u *Unit) leave(a *attachment) {
	u.addresses.leave(&a.host)
	u.remove(a)
}

// handlingOf returns the handlers of a host if they were changed.
func (u *Unit) handlingOf(key string) (cq.Handling, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	g, ok := u.handling[key]
	return g, ok
}
