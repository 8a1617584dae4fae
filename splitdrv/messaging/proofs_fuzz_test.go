package messaging

import (
	"bytes"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
)

// FuzzProof gives the control handler any first message. The handler must accept only the
// peer's proof.
func FuzzProof(f *testing.F) {
	bind := NewBinding([32]byte{1}, true)
	own, remote := []fabric.Address{{QPN: 17}, {QPN: 18}}, []fabric.Address{{QPN: 33}, {QPN: 34}}
	ours, theirs := bind.Proofs(own, remote)
	message := func(t protocol.CfgType, data []byte) []byte {
		return protocol.AppendCfgUtilRequest(nil, protocol.CfgUtilRequest{TransactionContext: 1, Type: t, Data: data})
	}
	right := message(protocol.CfgBind, theirs[:])
	for _, seed := range [][]byte{
		right, message(protocol.CfgBind, ours[:]), message(protocol.CfgBind, nil), message(protocol.CfgKeepAlive, nil),
		right[:12], nil,
		protocol.AppendBufferPoolFlushReply(nil, 1),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		c, cfg := &core.Session{}, &Config{Bind: bind}
		d := &dispatcher{
			c: c, cfg: cfg, requests: control.NewRequests(c, nil, nil, nil), proofs: newProofs(c, cfg, nil, nil, nil),
		}
		d.proofs.ours, d.proofs.theirs = ours, theirs
		err := d.dispatch(msg)
		taken := err == nil && !d.proofs.unproved()
		good := false
		if m, err := protocol.DecodeCfgUtilRequest(msg); err == nil {
			good = m.Type == protocol.CfgBind && bytes.Equal(m.Data, theirs[:])
		}
		if taken != good || (err == nil) != good {
			t.Errorf("%x: taken %t, %v", msg, taken, err)
		}
		if good && d.dispatch(message(protocol.CfgKeepAlive, nil)) != nil {
			t.Error("the next message was not taken")
		}
	})
}
