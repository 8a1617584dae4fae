package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// Condition is what somebody waits for of a host. Both have to be so that are true.
type Condition struct {
	Connected bool `json:"connected"`
	Carrier   bool `json:"carrier"`
}

// Missing is what is missing, "" if it is as wanted.
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

// waitCommand answers when the host is as somebody wants it. It is told of changes.
func waitCommand(status func() host.Status, changed func() <-chan struct{}) statussock.Command {
	run := func(ctx context.Context, argument json.RawMessage) (any, error) {
		var c Condition
		if err := json.Unmarshal(argument, &c); err != nil {
			return nil, fmt.Errorf("for what: %w", err)
		}
		for {
			next := changed() // before it is looked at: nothing is missed
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
	return statussock.Command{Name: CommandWait, RunWith: run}
}
