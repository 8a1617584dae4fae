package tx

import (
	"testing"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

// windowQP records the flags of the work requests for windows. None of them completes.
type windowQP struct {
	fabric.QP
	keys  map[fabric.Window]uint32
	flags []fabric.Flags
}

func (q *windowQP) Bind(b fabric.BindWR) (uint32, error) {
	q.flags = append(q.flags, b.Flags)
	q.keys[b.Window] = protocol.NextKey(q.keys[b.Window])
	return q.keys[b.Window], nil
}

func (q *windowQP) Unbind(_ fabric.Window, _ uint64, f fabric.Flags) error {
	q.flags = append(q.flags, f)
	return nil
}

func (q *windowQP) PostSend(wrs []fabric.SendWR) (int, error) {
	for _, wr := range wrs {
		q.flags = append(q.flags, wr.Flags)
	}
	return len(wrs), nil
}

// TestLastWindowIsSignaled binds and invalidates the windows of an element each, through a send queue
// with too little room for all of them. The sender waits for the completion of what it has posted:
// the last work request of each run, and no other, must be signaled.
func TestLastWindowIsSignaled(t *testing.T) {
	o := usual()
	o.OneTouch = true
	s := newIdle(t, protocol.ModeImm, o, 0, pools.Options{OneTouch: true, WindowBounds: true})
	qp := &windowQP{QP: s.ch.QP, keys: map[fabric.Window]uint32{}}
	s.ch.QP = qp
	lent := s.lent
	batch := &bufpool.Batch{}
	for i := range 20 {
		batch.Written = append(batch.Written, bufpool.Written{Local: lent, Element: i})
	}
	for _, a := range []bufpool.Action{
		{Do: bufpool.Bind, Local: lent}, {Do: bufpool.Revoke, Batch: batch}, {Do: bufpool.Rebind, Batch: batch},
		{Do: bufpool.Unbind, Local: lent},
	} {
		r := posting{Action: a}
		n := r.windows()
		if n < 2 {
			t.Fatalf("action %d is on %d windows", a.Do, n)
		}
		for done, room := false, 1; !done; room++ {
			s.completed = s.posted - uint32(s.depth-room)
			qp.flags = nil
			var err error
			if done, err = s.actions.postOne(&r); err != nil {
				t.Fatal(err)
			}
			if len(qp.flags) != min(room, n) {
				t.Fatalf("action %d: %d of %d work requests are posted, there is room for %d", a.Do, len(qp.flags), n, room)
			}
			n -= len(qp.flags)
			for i, f := range qp.flags {
				if last := i == len(qp.flags)-1; last != (f&fabric.Signaled != 0) {
					t.Errorf("action %d: work request %d of a run of %d has flags %#x", a.Do, i+1, len(qp.flags), f)
				}
			}
			if s.signaled != s.posted {
				t.Errorf("action %d: the sender takes %d for signaled, the last one is %d", a.Do, s.signaled, s.posted)
			}
		}
		if n != 0 {
			t.Errorf("action %d: %d work requests are not posted", a.Do, n)
		}
	}
}
