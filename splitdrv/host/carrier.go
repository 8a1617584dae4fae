package host

import (
	"context"

	"github.com/splitnic/splitnic/splitdrv/session"
)

// setLink gives the netdevice the speed and the carrier of the I/O unit's link.
// The speed comes first: bonds look at it when the carrier comes. It is for
// people and for bonds only, and without it frames move all the same. The caller
// holds changing.
func (h *Host) setLink(l session.Link) error {
	if h.speed == nil || *h.speed != l.SpeedMbps {
		h.speed = &l.SpeedMbps
		if err := h.cfg.Netdev.SetSpeed(int(l.SpeedMbps)); err != nil {
			h.speed = nil
			h.cfg.Log.Debug("the netdevice does not show the link's speed", "reason", err)
		}
	}
	return h.setCarrier(l.Up)
}

// setCarrier gives the netdevice its carrier or takes it away.
func (h *Host) setCarrier(up bool) error {
	if err := h.cfg.Netdev.SetCarrier(up); err != nil {
		return h.netdevice(err)
	}
	h.mu.Lock()
	h.carrier = up
	h.mu.Unlock()
	if up {
		select {
		case h.raised <- struct{}{}:
		default:
		}
	}
	return nil
}

// solicit has the operating system ask for its neighbours each time that the
// carrier has been given, until ctx is done.
func (h *Host) solicit(ctx context.Context) {
	for {
		select {
		case <-h.raised:
		case <-ctx.Done():
			return
		}
		for h.solicitOnce(ctx) {
		}
	}
}

// solicitOnce does that for one time, and reports whether the carrier has been
// given again meanwhile. A failure costs a second at most, after which the
// operating system asks by itself.
func (h *Host) solicitOnce(ctx context.Context) (again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.cfg.Netdev.Solicit(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-h.raised:
		again = true
		cancel()
		err = <-done
	}
	if err != nil {
		h.cfg.Log.Debug("the netdevice's neighbours are not asked for at once", "reason", err)
	}
	return again
}
