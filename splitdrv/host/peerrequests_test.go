package host

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// carried is a netdevice that takes every carrier.
type carried struct{ Netdevice }

func (carried) SetCarrier(bool) error { return nil }
func (carried) SetSpeed(int) error    { return nil }

// TestUnitDoesNotFloodTheLog has an I/O unit say on and on that the link has
// changed.
func TestUnitDoesNotFloodTheLog(t *testing.T) {
	const tries = 500
	var log bytes.Buffer
	cfg := &Config{Netdev: carried{}, Log: slog.New(slog.NewTextHandler(&log, nil))}
	d := newNetdev(cfg, &sessions{cfg: cfg})
	for i := range tries {
		if status, _ := d.onRequest(&attachment{}, protocol.CfgLinkState,
			protocol.AppendLinkState(nil, protocol.LinkState{Up: i%2 == 0})); status != protocol.CfgOK {
			t.Fatal(status)
		}
	}
	// As many lines again may come while the test runs slowly.
	if n := bytes.Count(log.Bytes(), []byte("\n")); n == 0 || n > tries/2 {
		t.Errorf("%d lines about %d changes", n, tries)
	}
}
