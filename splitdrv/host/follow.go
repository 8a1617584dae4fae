package host

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
)

// watchRetry is the pause after a failure to watch the netdevice.
const watchRetry = time.Second

// follow requests the settings of the netdevice from the I/O unit, in each session and after
// each change, until ctx is done.
func (d *netdev) follow(ctx context.Context) {
	var again <-chan time.Time // when refused settings are requested again; nil: none are refused
	for {
		select {
		case <-d.wake:
		case <-again:
			again = nil
			d.askAgain()
		case <-ctx.Done():
			return
		}
		for d.followOnce(ctx) && ctx.Err() == nil {
		}
		d.saveAgreement()
		if again == nil && d.rejects() {
			again = time.After(d.cfg.AskAgain)
		}
	}
}

// askAgain makes refused settings be requested again.
func (d *netdev) askAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mirror.AskAgain()
}

func (d *netdev) rejects() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mirror.Rejects()
}

// followOnce carries out one request and reports whether there may be more.
func (d *netdev) followOnce(ctx context.Context) bool {
	conn, r, again, err := d.nextRequest()
	if err != nil {
		d.cfg.Log.Warn("the netdevice cannot be followed", "error", err)
		return false
	}
	if r == nil {
		if conn != nil && !again {
			d.settled(conn)
		}
		return again
	}
	data, err := conn.Request(ctx, r.Type, r.Data)
	status := protocol.CfgOK
	if refused := (*messaging.StatusError)(nil); errors.As(err, &refused) {
		status = refused.Status
	} else if err != nil {
		return false // the session has ended
	}
	if status == protocol.CfgDenied || status == protocol.CfgOK && r.Partly(data) {
		r.Refusal = refusal(ctx, conn, r.Type)
	}
	if err := d.enterReply(conn, r, status, data); err != nil {
		d.cfg.Log.Warn("the netdevice cannot be set back", "what", r.Type, "error", err)
		return false
	}
	return true
}

// refusal asks the I/O unit why it has refused a request, or a part of it. It returns "" if
// the I/O unit does not say.
func refusal(ctx context.Context, conn *messaging.Conn, t protocol.CfgType) string {
	data, err := conn.Request(ctx, protocol.CfgRefusal, protocol.AppendSubject(nil, t))
	if err != nil {
		return ""
	}
	why, err := protocol.DecodeRefusal(data)
	if err != nil {
		return ""
	}
	return why
}

// nextRequest reads the state of the netdevice. It returns the request that is due in the
// session in use, if any. again reports that a setting was set back instead.
func (d *netdev) nextRequest() (conn *messaging.Conn, r *mirror.Request, again bool, err error) {
	d.mu.Lock()
	defer d.unlock()
	err = d.decide(func(state *tap.State) (c mirror.Changes) {
		r, c = d.mirror.Next(state, time.Now())
		again = c != mirror.Changes{}
		return c
	})
	if conn = d.sessions.inUse(); conn == nil {
		r = nil
	}
	return conn, r, again, err
}

// enterReply records the I/O unit's answer, and sets the netdevice back if it refused.
func (d *netdev) enterReply(conn *messaging.Conn, r *mirror.Request, status protocol.CfgStatus, data []byte) error {
	d.mu.Lock()
	defer d.unlock()
	if d.sessions.inUse() != conn {
		return nil
	}
	return d.decide(func(state *tap.State) mirror.Changes {
		c := d.mirror.Reply(r, status, data, state, time.Now())
		if c.Unsupported {
			d.cfg.Log.Info("the I/O unit does not follow the netdevice", "what", r.Type, "reason", status)
		}
		if c.SessionMTU != 0 {
			conn.SetMTU(c.SessionMTU)
		}
		return c
	})
}

// reset resets what the administrator has set, after the I/O unit has done the same.
func (d *netdev) reset(conn *messaging.Conn) error {
	d.mu.Lock()
	defer d.unlock()
	if d.sessions.inUse() != conn {
		return ErrNoSession
	}
	d.changed()
	return d.decide(d.mirror.Reset)
}

// saveAgreement calls OnAgreement if the agreement has changed. Only one goroutine at a time
// may call it.
func (d *netdev) saveAgreement() {
	if now := d.shown.Load().agreed; now != d.saved {
		d.saved = now
		d.cfg.OnAgreement(now)
	}
}

// watch wakes the follower after each change of the netdevice, until ctx is done. It returns
// an error if the netdevice is deleted.
func (d *netdev) watch(ctx context.Context) error {
	failing := "" // reason that was logged
	for {
		err := d.Watch(ctx, func(tap.State) {
			if failing != "" {
				d.cfg.Log.Info("the netdevice's settings are followed again")
				failing = ""
			}
			d.changed()
		})
		if ctx.Err() != nil {
			return nil
		}
		if err := d.gone(err); errors.Is(err, ErrNetdeviceGone) {
			return err
		}
		level := slog.LevelDebug
		if why := err.Error(); why != failing {
			level, failing = slog.LevelWarn, why // warn once per reason: it may persist
		}
		d.cfg.Log.Log(ctx, level, "the netdevice's settings are not followed", "error", err)
		select {
		case <-time.After(watchRetry):
		case <-ctx.Done():
			return nil
		}
	}
}

// solicit makes the operating system resolve its neighbours again each time that the
// netdevice gets a carrier, until ctx is done. Without that, the operating system does it
// after a second at most.
func (d *netdev) solicit(ctx context.Context) {
	for {
		select {
		case <-d.raised:
		case <-ctx.Done():
			return
		}
		once, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- d.Solicit(once) }()
		var err error
		select {
		case err = <-done:
		case <-d.raised:
			cancel()
			err = <-done
			wake.Up(d.raised) // begin again
		}
		cancel()
		if err != nil {
			d.cfg.Log.Debug("the netdevice's neighbours are not asked for at once", "error", err)
		}
	}
}
