package daemon

import (
	"cmp"
	"context"
	"errors"

	"github.com/splitnic/splitnic/cmd/internal/cards"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// agentCard is a card of an agent. It has a status socket like the process of a host.
type agentCard struct {
	*card
	socket *statussock.Server
	path   string // of the socket
	closed func() // called at the beginning of Close
	// failing reports whether the agent ends with an error, so that no process will serve the
	// netdevice until the next start succeeds.
	failing func() bool
}

// Run implements cards.Card.
func (x *agentCard) Run(ctx context.Context) error { return x.host.Run(ctx) }

// Close implements cards.Card.
func (x *agentCard) Close(remove bool) error {
	x.closed()
	err := x.socket.Close()
	if remove {
		return errors.Join(err, x.remove())
	}
	return errors.Join(err, x.close(x.failing()))
}

// Status implements cards.Card.
func (x *agentCard) Status() cards.Status {
	s := x.host.Status()
	status := cards.Status{
		State: cards.Connecting, Since: s.Since, HostName: s.Name, Error: s.LastError, Permanent: s.Permanent,
		Fingerprint: x.reloads.security.Fingerprint().String(), IOUnit: cmp.Or(s.IOUnit.Name, s.IOUnit.Address),
		MAC: s.Netdevice.MAC, MTU: s.Netdevice.MTU, Carrier: s.Netdevice.Carrier, VLANs: s.VLANs,
		Socket: x.path,
	}
	if r := s.LastRefusal; r != nil {
		status.Refused = &cards.Refusal{What: r.What, Wanted: r.Wanted, Reason: r.Reason}
	}
	if s.State == host.Connected {
		status.State, status.Error = cards.Connected, ""
	}
	return status
}
