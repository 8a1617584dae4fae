package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/iounit"
)

// DrainRequest is the argument of CommandDrain.
type DrainRequest struct {
	Wait bool `json:"wait"` // answer only when no host is left
}

// drainCommands returns the commands that drain an I/O unit of hosts, end draining, and
// disconnect a single host.
func drainCommands(unit *iounit.Unit) []statussock.Command {
	return []statussock.Command{
		{Name: CommandDrain, RunWith: func(ctx context.Context, argument json.RawMessage) (any, error) {
			var request DrainRequest
			if err := json.Unmarshal(argument, &request); err != nil {
				return nil, fmt.Errorf("what is to be waited for: %w", err)
			}
			status := unit.Drain()
			if !request.Wait {
				return status, nil
			}
			err := unit.WaitDrained(ctx)
			status.Remaining = nil
			return status, err
		}},
		{Name: CommandUndrain, Run: func(context.Context) (any, error) {
			unit.Undrain()
			return struct{}{}, nil
		}},
		{Name: CommandDisconnect, RunWith: func(ctx context.Context, argument json.RawMessage) (any, error) {
			var host string
			if err := json.Unmarshal(argument, &host); err != nil {
				return nil, fmt.Errorf("which host: %w", err)
			}
			return struct{}{}, unit.Disconnect(ctx, host)
		}},
	}
}
