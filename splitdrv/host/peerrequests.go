package host

import (
	"errors"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// errEnded is why a request is not carried out when its session has ended.
var errEnded = errors.New("the session has ended")

// How often one I/O unit changes the netdevice: at once, and in a second in the
// long run. Each change holds the kernel's lock of all netdevices for a while; an
// honest I/O unit says what has changed on its network card, and says it again only
// when this has been answered.
const (
	requestBurst = 32
	requestRate  = 10
)

// paced is messaging.Config.Pace: for how long a request of the I/O unit's has to
// wait.
func (h *Host) paced(a *attachment) time.Duration {
	who := a.addr
	if id := a.client.Peer(); !id.Insecure {
		who = id.Fingerprint.String()
	}
	return h.peerRequests.Spend(time.Now(), who, 1, requestBurst)
}

// onRequest answers the I/O unit's configuration requests.
func (h *Host) onRequest(a *attachment, t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	apply := func(what string, decodeErr error, apply func() error) (protocol.CfgStatus, []byte) {
		if decodeErr != nil {
			return protocol.CfgInvalid, nil
		}
		h.dev.mu.Lock()
		defer h.dev.unlock()
		err := errEnded
		switch {
		case h.conn() == a.conn:
			err = apply()
		case h.noted(a, t, data):
			return protocol.CfgOK, data
		}
		if err != nil {
			h.lines.Log(h.cfg.Log, slog.LevelError, "the I/O unit's configuration could not be applied", "what", what, "error",
				err)
			return protocol.CfgFailed, nil
		}
		return protocol.CfgOK, data
	}
	switch t {
	case protocol.CfgLinkState:
		l, err := protocol.DecodeLinkState(data)
		return apply("link state", err, func() error {
			now := session.Link{Up: l.Up, SpeedMbps: l.Speed}
			h.mu.Lock()
			before := h.session.welcome.Link
			h.session.welcome.Link = now
			h.mu.Unlock()
			if now != before {
				h.lines.Log(h.cfg.Log, slog.LevelInfo, "link state", "up", l.Up, "mbit_s", l.Speed)
			}
			return h.dev.setLink(now)
		})
	case protocol.CfgMTU:
		mtu, err := protocol.DecodeMTU(data)
		return apply("MTU", err, func() error {
			state, err := h.dev.State()
			if err != nil {
				return err
			}
			have, changes := h.dev.mirror.PeerMTU(&state, mtu)
			a.conn.SetMTU(changes.SessionMTU)
			h.dev.changed() // the administrator may want more
			if err := h.dev.apply(changes); err != nil {
				return err
			}
			data = protocol.AppendMTU(nil, have)
			h.lines.Log(h.cfg.Log, slog.LevelInfo, "MTU", "mtu", have)
			return nil
		})
	case protocol.CfgMAC:
		mac, err := protocol.DecodeMAC(data)
		return apply("MAC address", err, func() error {
			state, err := h.dev.State()
			if err != nil {
				return err
			}
			h.dev.changed() // the administrator may want another one
			return h.dev.apply(h.dev.mirror.PeerMAC(&state, mac))
		})
	default:
		return protocol.CfgUnsupported, nil
	}
}

// noted enters what the I/O unit of a session that is not in use yet says in what
// it has granted, and reports whether a is one. data has been decoded once.
func (h *Host) noted(a *attachment, t protocol.CfgType, data []byte) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !a.since.IsZero() {
		return false
	}
	switch t {
	case protocol.CfgLinkState:
		if l, err := protocol.DecodeLinkState(data); err == nil {
			a.welcome.Link = session.Link{Up: l.Up, SpeedMbps: l.Speed}
		}
	case protocol.CfgMTU:
		if mtu, err := protocol.DecodeMTU(data); err == nil {
			a.welcome.MTU = min(mtu, h.cfg.MaxMTU)
			a.conn.SetMTU(a.welcome.MTU)
		}
	default: // protocol.CfgMAC, the only other one that is decoded
		if mac, err := protocol.DecodeMAC(data); err == nil {
			a.welcome.MAC = mac
		}
	}
	return true
}
