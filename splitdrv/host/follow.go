package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
)

// watchRetry is the pause after the netdevice could not be watched.
const watchRetry = time.Second

// watch tells the follower of changes to the netdevice until ctx is done, or
// somebody deletes it, which is the error.
func (h *Host) watch(ctx context.Context) error {
	deaf := "" // why, as logged
	for {
		err := h.cfg.Netdev.Watch(ctx, func(tap.State) {
			if deaf != "" {
				h.cfg.Log.Info("the netdevice's settings are followed again")
				deaf = ""
			}
			h.changed()
		})
		if ctx.Err() != nil {
			return nil
		}
		if err := h.netdevice(err); errors.Is(err, ErrNetdeviceGone) {
			return err
		}
		level := slog.LevelDebug
		if why := err.Error(); why != deaf {
			level, deaf = slog.LevelWarn, why // once: it may last
		}
		h.cfg.Log.Log(ctx, level, "the netdevice's settings are not followed", "reason", err)
		select {
		case <-time.After(watchRetry):
		case <-ctx.Done():
			return nil
		}
	}
}

// changed wakes the follower.
func (h *Host) changed() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// follow makes the I/O unit follow what the administrator and the operating
// system do with the netdevice, in each session anew, until ctx is done.
func (h *Host) follow(ctx context.Context) {
	for {
		select {
		case <-h.wake:
		case <-ctx.Done():
			return
		}
		for h.followOnce(ctx) && ctx.Err() == nil {
		}
		h.remember()
	}
}

// followOnce carries out one request and reports whether there may be more.
func (h *Host) followOnce(ctx context.Context) bool {
	conn, r, err := h.pending()
	if err != nil {
		h.cfg.Log.Warn("the netdevice cannot be followed", "reason", err)
		return false
	}
	if r == nil {
		return false
	}
	var data []byte
	if r.mtu > h.cfg.MaxMTU {
		err = &messaging.StatusError{Type: r.t, Status: protocol.CfgDenied}
	} else {
		data, err = conn.Request(ctx, r.t, r.data)
	}
	var status *messaging.StatusError
	if err != nil && !errors.As(err, &status) {
		return false // the session has ended
	}
	if err := h.settle(conn, r, data, status); err != nil {
		h.cfg.Log.Warn("the netdevice cannot be set back", "what", r.t, "reason", err)
		return false
	}
	return true
}

// pending looks at the netdevice. In a session it returns the next request that
// is due, otherwise it remembers what the administrator wants.
func (h *Host) pending() (*messaging.Conn, *request, error) {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == idle {
		return nil, nil, h.adopt()
	}
	if h.phase == opening {
		return nil, nil, nil // its end wakes the follower, whichever it is
	}
	state, err := h.cfg.Netdev.State()
	if err != nil {
		return nil, nil, err
	}
	return h.conn, h.set.next(&state), nil
}

// adopt makes what the administrator has changed a wish for the next session.
func (h *Host) adopt() error {
	state, err := h.cfg.Netdev.State()
	if err != nil {
		return err
	}
	if mtu := h.set.adopt(&state, h.cfg.MaxMTU); mtu != 0 {
		h.tell(h.set.refuse(&request{t: protocol.CfgMTU, wanted: strconv.Itoa(mtu), mtu: mtu}, overMaxMTU))
		return h.cfg.Netdev.SetMTU(h.set.mtu)
	}
	return nil
}

const overMaxMTU = "more than --max-mtu of this host"

// settle enters the I/O unit's answer and, when it refused, sets the netdevice
// back. A status is that of a refusal.
func (h *Host) settle(conn *messaging.Conn, r *request, data []byte, status *messaging.StatusError) error {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != established || h.conn != conn {
		return nil
	}
	if status == nil {
		return h.agreed(conn, r, data)
	}
	if status.Status == protocol.CfgUnsupported && r.dispensable() {
		h.cfg.Log.Info("the I/O unit does not follow the netdevice", "what", r.t, "reason", status.Status)
		h.set.told.deaf = append(h.set.told.deaf, r.t)
		if r.t == protocol.CfgMTU {
			h.set.accept(r)
		}
		return nil
	}
	reason := "the I/O unit: " + status.Status.String()
	if r.mtu > h.cfg.MaxMTU {
		reason = overMaxMTU
	}
	refusal := h.set.refuse(r, reason)
	if key := policyKeys[refusal.what()]; key != "" && status.Status == protocol.CfgDenied {
		refusal.Reason += "; `" + key + "` in its policy says what this host may have"
	}
	h.tell(refusal)
	return h.setBack(r)
}

// policyKeys are the keys of an I/O unit's policy that settings depend on.
var policyKeys = map[string]string{
	protocol.CfgMAC.String():  "macs",
	protocol.CfgVLAN.String(): "vlans",
	unicastAddresses:          "macs",
	promiscuousMode:           "promiscuous",
}

// agreed enters that the I/O unit does what it was asked to, or something
// else, which it says in its answer.
func (h *Host) agreed(conn *messaging.Conn, r *request, data []byte) error {
	asked := *r
	if r.t == protocol.CfgMAC {
		if mac, err := protocol.DecodeMAC(data); err == nil {
			r.mac = mac
		}
	}
	if r.t == protocol.CfgMTU {
		if mtu, err := protocol.DecodeMTU(data); err == nil {
			r.mtu = min(r.mtu, mtu)
		}
	}
	h.set.accept(r)
	h.set.force.enter(r, data)
	if r.t == protocol.CfgMTU {
		conn.SetMTU(h.set.limit)
	}
	return h.setBack(&asked)
}

// setBack gives the netdevice what is in force if that is not what was asked
// for, unless it has been changed again since.
func (h *Host) setBack(r *request) error {
	d := h.cfg.Netdev
	state, err := d.State()
	if err != nil {
		return err
	}
	switch {
	case r.t == protocol.CfgMAC && macOf(state.MAC) == r.mac && r.mac != h.set.mac:
		return d.SetMAC(net.HardwareAddr(h.set.mac[:]))
	case r.t == protocol.CfgMTU && state.MTU == r.mtu && r.mtu != h.set.mtu:
		return d.SetMTU(h.set.mtu)
	case r.t == protocol.CfgFilter && h.set.refused.promisc && state.PromiscSet:
		return d.SetPromisc(false)
	case r.t == protocol.CfgFilter && h.set.refused.allMulti && state.AllMultiSet:
		return d.SetAllMulti(false)
	}
	return nil
}

// tell logs a refusal, if there is one.
func (h *Host) tell(r *Refusal) {
	if r != nil {
		h.cfg.Log.Warn("the netdevice cannot have what it was set to", "what", r.What, "wanted", r.Wanted, "reason", r.Reason)
	}
}
