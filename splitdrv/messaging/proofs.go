package messaging

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// proofs is the exchange of proofs. With Config.Bind, each side's first
// control message is its proof, and with Config.ProvePath its second one is a CfgPath. Until
// it has those of the peer, a side accepts no other message, lends no pool and polls no data
// channel.
type proofs struct {
	c       *core.Session
	cfg     *Config
	control *control.Channel
	signs   *control.Signs
	data    []*channel

	ours, theirs protocol.Proof
	proved       bool          // the peer's proof is right; only the control handler uses it
	passed       bool          // the peer's CfgPath has arrived; only the control handler uses it
	heard        chan struct{} // closed when all of these have arrived
	trusted      chan struct{} // closed when the data channels were also found empty until then
	begun        atomic.Bool   // the session has begun
	answered     [2]bool       // the proof and the CfgPath are answered; only the request handler uses it
}

func newProofs(
	c *core.Session, cfg *Config, control *control.Channel, signs *control.Signs, data []*channel,
) *proofs {
	return &proofs{
		c: c, cfg: cfg, control: control, signs: signs, data: data,
		heard: make(chan struct{}), trusted: make(chan struct{}),
	}
}

// unproved reports whether the peer still has to prove that it is the peer of the
// bootstrap connection, or that packets of the path MTU get through. The control handler
// calls it.
func (p *proofs) unproved() bool {
	return p.cfg.Bind != nil && (!p.proved || p.cfg.ProvePath && !p.passed)
}

// begin sends the first messages. They always find a free slot.
func (p *proofs) begin(q *control.Requests) error {
	if p.cfg.Bind == nil {
		return nil
	}
	_, err := q.Ask(context.Background(), protocol.CfgBind, p.ours[:], make(chan protocol.CfgUtilReply, 1))
	if err == nil && p.cfg.ProvePath {
		_, err = q.Ask(context.Background(), protocol.CfgPath, nil, make(chan protocol.CfgUtilReply, 1))
	}
	return err
}

// hear handles the peer's first messages, which must be its proof, and then its CfgPath.
func (p *proofs) hear(f protocol.Function, msg []byte) error {
	if f != protocol.FuncCfgUtilRequest {
		return core.ErrProofMissing
	}
	m, err := protocol.DecodeCfgUtilRequest(msg)
	if err != nil {
		return err
	}
	if p.proved {
		if m.Type != protocol.CfgPath {
			return core.ControlViolation(core.ErrPathMissing, "CfgUtilRequest about %v", m.Type)
		}
		p.passed = true
		close(p.heard)
		return nil
	}
	if m.Type != protocol.CfgBind {
		return core.ControlViolation(core.ErrProofMissing, "CfgUtilRequest about %v", m.Type)
	}
	proof, err := protocol.DecodeProof(m.Data)
	if err != nil {
		return err
	}
	if !proof.Equal(p.theirs) {
		return core.ControlViolation(core.ErrProofWrong, "CfgUtilRequest about %v", m.Type)
	}
	p.proved = true
	if !p.cfg.ProvePath {
		close(p.heard)
	}
	return nil
}

// answer returns the status for the peer's proof, or for its CfgPath. A second one is invalid.
func (p *proofs) answer(t protocol.CfgType) protocol.CfgStatus {
	has, answered := p.cfg.Bind != nil, &p.answered[0]
	if t == protocol.CfgPath {
		has, answered = has && p.cfg.ProvePath, &p.answered[1]
	}
	switch {
	case !has:
		return protocol.CfgUnsupported
	case *answered:
		return protocol.CfgInvalid
	}
	*answered = true
	return protocol.CfgOK
}

// wait waits for the peer's proof, and reports whether it has arrived.
func (p *proofs) wait() (proved bool, err error) {
	interval := min(p.cfg.KeepAlive, p.cfg.PeerTimeout/4)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	// Before the proof the peer sends only on the control channel.
	heard := p.control.Received.Load
	silence := p.signs.NewSilence(interval, heard())
	for !proved {
		select {
		case <-p.heard:
			proved = true
			continue
		case due := <-tick.C:
			silence.Tick(interval, time.Since(due), heard())
		case <-p.control.LookDone:
		case <-p.c.Done:
			return false, nil
		}
		if silence.Over(p.cfg.PeerTimeout, heard()) {
			if err := p.early(); err != nil {
				return false, err
			}
			if heard() > 0 {
				return false, fmt.Errorf("%w: packets of the path MTU, %d bytes, do not get through, and smaller ones do: "+
					"does a switch on the way have a smaller MTU?", core.ErrPeerSilent, p.c.PathMTU.Load())
			}
			// An impostor would have sent something. So the fabric does not work.
			return false, fmt.Errorf("%w: nothing came over RDMA within %v, although TCP gets through; %s", core.ErrPeerSilent,
				p.cfg.PeerTimeout, silenceHint)
		}
	}
	if err := p.early(); err != nil {
		return false, err
	}
	p.begun.Store(true)
	close(p.trusted)
	return true, nil
}

// silenceHint is where to look when RDMA does not get through.
const silenceHint = "check the GIDs of both devices and the MTU on the way (splitnic doctor --peer), and that no firewall drops UDP port 4791"

// early returns an error if anything has arrived on a data channel before the proof. No
// pools are lent by then, so a peer that keeps to the protocol cannot send anything.
func (p *proofs) early() error {
	for _, ch := range p.data {
		var early [1]fabric.Completion
		n, err := ch.RecvCQ.Poll(early[:])
		switch {
		case err != nil:
			return fmt.Errorf("poll the receive queue of data channel %d: %w", ch.Number, err)
		case n > 0 && early[0].Status == fabric.StatusSuccess:
			return &core.ProtocolError{Channel: ch.Number, Value: fmt.Sprintf("%d bytes before any pool was lent", early[0].Len),
				Rule: core.ErrProofMissing}
		case n > 0:
			return fmt.Errorf("receive on data channel %d: %w", ch.Number, early[0].Err())
		}
	}
	return nil
}

// awaitTrust waits until the peer has proved its identity. It reports false if the session
// ends first.
func (p *proofs) awaitTrust() bool {
	select {
	case <-p.trusted:
		return true
	case <-p.c.Done:
		return false
	}
}
