package host

import (
	"errors"
	"log/slog"
	"net"
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
	return h.requests.Spend(time.Now(), who, 1, requestBurst)
}

// onRequest answers the I/O unit's configuration requests.
func (h *Host) onRequest(a *attachment, t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	apply := func(what string, decodeErr error, apply func() error) (protocol.CfgStatus, []byte) {
		if decodeErr != nil {
			return protocol.CfgInvalid, nil
		}
		h.changing.Lock()
		defer h.changing.Unlock()
		err := errEnded
		switch {
		case h.current(a.conn):
			err = apply()
		case h.noted(a, t, data):
			return protocol.CfgOK, data
		}
		if err != nil {
			h.pace.Log(h.cfg.Log, slog.LevelError, "the I/O unit's configuration could not be applied", "what", what, "error", err)
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
			before := h.welcome.Link
			h.welcome.Link = now
			h.mu.Unlock()
			if now != before {
				h.pace.Log(h.cfg.Log, slog.LevelInfo, "link state", "up", l.Up, "mbit_s", l.Speed)
			}
			return h.setLink(now)
		})
	case protocol.CfgMTU:
		mtu, err := protocol.DecodeMTU(data)
		return apply("MTU", err, func() error {
			mtu = min(mtu, h.cfg.MaxMTU)
			a.conn.SetMTU(mtu)
			if mtu, err = h.followMTU(mtu); err != nil {
				return err
			}
			data = protocol.AppendMTU(nil, mtu)
			h.pace.Log(h.cfg.Log, slog.LevelInfo, "MTU", "mtu", mtu)
			return nil
		})
	case protocol.CfgMAC:
		mac, err := protocol.DecodeMAC(data)
		return apply("MAC address", err, func() error {
			return h.followMAC(mac)
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

// followMTU makes mtu the I/O unit's, and returns what the netdevice has then:
// less where the administrator wants less. Of more, which he has just set, the
// follower asks the I/O unit.
func (h *Host) followMTU(mtu int) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	state, err := h.cfg.Netdev.State()
	if err != nil {
		return 0, err
	}
	before := h.set.mtu
	h.set.limit, h.set.told.mtu = mtu, mtu
	if state.MTU != before && state.MTU < mtu {
		h.set.wantMTU = state.MTU // he need not ask
	}
	h.set.mtu = h.set.nextMTU()
	if state.MTU == before || state.MTU == h.set.mtu {
		err = h.cfg.Netdev.SetMTU(h.set.mtu)
	}
	h.changed()
	return h.set.mtu, err
}

// followMAC makes mac the netdevice's, unless an administrator has just changed
// it, for which the follower asks. The I/O unit's word counts more than what he
// wanted before.
func (h *Host) followMAC(mac protocol.MAC) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	state, err := h.cfg.Netdev.State()
	if err != nil {
		return err
	}
	before := h.set.mac
	h.set.mac, h.set.wantMAC = mac, protocol.MAC{}
	h.changed()
	if macOf(state.MAC) != before {
		return nil
	}
	return h.cfg.Netdev.SetMAC(net.HardwareAddr(mac[:]))
}
