package messaging

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
)

// Binding is what ties a session's channels to the connection over which their
// addresses were exchanged. It prints nothing of its secret.
type Binding struct {
	secret [32]byte
	host   bool
}

// NewBinding is for the host's side of a connection, or else the I/O unit's,
// of which both sides know the secret, and nobody else does.
func NewBinding(secret [32]byte, host bool) *Binding { return &Binding{secret: secret, host: host} }

// String implements fmt.Stringer.
func (b Binding) String() string { return "binding" }

// GoString is for %#v.
func (b Binding) GoString() string { return "messaging.Binding" }

// Proofs are what this side has to send first on its control channel, and what
// it has to hear first there, given both sides' queue pairs in the order of
// Conn.Addresses.
func (b *Binding) Proofs(own, remote []fabric.Address) (ours, theirs protocol.Proof) {
	host, unit := boundChannels(own), boundChannels(remote)
	if !b.host {
		host, unit = unit, host
	}
	ours = protocol.MakeProof(b.secret[:], b.host, host, unit)
	theirs = protocol.MakeProof(b.secret[:], !b.host, host, unit)
	return ours, theirs
}

func boundChannels(addresses []fabric.Address) []protocol.BoundChannel {
	channels := make([]protocol.BoundChannel, len(addresses))
	for i, a := range addresses {
		channels[i] = protocol.BoundChannel{QPN: a.QPN, PSN: a.PSN, LID: a.LID, GID: a.GID}
	}
	return channels
}

// binding is how far the proofs have got. With Config.Bind, each side's first
// control message is its proof, and a side takes no other message, lends no
// pool and looks at no data channel before it has the peer's.
type binding struct {
	ours, theirs protocol.Proof
	proved       bool          // the peer is; of the control handler
	heard        chan struct{} // closed then
	trusted      chan struct{} // closed when nothing came before that should not have
	bound        atomic.Bool   // the session has begun
	answered     bool          // of the configuration goroutine
}

// unproved reports whether the peer has still to prove that it is the one of the
// bootstrap connection. Called by the control handler.
func (c *Conn) unproved() bool { return c.cfg.Bind != nil && !c.binding.proved }

// hearProof takes the peer's first message, which is answered like any request.
func (c *Conn) hearProof(msg []byte) error {
	h, err := protocol.DecodeHeader(msg)
	if err != nil {
		return controlViolation(err, "header")
	}
	if h.Function != protocol.FuncCfgUtilRequest {
		return controlViolation(ErrProofMissing, "%v", h.Function)
	}
	m, err := protocol.DecodeCfgUtilRequest(msg)
	if err != nil {
		return controlViolation(err, "CfgUtilRequest")
	}
	if m.Type != protocol.CfgBind {
		return controlViolation(ErrProofMissing, "CfgUtilRequest about %v", m.Type)
	}
	proof, err := protocol.DecodeProof(m.Data)
	if err != nil {
		return controlViolation(err, "CfgUtilRequest")
	}
	if !proof.Equal(c.binding.theirs) {
		return controlViolation(ErrProofWrong, "CfgUtilRequest about %v", m.Type)
	}
	c.binding.proved = true
	close(c.binding.heard)
	return c.onRequest(msg)
}

// answerProof says that the peer's proof was right, once.
func (c *Conn) answerProof() protocol.CfgStatus {
	switch {
	case c.cfg.Bind == nil:
		return protocol.CfgUnsupported
	case c.binding.answered:
		return protocol.CfgInvalid
	}
	c.binding.answered = true
	return protocol.CfgOK
}

// bind waits for the peer's proof, and then lets moveBound go on.
func (c *Conn) bind() error {
	interval := min(c.cfg.KeepAlive, c.cfg.PeerTimeout/4)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	silence := c.newSilence(interval)
	for proved := false; !proved; {
		select {
		case <-c.binding.heard:
			proved = true
			continue
		case due := <-tick.C:
			silence.tick(time.Since(due), c.heard.Load())
		case <-c.control.told:
		case <-c.done:
			return nil
		}
		if silence.over(c.cfg.PeerTimeout, c.heard.Load()) {
			if err := c.early(); err != nil {
				return err
			}
			// Somebody else's queue pair would have sent something: it is the fabric.
			return fmt.Errorf("%w: nothing came over RDMA within %v, although TCP gets through; %s", ErrPeerSilent,
				c.cfg.PeerTimeout, silenceHint)
		}
	}
	if err := c.early(); err != nil {
		return err
	}
	c.binding.bound.Store(true)
	close(c.binding.trusted)
	c.keep()
	return nil
}

// silenceHint is where to look when RDMA does not get through.
const silenceHint = "check the GIDs of both devices and the MTU on the way (splitnic doctor --peer), and that no firewall drops UDP port 4791"

// early looks for what must not be on the data channels before the proof. Nobody
// has anything to send with before the pools are lent.
func (c *Conn) early() error {
	for _, ch := range c.channels {
		var early [1]fabric.Completion
		n, err := ch.recvCQ.Poll(early[:])
		switch {
		case err != nil:
			return fmt.Errorf("poll the receive queue of data channel %d: %w", ch.number, err)
		case n > 0 && early[0].Status == fabric.StatusSuccess:
			return &ProtocolError{Channel: ch.number, Value: fmt.Sprintf("%d bytes before any pool was lent", early[0].Len),
				Rule: ErrProofMissing}
		case n > 0:
			return fmt.Errorf("receive on data channel %d: %w", ch.number, early[0].Err())
		}
	}
	return nil
}

// moveBound is move when the peer has proved who it is.
func (c *Conn) moveBound() error {
	select {
	case <-c.binding.trusted:
	case <-c.done:
		return nil
	}
	if err := c.move(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil // the session has ended meanwhile
}
