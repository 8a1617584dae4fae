package rx

import (
	"errors"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core/coretest"
	"github.com/splitnic/splitnic/vnet"
)

// sink is a port that takes all frames.
type sink struct {
	core.Port
	frames int
}

func (s *sink) WriteFrames(ops []vnet.WriteOp) int {
	s.frames += len(ops)
	return len(ops)
}

// TestLateMessageIsNotHeard repeats a message. Somebody on the fabric can do that, also where messages
// are sealed, so the peer must not count as alive; with a new message it must.
func TestLateMessageIsNotHeard(t *testing.T) {
	r := newFlooded(t, coretest.New(t, protocol.ModeSendUC), 1)
	port := &sink{}
	r.out.port = port
	r.c.MTU.Store(1500)
	const never = 1 << 62
	size := vnet.HdrLen + vnet.MinFrame
	r.comps[0] = fabric.Completion{Op: fabric.OpRecv, Len: uint32(protocol.SendDataOverhead + size)}
	for _, step := range []struct {
		name     string
		sequence uint64
		heard    bool
	}{{"new", 0, true}, {"repeated", 0, false}, {"the next", 1, true}} {
		r.c.Heard.Store(never)
		protocol.PutSendData(r.numbering.pool.Element(0), step.sequence, size)
		if err := r.Deliver(1); err != nil {
			t.Fatal(err)
		}
		if heard := r.c.Heard.Load() != never; heard != step.heard {
			t.Errorf("%s: the peer was heard: %t, want %t", step.name, heard, step.heard)
		}
	}
	if late := r.Count.RxLate.Load(); port.frames != 2 || late != 1 {
		t.Errorf("%d frames delivered, %d messages late", port.frames, late)
	}
}

// TestSequenceJumps has a peer leave out as many messages as it may have sent, and one more. The latter
// breaks the rule about sequence numbers, whether a message or a report says so, and frees no element.
func TestSequenceJumps(t *testing.T) {
	r := newFlooded(t, coretest.New(t, protocol.ModeSendUC), 1)
	elements := r.numbering.pool.Elements
	n := uint64(elements.Len())
	if _, err := r.sequence(n + 1); !errors.Is(err, core.ErrSequence) {
		t.Errorf("a message after %d others of %d: %v", n+1, n, err)
	}
	if err := r.sentSoFar(n + 1); !errors.Is(err, core.ErrSequence) {
		t.Errorf("a report of %d messages of %d: %v", n+1, n, err)
	}
	if l := elements.Ledger(); l.Lent != elements.Len() {
		t.Errorf("elements are not lent any more: %+v", l)
	}
	if err := r.sentSoFar(n); err != nil || r.Count.RxLost.Load() != n {
		t.Errorf("a report of %d messages: %d lost, %v", n, r.Count.RxLost.Load(), err)
	}
}
