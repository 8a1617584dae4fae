package host

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// carried is a netdevice that accepts every carrier and speed.
type carried struct{ Netdevice }

func (carried) SetCarrier(bool) error { return nil }
func (carried) SetSpeed(int) error    { return nil }

// TestUnitDoesNotFloodTheLog has an I/O unit report many changes of the link, and expects fewer
// lines in the log.
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
	// More lines are allowed, because their number grows with the duration of the test.
	if n := bytes.Count(log.Bytes(), []byte("\n")); n == 0 || n > tries/2 {
		t.Errorf("%d lines about %d changes", n, tries)
	}
}

// TestRequestsOfSessionsNotInUse has the I/O unit of a session that is not in use yet, for example
// of one on standby, report changes. It expects them in the welcome of that session. A report in a
// session that has ended must fail and change nothing.
func TestRequestsOfSessionsNotInUse(t *testing.T) {
	cfg := &Config{Netdev: carried{}, MaxMTU: 9000, Log: slog.New(slog.DiscardHandler)}
	s := &sessions{cfg: cfg}
	s.current.conn = new(messaging.Conn)
	d := newNetdev(cfg, s)
	mac := protocol.MAC{2, 0, 0, 0, 0, 9}
	for _, c := range []struct {
		t    protocol.CfgType
		data []byte
		want session.Welcome
	}{
		{
			protocol.CfgLinkState, protocol.AppendLinkState(nil, protocol.LinkState{Up: true, Speed: 100}),
			session.Welcome{Link: session.Link{Up: true, SpeedMbps: 100}},
		},
		{protocol.CfgMTU, protocol.AppendMTU(nil, 1400), session.Welcome{MTU: 1400}},
		{protocol.CfgMTU, protocol.AppendMTU(nil, 9500), session.Welcome{MTU: 9000}},
		{protocol.CfgMAC, protocol.AppendMAC(nil, mac), session.Welcome{MAC: mac}},
	} {
		a := &attachment{conn: new(messaging.Conn)}
		status, _ := d.onRequest(a, c.t, c.data)
		got := a.welcome
		if status != protocol.CfgOK || got.Link != c.want.Link || got.MTU != c.want.MTU || got.MAC != c.want.MAC {
			t.Errorf("%v: %v, %+v, want %+v", c.t, status, got, c.want)
		}
		ended := &attachment{conn: new(messaging.Conn), since: time.Now()}
		status, _ = d.onRequest(ended, c.t, c.data)
		if w := ended.welcome; status != protocol.CfgFailed || w.Link.Up || w.MTU != 0 || w.MAC.Valid() {
			t.Errorf("%v of a session that has ended: %v, %+v", c.t, status, w)
		}
	}
}
