package host

import (
	"errors"
	"fmt"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// binding ties a session's channels to its bootstrap connection; nil if the I/O
// unit cannot.
func binding(c *session.Client, w *session.Welcome) (*messaging.Binding, error) {
	if !w.Grants(protocol.FeatureBind) {
		return nil, nil
	}
	secret, err := c.Binding()
	if err != nil {
		return nil, fmt.Errorf("bind the session: %w", err)
	}
	return messaging.NewBinding(secret, true), nil
}

// countEnd counts a session that ended because the I/O unit's key is trusted no
// longer. The caller holds h.mu.
func (h *Host) countEnd(err error) {
	if !errors.As(err, new(*session.RevokedError)) {
		return
	}
	if h.tally.ended == nil {
		h.tally.ended = make(map[string]uint64)
	}
	h.tally.ended[session.Reason(err)]++
}

// Endings are all reasons by which sessions are counted that the host ended
// because the I/O unit may not go on.
func Endings() []string { return []string{"untrusted", "revoked", "expired"} }
