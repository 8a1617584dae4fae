package daemon

import (
	"context"
	"encoding/json"
	"fmt"
)

// The commands of a daemon's status socket.
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

// with makes a function that parses its argument into a T, for statussock.Command.RunWith.
func with[T any](run func(context.Context, T) (any, error)) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var argument T
		if err := json.Unmarshal(raw, &argument); err != nil {
			return nil, fmt.Errorf("argument: %w", err)
		}
		return run(ctx, argument)
	}
}
