package daemon

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/host"
)

// What a daemon does on request through its status socket.
const (
	CommandStats      = "stats"
	CommandClearStats = "clear-stats"
	CommandReset      = "reset"
	CommandFailover   = "failover"
	CommandHandlers   = "handlers"
	CommandReload     = "reload"
	CommandWait       = "wait"
	CommandDrain      = "drain"
	CommandUndrain    = "undrain"
	CommandDisconnect = "disconnect"
	CommandCapture    = "capture"
	CommandEndCapture = "end-capture"
)

func hostCommands(h *host.Host, queues int) []statussock.Command {
	stats := func(clear bool) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) { return h.Statistics(ctx, clear) }
	}
	return []statussock.Command{
		{Name: CommandStats, Run: stats(false)},
		{Name: CommandClearStats, Run: stats(true)},
		handlersCommand(func(r HandlersRequest) error { return h.ChangeHandlers(r.Change) }, boundProcs(queues, 1)),
		{Name: CommandFailover, RunWith: func(ctx context.Context, argument json.RawMessage) (any, error) {
			var addr string
			if err := json.Unmarshal(argument, &addr); err != nil {
				return nil, fmt.Errorf("which I/O unit: %w", err)
			}
			return h.Failover(ctx, addr)
		}},
		waitCommand(h.Status, h.Changed),
		{Name: CommandReset, Run: func(ctx context.Context) (any, error) { return struct{}{}, h.Reset(ctx) }},
	}
}
