package direct

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/direct/internal/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestConfirmations has the peer confirm each nonce, and others. Only that of the probes may
// confirm the probes, and only that of the markers the markers: otherwise a peer could confirm
// markers that it has not received, and frames would overtake each other.
func TestConfirmations(t *testing.T) {
	out := nonces(&session.DirectSecret{1}, 7)
	in := nonces(&session.DirectSecret{1}, 8)
	nonce := func(n protocol.MarkerNonce) []byte { return protocol.AppendMarkerNonce(nil, n) }
	for name, tt := range map[string]struct {
		data            []byte
		status          protocol.CfgStatus
		probes, markers bool
	}{
		"probes":                 {nonce(out.Probe), protocol.CfgOK, true, false},
		"markers":                {nonce(out.Marker), protocol.CfgOK, false, true},
		"its own probes":         {nonce(in.Probe), protocol.CfgInvalid, false, false},
		"its own markers":        {nonce(in.Marker), protocol.CfgInvalid, false, false},
		"any":                    {nonce(protocol.MarkerNonce{9}), protocol.CfgInvalid, false, false},
		"none":                   {nonce(protocol.MarkerNonce{}), protocol.CfgInvalid, false, false},
		"a part of the markers'": {nonce(out.Marker)[:8], protocol.CfgInvalid, false, false},
		"more than the markers'": {append(nonce(out.Marker), 0), protocol.CfgInvalid, false, false},
		"nothing":                {nil, protocol.CfgInvalid, false, false},
	} {
		l := newTestDirect(1).newTestLink(7, Opening, 1)
		l.out, l.in = out, in
		if status, _ := l.onRequest(protocol.CfgArrived, tt.data); status != tt.status {
			t.Errorf("%s: %v", name, status)
		}
		if got := closed(l.heard.probes.happened); got != tt.probes {
			t.Errorf("%s: the probes are confirmed: %t", name, got)
		}
		if got := closed(l.heard.markers.happened); got != tt.markers {
			t.Errorf("%s: the markers are confirmed: %t", name, got)
		}
	}
}

// TestGivenUp gives up a link's path while the link waits for the confirmation of its markers. It
// expects the end of the link at once, and not when the time for the confirmation is over.
func TestGivenUp(t *testing.T) {
	l := newTestDirect(1).newTestLink(7, Opening, 1)
	l.d.cfg.Answer = time.Hour
	l.path = new(paths.Path)
	l.conn = new(messaging.Conn)
	l.full.set()
	if why := l.await("", l.heard.markers.happened, time.Now().Add(10*time.Second)); why != errUnconfirmed || why.late {
		t.Errorf("%+v", why)
	}
}

// TestMadeByRevokedUnit ends the trust in the I/O unit that has made a connection: its key is
// revoked before the connection serves, or meanwhile, or its certificate expires. It expects the
// end of the connection, whichever I/O unit permits it. A renewed certificate and another change
// of the trust must not end it.
func TestMadeByRevokedUnit(t *testing.T) {
	revoked := &session.RevokedError{Reason: session.ErrRevoked}
	start := func(until time.Time, err error) (*link, *testUnit, <-chan *leaving) {
		d := newTestDirect(1)
		d.cfg.Idle, d.cfg.Grace = time.Hour, time.Hour
		l := d.newTestLink(7, Established, 1)
		a := new(testUnit)
		l.author = &Session{StillTrusted: a.StillTrusted}
		a.becomes(until, err)
		keep := &session.Direct{Step: session.DirectKeep, Peer: l.offer.Peer}
		return l, a, l.served(event{kind: eventMessage, message: keep})
	}
	reread := func(l *link) {
		t.Helper()
		next, err := session.Insecure()
		if err == nil {
			_, err = l.d.cfg.Security.Update(next)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	asked := func(a *testUnit, times int) {
		for now := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.asked }; now() < times; {
			time.Sleep(time.Millisecond)
		}
	}
	ends := func(t *testing.T, served <-chan *leaving) {
		t.Helper()
		var why *leaving
		select {
		case why = <-served:
		case <-time.After(30 * time.Second):
			t.Fatal("the connection goes on")
		}
		if why.reason != "the I/O unit that made it is not trusted any more" || why.informed {
			t.Errorf("%+v", why)
		}
	}
	t.Run("revoked before", func(t *testing.T) {
		_, _, served := start(time.Time{}, revoked)
		ends(t, served)
	})
	t.Run("revoked", func(t *testing.T) {
		l, a, served := start(time.Time{}, nil)
		asked(a, 1)
		a.becomes(time.Time{}, revoked)
		reread(l)
		ends(t, served)
	})
	t.Run("expired", func(t *testing.T) {
		_, a, served := start(time.Now().Add(100*time.Millisecond), nil)
		asked(a, 1)
		a.becomes(time.Time{}, revoked)
		ends(t, served)
	})
	t.Run("renewed", func(t *testing.T) {
		l, a, served := start(time.Now().Add(-time.Second), nil) // it is asked again and again
		asked(a, 3)
		a.becomes(time.Now().Add(time.Hour), nil)
		reread(l)
		l.tell(event{kind: eventLeave, reason: "over"})
		if why := <-served; why.reason != "over" {
			t.Errorf("%+v", why)
		}
	})
}
