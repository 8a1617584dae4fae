package messaging_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
)

// lendAndTakeBack lends a pool to the endpoint and takes it back.
func (p *rawPeer) lendAndTakeBack(ref, elements uint32) {
	p.t.Helper()
	l := p.ownPool(ref)
	l.Elements = elements
	p.send(protocol.AppendBufferRecvPool(nil, 0, l))
	p.send(protocol.AppendBufferPoolFlushRequest(nil, uint64(ref), ref))
	p.recycle(p.function(protocol.FuncBufferPoolFlushReply))
}

// TestPoolsTakenBackTooOften has a peer lend pools and take them back as fast as possible. The
// replies must be rate-limited by the number of elements, and also by that of pools, which
// matters for small ones.
func TestPoolsTakenBackTooOften(t *testing.T) {
	const burst, rate, each = 1 << 16, 1 << 16, 256
	for _, elements := range []uint32{1, 1 << 14, protocol.MaxPoolElements} {
		t.Run(fmt.Sprintf("%d elements", elements), func(t *testing.T) {
			h, p := newRawPeer(t, messaging.Config{})
			begun := time.Now()
			spent := 0.0
			for ref := uint32(1); h.conn.Stats().FlushesThrottled < 2; ref = ref%7 + 1 {
				p.lendAndTakeBack(ref, elements)
				spent += each + float64(elements)
				if most := burst + rate*time.Since(begun).Seconds(); spent > most {
					t.Fatalf("pools for %.0f were taken back, at most %.0f", spent, most)
				}
			}
			if err := h.conn.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}
