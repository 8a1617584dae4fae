//go:build cgo

package e2e

import (
	"testing"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/hostiletest"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// TestRDMABinding opens sessions with the right key, and continues each with a queue pair that
// does not prove that it belongs to the session. The I/O unit has to end the session and count
// one violation. Another host must not be affected.
func TestRDMABinding(t *testing.T) {
	r := newFixture(t, "macvtap")
	good := r.host(t)
	a := newAttacker(t, r)
	a.features = []string{protocol.FeatureBind}
	for name, tt := range map[string]struct {
		prove func(p *hostiletest.Peer, secret [session.BindingSize]byte)
		code  string
	}{
		"proof of another connection": {func(p *hostiletest.Peer, secret [session.BindingSize]byte) {
			secret[0] ^= 1
			p.Prove(secret)
		}, "proof-wrong"},
		"message before the proof": {func(p *hostiletest.Peer, _ [session.BindingSize]byte) { p.Ask(protocol.CfgKeepAlive) },
			"proof-missing"},
	} {
		t.Run(name, func(t *testing.T) {
			before := r.violations()[tt.code]
			_, bye := a.begin(t, protocol.ModeImm, tt.prove)
			if bye.Code != session.CodeProtocol {
				t.Errorf("the I/O unit says bye with code %q: %s", bye.Code, bye.Message)
			}
			// The violation is counted after the bye is sent.
			eventually(t, func() bool { return r.violations()[tt.code] > before }, "%s to be counted", tt.code)
			if n := r.violations()[tt.code]; n != before+1 {
				t.Errorf("%s is counted %d times", tt.code, n-before)
			}
		})
	}
	eventually(t, func() bool { return len(r.macvtaps()) == 1 }, "what the I/O unit had for the attacker to go")
	ping(t, good.ns, addr(0), 3, 1000)
	if s := good.hostStatus(); s.Sessions != 1 {
		t.Errorf("the host beside had to connect again: %d sessions", s.Sessions)
	}
}
