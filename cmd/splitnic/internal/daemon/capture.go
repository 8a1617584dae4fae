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
)

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
