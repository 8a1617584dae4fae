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
func bound(_ *victim, cfg *messaging.Config) { cfg.Bind = messaging.NewBinding(bindingSecret, false) }

// proof returns the proof that a host with this secret sends first.
func (p *Peer) proof(secret [32]byte) protocol.Proof {
	ours, _ := messaging.NewBinding(secret, true).Proofs(p.Addresses(), p.remote)
	return ours
}

// prove sends data as the proof.
func (p *Peer) prove(data []byte) {
	p.t.Helper()
	p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: 5, Type: protocol.CfgBind,
		Data: data}))
}

// Prove sends the proof that the session expects from a host with this secret.
func (p *Peer) Prove(secret [32]byte) {
	p.t.Helper()
	proof := p.proof(secret)
	p.prove(proof[:])
}

// Ask sends a request without data, and does not wait for the reply.
func (p *Peer) Ask(t protocol.CfgType) {
	p.t.Helper()
	p.send(protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: 5, Type: t}))
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
func proofs() []Attack {
	var attacks []Attack
	before := func(name, code string, do func(p *Peer)) {
		attacks = append(attacks, Attack{Name: name, Modes: everywhere, Code: code, Local: true, unbound: true,
			prepare: bound, do: do})
	}
	before("keep-alive before the proof", "proof-missing", func(p *Peer) {
		p.Ask(protocol.CfgKeepAlive)
	})
	before("pool before the proof", "proof-missing", func(p *Peer) { p.send(p.lend(func(*protocol.Pool) {})) })
	before("reply before the proof", "proof-missing", func(p *Peer) {
		m, err := protocol.DecodeCfgUtilRequest(p.message(protocol.FuncCfgUtilRequest))
		p.ok(err)
		p.send(protocol.AppendCfgUtilReply(nil, protocol.CfgUtilReply{TransactionContext: m.TransactionContext,
			Type: m.Type}))
	})
	before("nonsense before the proof", "function", func(p *Peer) { p.send(header(0)) })
	before("proof of another connection", "proof-wrong", func(p *Peer) { p.Prove([32]byte{2, 31: 1}) })
	before("proof of nothing", "proof-wrong", func(p *Peer) { p.prove(make([]byte, len(protocol.Proof{}))) })
	before("proof with one bit changed", "proof-wrong", func(p *Peer) {
		proof := p.proof(bindingSecret)
		proof[31] ^= 1
		p.prove(proof[:])
	})
	before("proof of the session's own", "proof-wrong", func(p *Peer) {
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
		before("proof about "+name, "proof-wrong", func(p *Peer) {
			own, remote := p.Addresses(), append([]fabric.Address(nil), p.remote...)
			change(own, remote)
			proof, _ := messaging.NewBinding(bindingSecret, true).Proofs(own, remote)
			p.prove(proof[:])
		})
	}
	before("proof cut short", "short-message", func(p *Peer) { proof := p.proof(bindingSecret); p.prove(proof[:31]) })
	before("proof with more behind", "trailing-bytes",
		func(p *Peer) { proof := p.proof(bindingSecret); p.prove(append(proof[:], 0)) })
	impatient := func(timeout time.Duration) func(v *victim, cfg *messaging.Config) {
		return func(v *victim, cfg *messaging.Config) {
			bound(v, cfg)
			cfg.KeepAlive, cfg.PeerTimeout = 10*time.Millisecond, timeout
		}
	}
	return append(attacks,
		Attack{Name: "nothing at all", Modes: everywhere, Silent: true, Local: true, unbound: true,
			prepare: impatient(50 * time.Millisecond), do: func(*Peer) {}},
		Attack{Name: "transfer and no proof", Modes: reliable, Code: "proof-missing", Channel: 1, Local: true, unbound: true,
			prepare: impatient(time.Second), do: func(p *Peer) {
				var data []byte
				if p.mode.Sends() {
					data = sendData(0, frame(100))
				}
				p.post(p.data[0], fabric.SendWR{Op: fabric.OpSend}, data)
			}},
		Attack{Name: "transfer before the proof", Modes: reliable, Code: "proof-missing", Channel: 1, Local: true,
			unbound: true, prepare: bound, do: func(p *Peer) {
				var data []byte // without a key, no write is possible
				if p.mode.Sends() {
					data = sendData(0, frame(100))
				}
				p.post(p.data[0], fabric.SendWR{Op: fabric.OpSend}, data)
				p.completed()
				p.Prove(bindingSecret)
			}},
		Attack{Name: "second proof", Modes: everywhere, Delivered: 1, Local: true, unbound: true, prepare: bound,
			do: func(p *Peer) {
				p.Prove(bindingSecret)
				p.surly = false
				p.Started()
				p.transfer(0, 0, frame(100))
				p.Prove(bindingSecret)
				p.proofAnswered(protocol.CfgInvalid)
			}},
		Attack{Name: "proof that nobody asked for", Modes: everywhere, do: func(p *Peer) {
			proof := p.proof(bindingSecret)
			if s := p.request(protocol.CfgBind, proof[:]); s != protocol.CfgUnsupported {
				p.t.Errorf("it was answered with %v", s)
			}
		}},
	)
}
