package host

import (
	"context"
	"errors"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// Past is what the netdevice brings with it from before Run: from earlier
// processes, if there were any.
type Past struct {
	Since   time.Time // when it was made; zero if nobody knows
	Adopted int       // how many processes have taken it over, this one included
	// Carrier says that it has carrier. It keeps it until there is a session, or
	// every I/O unit has been tried in vain.
	Carrier   bool
	Agreement *Agreement // what the last process told Config.OnAgreement; nil for none
}

// Agreement is what a host has to know of its netdevice to tell what an
// administrator does with it from what the host did itself. Zero values are not
// known, or not wanted.
type Agreement struct {
	MAC     protocol.MAC // agreed with the I/O unit
	MTU     int          // agreed with the I/O unit; bytes
	Granted bool         // an I/O unit has given it the MAC address: the next one is asked for it

	WantMAC protocol.MAC // the administrator's, for the next hello
	WantMTU int          // the administrator's: the most that he wants; bytes
}

// agreement is the present one. The caller holds h.mu.
func (s *settings) agreement() Agreement {
	return Agreement{MAC: s.mac, MTU: s.mtu, Granted: s.granted.Valid(), WantMAC: s.wantMAC, WantMTU: s.wantMTU}
}

// resume goes on from an earlier process's agreement.
func (s *settings) resume(a *Agreement) {
	if a.MAC.Valid() {
		s.mac = a.MAC
		if a.Granted && !a.WantMAC.Valid() { // or it is the administrator's
			s.granted = a.MAC
		}
	}
	if a.MTU != 0 {
		s.mtu = a.MTU
	}
	s.wantMAC, s.wantMTU = a.WantMAC, a.WantMTU
}

// remember tells the next process what is agreed, when that has changed. One
// goroutine at a time may call it.
func (h *Host) remember() {
	h.mu.Lock()
	now := h.set.agreement()
	h.mu.Unlock()
	if now != h.remembered {
		h.remembered = now
		h.cfg.OnAgreement(now)
	}
}

// forsake takes the carrier that the netdevice has from before.
func (h *Host) forsake() error {
	h.mu.Lock()
	has := h.carrier
	h.mu.Unlock()
	if !has {
		return nil
	}
	return h.setCarrier(false)
}

// handsOver reports whether the netdevice goes to another process as it is.
func (h *Host) handsOver(ctx context.Context) bool {
	return h.cfg.KeepCarrier && ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrNetdeviceGone)
}
