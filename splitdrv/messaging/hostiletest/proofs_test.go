package hostiletest

import (
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// bindingSecret is the secret of the session under attack and its legitimate peer.
var bindingSecret = [32]byte{1, 31: 2}

// bound makes the session require a proof.
func bound(v *victim, cfg *messaging.Config) {
	v.bound = true
	cfg.Bind = messaging.NewBinding(bindingSecret, false)
}

// proofAnswered waits until a proof is answered with this status.
func (p *Peer) proofAnswered(want protocol.CfgStatus) {
	p.t.Helper()
	for {
		m, err := protocol.DecodeCfgUtilReply(p.message(protocol.FuncCfgUtilReply))
		p.ok(err)
		if m.Type == protocol.CfgBind && m.Status == want {
			return
		}
	}
}

// proofs returns attacks at the beginning of a session that is bound to its bootstrap connection.
func proofs() []localAttack {
	var attacks []localAttack
	before := func(name, code string, do func(p *attacker)) {
		attacks = append(attacks, localAttack{Attack{Name: name, Modes: everywhere, Code: code}, bound, do})
	}
	before("keep-alive before the proof", "proof-missing", func(p *attacker) {
		p.Ask(protocol.CfgKeepAlive)
	})
	before("pool before the proof", "proof-missing", func(p *attacker) { p.send(p.lend(func(*protocol.Pool) {})) })
	before("reply before the proof", "proof-missing", func(p *attacker) {
		m, err := protocol.DecodeCfgUtilRequest(p.message(protocol.FuncCfgUtilRequest))
		p.ok(err)
		p.send(protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: m.TransactionContext,
			Type: m.Type}))
	})
	before("nonsense before the proof", "function", func(p *attacker) { p.send(header(0)) })
	before("proof of another connection", "proof-wrong", func(p *attacker) { p.Prove([32]byte{2, 31: 1}) })
	before("proof of nothing", "proof-wrong", func(p *attacker) { p.prove(make([]byte, len(protocol.Proof{}))) })
	before("proof with one bit changed", "proof-wrong", func(p *attacker) {
		proof := p.proof(bindingSecret)
		proof[31] ^= 1
		p.prove(proof[:])
	})
	before("proof of the session's own", "proof-wrong", func(p *attacker) {
		m, err := protocol.DecodeCfgUtilRequest(p.message(protocol.FuncCfgUtilRequest))
		p.ok(err)
		p.prove(m.Data)
	})
	for name, change := range map[string]func(own, remote []fabric.Address){
		"another control queue pair":   func(own, _ []fabric.Address) { own[0].QPN++ },
		"another data queue pair":      func(own, _ []fabric.Address) { own[1].QPN++ },
		"another sequence number":      func(own, _ []fabric.Address) { own[1].PSN++ },
		"another port":                 func(own, _ []fabric.Address) { own[0].GID[15]++ },
		"another port of InfiniBand":   func(own, _ []fabric.Address) { own[0].LID++ },
		"another one of the session's": func(_, remote []fabric.Address) { remote[1].QPN++ },
	} {
		before("proof about "+name, "proof-wrong", func(p *attacker) {
			own, remote := p.Addresses(), append([]fabric.Address(nil), p.remote...)
			change(own, remote)
			proof, _ := messaging.NewBinding(bindingSecret, true).Proofs(own, remote)
			p.prove(proof[:])
		})
	}
	before("proof cut short", "short-message", func(p *attacker) { proof := p.proof(bindingSecret); p.prove(proof[:31]) })
	before("proof with more behind", "trailing-bytes",
		func(p *attacker) { proof := p.proof(bindingSecret); p.prove(append(proof[:], 0)) })
	impatient := func(timeout time.Duration) func(v *victim, cfg *messaging.Config) {
		return func(v *victim, cfg *messaging.Config) {
			bound(v, cfg)
			cfg.KeepAlive, cfg.PeerTimeout = 10*time.Millisecond, timeout
		}
	}
	return append(attacks,
		localAttack{Attack{Name: "nothing at all", Modes: everywhere}, func(v *victim, cfg *messaging.Config) {
			impatient(50*time.Millisecond)(v, cfg)
			v.silence = true
		}, func(*attacker) {}},
		localAttack{Attack{Name: "transfer and no proof", Modes: reliable, Code: "proof-missing", Channel: 1},
			impatient(time.Second), func(p *attacker) {
				var data []byte
				if p.mode.Sends() {
					data = sendData(0, frame(100))
				}
				p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSend}, data)
			}},
		localAttack{Attack{Name: "transfer before the proof", Modes: reliable, Code: "proof-missing", Channel: 1}, bound,
			func(p *attacker) {
				var data []byte // without a key, no write is possible
				if p.mode.Sends() {
					data = sendData(0, frame(100))
				}
				p.post(p.Data[0], fabric.SendWR{Op: fabric.OpSend}, data)
				p.completed()
				p.Prove(bindingSecret)
			}},
		localAttack{Attack{Name: "second proof", Modes: everywhere, Delivered: 1}, bound,
			func(p *attacker) {
				p.Prove(bindingSecret)
				p.Surly = false
				p.Started()
				p.transfer(0, 0, frame(100))
				p.Prove(bindingSecret)
				p.proofAnswered(protocol.CfgInvalid)
			}},
	)
}
