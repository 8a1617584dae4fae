package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
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

// CaptureRequest is the argument of CommandCapture. The name identifies the capture for
// CommandEndCapture.
type CaptureRequest struct {
	capture.Config
	Duration time.Duration `json:"duration,omitempty"` // in nanoseconds; 0: no limit
}

// captureCommands returns the commands that begin and end captures of frames. name describes
// the endpoint in the captures. The frames are sent to the client of the command, until it
// disconnects.
func captureCommands(point *capture.Point, name, version string, log *slog.Logger) []statussock.Command {
	comment := name + ": frames between its netdevices and the fabric; inbound has come over the fabric, " +
		"outbound is about to be sent over it"
	run := func(ctx context.Context, argument json.RawMessage, w io.Writer) (any, error) {
		var r CaptureRequest
		if err := json.Unmarshal(argument, &r); err != nil {
			return nil, fmt.Errorf("which capture: %w", err)
		}
		c, err := point.Start(r.Config)
		if err != nil {
			return nil, err
		}
		defer c.End()
		if r.Duration > 0 {
			defer time.AfterFunc(r.Duration, c.End).Stop()
		}
		log.Info("capture of frames", "paths", r.Paths, "filter", r.Text)
		err = c.Copy(ctx, w, "splitnic "+version, comment)
		s := c.Status()
		log.Info("capture of frames has ended", "frames", s.Frames, "dropped", s.Dropped,
			"lasted", time.Since(s.Since).Round(time.Millisecond))
		return s, err
	}
	end := func(_ context.Context, name string) (any, error) { return struct{}{}, point.End(name) }
	return []statussock.Command{{Name: CommandCapture, RunTo: run}, {Name: CommandEndCapture, RunWith: with(end)}}
}
