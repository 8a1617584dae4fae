package tx

import (
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

// notingQP records the work requests posted to it. None of them completes.
type notingQP struct {
	fabric.QP
	sent []fabric.SendWR
	keys []fabric.Flags // flags of the messages with keys
}

func (q *notingQP) PostSend(wrs []fabric.SendWR) (int, error) {
	q.sent = append(q.sent, wrs...)
	return len(wrs), nil
}

func (q *notingQP) BindSend(_ fabric.BindWR, _ uint64, f fabric.Flags) (uint32, error) {
	q.keys = append(q.keys, f)
	return 7, nil
}

// TestBindSendRoom binds the window of a pool and sends its key while the send queue has room
// for a few work requests. If there is room for only one, and no posted work request is
// signaled, the sender must post a signaled one.
func TestBindSendRoom(t *testing.T) {
	for _, tt := range []struct {
		room          int
		completes     bool // the last posted work request is signaled
		drains, binds int
	}{
		{0, true, 0, 0}, {1, true, 0, 0}, {1, false, 1, 0}, {2, true, 0, 1}, {2, false, 0, 1}, {3, false, 0, 1},
	} {
		s := newIdle(t, protocol.ModeImm, usual(), 0, pools.Options{Windows: true, WindowBounds: true, KeySend: true})
		qp := &notingQP{QP: s.ch.QP}
		s.ch.QP = qp
		s.completed, s.posted = 0, uint32(s.depth-tt.room)
		if s.signaled = s.posted; !tt.completes {
			s.signaled--
		}
		done, err := s.actions.bindSend(s.lent)
		if err != nil || done != (tt.binds == 1) || len(qp.sent) != tt.drains || len(qp.keys) != tt.binds {
			t.Errorf("%+v: done %t, %v; %d drains, %d binds", tt, done, err, len(qp.sent), len(qp.keys))
			continue
		}
		if n := tt.drains + 2*tt.binds; int(s.posted) != s.depth-tt.room+n || s.ring.len() != tt.drains+tt.binds {
			t.Errorf("%+v: %d posted, %d to complete", tt, int(s.posted)-s.depth+tt.room, s.ring.len())
		}
		for _, wr := range qp.sent {
			if wr.Op != fabric.OpWrite || wr.Len != 0 || wr.Flags&fabric.Signaled == 0 {
				t.Errorf("%+v: %+v", tt, wr)
			}
		}
		for _, f := range qp.keys {
			if f != fabric.Signaled|fabric.Solicited {
				t.Errorf("%+v: the message with the key has flags %v", tt, f)
			}
		}
	}
}
