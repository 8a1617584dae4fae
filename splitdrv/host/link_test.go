package host

import (
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/paths"
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
		l := newTestDirect(1).newTestLink(7, DirectOpening, 1)
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
	l := newTestDirect(1).newTestLink(7, DirectOpening, 1)
	l.d.cfg.Direct.Answer = time.Hour
	l.path = new(paths.Path)
	l.conn = new(messaging.Conn)
	l.full.set()
	if why := l.await("", l.heard.markers.happened, time.Now().Add(time.Hour)); why != errUnconfirmed || why.late {
		t.Errorf("%+v", why)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
