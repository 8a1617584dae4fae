package host

import (
	"errors"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
)

// errEnded is the error of a request whose session has ended.
var errEnded = errors.New("the session has ended")

// paced returns for how long a request of the I/O unit has to wait (messaging.Config.Pace).
func (d *netdev) paced(a *attachment) time.Duration {
	return d.peerRequests.Spend(time.Now(), a.client.LimitKey(), 1, requestBurst)
}

// onRequest answers the configuration requests of the I/O unit of a
// (messaging.Config.OnRequest). While a is not in use yet, a request changes the granted
// settings in its welcome.
func (d *netdev) onRequest(a *attachment, t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	answer := func(what string, decodeErr error, note func(), apply func() error) (protocol.CfgStatus, []byte) {
		if decodeErr != nil {
			return protocol.CfgInvalid, nil
		}
		d.mu.Lock()
		defer d.unlock()
		err := errEnded
		switch {
		case d.sessions.inUse() == a.conn:
			err = apply()
		case a.since.IsZero():
			note()
			return protocol.CfgOK, data
		}
		if err != nil {
			d.lines.Log(d.cfg.Log, slog.LevelError, "the I/O unit's configuration could not be applied",
				"what", what, "error", err)
			return protocol.CfgFailed, nil
		}
		return protocol.CfgOK, data
	}
	switch t {
	case protocol.CfgLinkState:
		l, err := protocol.DecodeLinkState(data)
		now := session.Link{Up: l.Up, SpeedMbps: l.Speed}
		return answer("link state", err, func() { a.welcome.Link = now }, func() error {
			if d.sessions.setLink(now) {
				d.lines.Log(d.cfg.Log, slog.LevelInfo, "link state", "up", l.Up, "mbit_s", l.Speed)
			}
			return d.setLink(now)
		})
	case protocol.CfgMTU:
		mtu, err := protocol.DecodeMTU(data)
		note := func() {
			a.welcome.MTU = min(mtu, d.cfg.MaxMTU)
			a.conn.SetMTU(a.welcome.MTU)
		}
		return answer("MTU", err, note, func() error {
			have := 0
			d.changed() // the administrator may want more
			err := d.decide(func(state *tap.State) (c mirror.Changes) {
				have, c = d.mirror.PeerMTU(state, mtu)
				a.conn.SetMTU(c.SessionMTU)
				return c
			})
			if err == nil {
				data = protocol.AppendMTU(nil, have)
				d.lines.Log(d.cfg.Log, slog.LevelInfo, "MTU", "mtu", have)
			}
			return err
		})
	case protocol.CfgMAC:
		mac, err := protocol.DecodeMAC(data)
		return answer("MAC address", err, func() { a.welcome.MAC = mac }, func() error {
			d.changed() // the administrator may want another one
			return d.decide(func(state *tap.State) mirror.Changes { return d.mirror.PeerMAC(state, mac) })
		})
	case protocol.CfgRefusal:
		if _, err := protocol.DecodeSubject(data); err != nil {
			return protocol.CfgInvalid, nil
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.sessions.inUse() == a.conn {
			d.mirror.AskAgain()
			d.changed()
		}
		return protocol.CfgOK, nil
	default:
		return protocol.CfgUnsupported, nil
	}
}
