package hostiletest

import (
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// pathMTU is the path MTU of sessions that require a packet of its length. It is smaller than the
// buffers for control messages, so that a longer one arrives.
const pathMTU = 256

// provesPath makes the session require a proof, and then a packet of the path MTU.
func provesPath(v *victim, cfg *messaging.Config) {
	bound(v, cfg)
	cfg.ProvePath, cfg.PathMTU = true, pathMTU
}

// path sends a request without data, of a type, in a packet of the given length.
func (p *Peer) path(t protocol.CfgType, length int) {
	p.t.Helper()
	m := protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: 6, Type: t})
	p.send(append(m, make([]byte, length-len(m))...))
}

// paths returns attacks on the packet that follows the proof.
func paths() []localAttack {
	var attacks []localAttack
	after := func(name, code string, do func(p *attacker)) {
		attacks = append(attacks, localAttack{Attack{Name: name, Modes: everywhere, Code: code}, provesPath,
			func(p *attacker) {
				p.Prove(bindingSecret)
				do(p)
			}})
	}
	after("path without its length", "path-missing",
		func(p *attacker) { p.path(protocol.CfgPath, protocol.PathRequestSize) })
	after("path one byte short", "path-missing", func(p *attacker) { p.path(protocol.CfgPath, pathMTU-1) })
	after("path one byte long", "path-missing", func(p *attacker) { p.path(protocol.CfgPath, pathMTU+1) })
	after("keep-alive of the length of the path", "path-missing",
		func(p *attacker) { p.path(protocol.CfgKeepAlive, pathMTU) })
	after("pool instead of the path", "path-missing", func(p *attacker) { p.send(p.lend(func(*protocol.Pool) {})) })
	after("second proof instead of the path", "path-missing", func(p *attacker) { p.Prove(bindingSecret) })
	return append(attacks, localAttack{Attack{Name: "second path", Modes: everywhere, Delivered: 1}, provesPath,
		func(p *attacker) {
			p.Prove(bindingSecret)
			p.path(protocol.CfgPath, pathMTU)
			p.Surly = false
			p.Started()
			p.transfer(0, 0, frame(100))
			if s := p.request(protocol.CfgPath, nil); s != protocol.CfgInvalid {
				p.t.Errorf("it was answered with %v", s)
			}
		}})
}
