package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/net/bpf"

	"github.com/splitnic/splitnic/internal/pcapng"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/splitdrv/capture"
)

// CaptureRequest is the argument of CommandCapture.
type CaptureRequest struct {
	Name       string               `json:"name"` // identifies the capture for CommandEndCapture
	Paths      string               `json:"paths,omitempty"`
	Filter     []bpf.RawInstruction `json:"filter,omitempty"`
	FilterText string               `json:"filter_text,omitempty"`
	SnapLength int                  `json:"snap_length,omitempty"`
	Frames     uint64               `json:"frames,omitempty"`
	Buffer     int                  `json:"buffer,omitempty"`
	Duration   time.Duration        `json:"duration,omitempty"` // in nanoseconds; 0: no limit
}

// captureCommands returns the commands that begin and end captures of frames. name describes
// the endpoint in the captures. The frames are sent to the client of the command, until it
// disconnects.
func captureCommands(point *capture.Point, name, version string, log *slog.Logger) []statussock.Command {
	section := pcapng.Section{
		Program: "splitnic " + version,
		Comment: name + ": frames between its netdevices and the fabric; inbound has come over the fabric, " +
			"outbound is about to be sent over it",
	}
	run := func(ctx context.Context, argument json.RawMessage, w io.Writer) (any, error) {
		var r CaptureRequest
		if err := json.Unmarshal(argument, &r); err != nil {
			return nil, fmt.Errorf("which capture: %w", err)
		}
		c, err := point.Start(capture.Config{
			Name: r.Name, Paths: r.Paths, Filter: r.Filter, Text: r.FilterText, SnapLength: r.SnapLength,
			Frames: r.Frames, Buffer: r.Buffer,
		})
		if err != nil {
			return nil, err
		}
		defer c.End()
		if r.Duration > 0 {
			defer time.AfterFunc(r.Duration, c.End).Stop()
		}
		log.Info("capture of frames", "paths", r.Paths, "filter", r.FilterText)
		err = writeCapture(ctx, w, c, section)
		s := c.Status()
		log.Info("capture of frames has ended", "frames", s.Frames, "dropped", s.Dropped,
			"lasted", time.Since(s.Since).Round(time.Millisecond))
		return s, err
	}
	end := func(_ context.Context, argument json.RawMessage) (any, error) {
		var name string
		if err := json.Unmarshal(argument, &name); err != nil {
			return nil, fmt.Errorf("which capture: %w", err)
		}
		return struct{}{}, point.End(name)
	}
	return []statussock.Command{{Name: CommandCapture, RunTo: run}, {Name: CommandEndCapture, RunWith: end}}
}
