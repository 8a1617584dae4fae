package daemon

import (
	"context"

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
		{Name: CommandDrain, RunWith: with(func(ctx context.Context, request DrainRequest) (any, error) {
			status := unit.Drain()
			if !request.Wait {
				return status, nil
			}
			err := unit.WaitDrained(ctx)
			status.Remaining = nil
			return status, err
		})},
		{Name: CommandUndrain, Run: func(context.Context) (any, error) {
			unit.Undrain()
			return struct{}{}, nil
		}},
		{Name: CommandDisconnect, RunWith: with(func(ctx context.Context, host string) (any, error) {
			return struct{}{}, unit.Disconnect(ctx, host)
		})},
	}
}
