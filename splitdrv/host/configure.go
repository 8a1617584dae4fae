package host

import (
	"errors"
	"net"
	"strconv"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// phase says who may change what netdevice and I/O unit have agreed upon.
type phase int

const (
	idle        phase = iota // the follower, for the next session
	opening                  // attach
	established              // the follower, with the I/O unit
)

// begin keeps the follower away until the session is established, or has come
// to nothing, and returns the MAC address to ask for.
func (h *Host) begin() (protocol.MAC, error) {
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.adopt(); err != nil {
		return protocol.MAC{}, err
	}
	h.phase = opening
	mac := h.set.helloMAC(h.cfg.MAC)
	h.set.yield = false
	return mac, nil
}

// setPhase lets the follower go on.
func (h *Host) setPhase(p phase) {
	h.mu.Lock()
	h.phase = p
	h.mu.Unlock()
	h.changed()
}

// giveUpMAC gives up the MAC address that an administrator has set, or the one
// that the last I/O unit granted, if that is what the I/O unit may have refused,
// and reports whether it was so.
func (h *Host) giveUpMAC(err error) bool {
	var refused *session.RefusedError
	if !errors.As(err, &refused) || refused.Code != session.CodePolicy {
		return false
	}
	h.changing.Lock()
	defer h.changing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	mac := h.set.wantMAC
	if mac == (protocol.MAC{}) {
		h.set.yield = h.cfg.MAC == (protocol.MAC{}) && h.set.granted.Valid()
		if h.set.yield {
			h.cfg.Log.Warn("the netdevice cannot keep its MAC address", "mac", h.set.mac, "reason", err)
		}
		return h.set.yield
	}
	h.set.wantMAC = protocol.MAC{}
	h.tell(h.set.refuse(&request{t: protocol.CfgMAC, wanted: mac.String(), mac: mac}, err.Error()))
	if h.set.granted.Valid() {
		h.set.mac = h.set.granted
		if err := h.setBack(&request{t: protocol.CfgMAC, mac: mac}); err != nil {
			h.cfg.Log.Warn("the netdevice cannot be set back", "what", protocol.CfgMAC, "reason", err)
		}
	}
	return true
}

// configure gives the netdevice what the I/O unit granted. What the
// administrator has changed since the hello stays: the follower asks for it. The
// caller holds changing.
func (h *Host) configure(a *attachment) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &a.welcome
	d := h.cfg.Netdev
	state, err := d.State()
	if err != nil {
		return h.netdevice(err)
	}
	before := h.set
	h.set.mac, h.set.granted, h.set.limit = w.MAC, w.MAC, w.MTU
	h.set.mtu = h.set.nextMTU()
	h.set.session()
	if macOf(state.MAC) == before.mac {
		if err := d.SetMAC(net.HardwareAddr(w.MAC[:])); err != nil {
			return h.netdevice(err)
		}
	}
	if state.MTU == before.mtu {
		if err := d.SetMTU(h.set.mtu); err != nil {
			return h.netdevice(err)
		}
		if state.MTU == h.set.wantMTU && state.MTU > w.MTU {
			h.tell(h.set.refuse(&request{t: protocol.CfgMTU, wanted: strconv.Itoa(state.MTU), mtu: state.MTU}, overNIC))
		}
	}
	if h.offloads, err = d.SetOffloads(w.Offloads); err != nil {
		return h.netdevice(err)
	}
	if err := d.SetActive(w.Queues); err != nil {
		return h.netdevice(err)
	}
	return h.netdevice(h.steer(w))
}

const overNIC = "more than the I/O unit's network card has"
