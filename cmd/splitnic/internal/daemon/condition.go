package daemon

import (
	"context"
	"fmt"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// Condition is a state of a host to wait for. Each field that is true is required.
type Condition struct {
	Connected bool `json:"connected"`
	Carrier   bool `json:"carrier"`
}

// Missing describes a requirement that s does not meet. It returns "" if s meets all of them.
func (c Condition) Missing(s *host.Status) string {
	switch {
	case c.Connected && s.State != host.Connected:
		if s.LastError != "" {
			return fmt.Sprintf("has no session with an I/O unit: %s", s.LastError)
		}
		return fmt.Sprintf("has no session with an I/O unit: %s to %s", s.State, s.IOUnit.Address)
	case c.Carrier && !s.Netdevice.Carrier && s.State != host.Connected:
		return "has no carrier: there is no session with an I/O unit"
	case c.Carrier && !s.Netdevice.Carrier:
		return "has no carrier: the link of the I/O unit's network card is down"
	}
	return ""
}

// waitCommand returns the command that answers when the host meets a Condition. changed returns
// a channel that is closed at the next change of the status.
func waitCommand(status func() host.Status, changed func() <-chan struct{}) statussock.Command {
	run := func(ctx context.Context, c Condition) (any, error) {
		for {
			next := changed() // before the status, so that no change is missed
			s := status()
			if c.Missing(&s) == "" {
				return struct{}{}, nil
			}
			select {
			case <-next:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return statussock.Command{Name: CommandWait, RunWith: with(run)}
}
