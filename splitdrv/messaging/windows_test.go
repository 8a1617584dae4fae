package messaging

import (
	"testing"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/protocol"
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
	dev := fabrictest.New().Device("a")
	t.Cleanup(func() { dev.Close() })
	c, err := New(Config{Device: dev, Mode: protocol.ModeImm, Protection: ProtectOneTouch, OneTouch: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ch := c.channels[0]
	qp := &windowQP{QP: ch.qp, keys: map[fabric.Window]uint32{}}
	ch.qp = qp
	lent := (*ch.rx.local.Load())[0]
	batch := &bufpool.Batch{}
	for i := range 20 {
		batch.Written = append(batch.Written, bufpool.Written{Local: lent, Element: i})
	}
	for _, r := range []sqRequest{
		{kind: sqBind, lent: lent}, {kind: sqRevoke, batch: batch}, {kind: sqRebind, batch: batch},
		{kind: sqUnbind, lent: lent},
	} {
		s, n := ch.tx, windowsOf(&r)
		if n < 2 {
			t.Fatalf("requests of kind %d are for %d windows", r.kind, n)
		}
		for done, room := false, 1; !done; room++ {
			s.completed = s.posted - uint32(s.depth-room)
			qp.flags = nil
			if done, err = s.requests.postOne(&r); err != nil {
				t.Fatal(err)
			}
			if len(qp.flags) != min(room, n) {
				t.Fatalf("kind %d: %d of %d work requests are posted, there is room for %d", r.kind, len(qp.flags), n, room)
			}
			n -= len(qp.flags)
			for i, f := range qp.flags {
				if last := i == len(qp.flags)-1; last != (f&fabric.Signaled != 0) {
					t.Errorf("kind %d: work request %d of a run of %d has flags %#x", r.kind, i+1, len(qp.flags), f)
				}
			}
			if s.signaled != s.posted {
				t.Errorf("kind %d: the sender takes %d for signaled, the last one is %d", r.kind, s.signaled, s.posted)
			}
		}
		if n != 0 {
			t.Errorf("kind %d: %d work requests are not posted", r.kind, n)
		}
	}
}
