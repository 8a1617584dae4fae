package tx

import (
	"sync/atomic"
	"testing"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/vnet"
)

// TestPauseWhileTheQueueIsRead pauses a sender again and again while it reads its queue. Whatever it has
// read before: either it knows of the pause afterwards, or it will read the queue again.
func TestPauseWhileTheQueueIsRead(t *testing.T) {
	s := newIdle(t, protocol.ModeImm, usual(), 0, pools.Options{})
	for i := range 500 {
		done, paused := make(chan struct{}, 1), make(chan struct{})
		s.Queue.Wake()
		go func() {
			defer close(paused)
			s.Pause(done)
		}()
		for reading := true; reading; {
			select {
			case <-paused:
				reading = false
			default:
				s.readQueue()
			}
		}
		if !s.Queue.Pending.Load() && !s.wantsCompletions() {
			t.Fatalf("pause %d is lost", i)
		}
		s.readQueue()
		if err := s.settle(); err != nil {
			t.Fatal(err)
		}
		if len(done) != 1 || s.wantsCompletions() {
			t.Fatalf("pause %d: reported %d times", i, len(done))
		}
	}
}

// tardyCQ is a completion queue in which a work request has completed when it is polled again.
type tardyCQ struct {
	fabric.CQ
	id    uint64
	polls int
}

func (q *tardyCQ) Poll(out []fabric.Completion) (int, error) {
	if q.polls++; q.polls != 2 {
		return 0, nil
	}
	out[0] = fabric.Completion{ID: q.id}
	return 1, nil
}

// TestPauseEndsWhileSlotsAreFreed pauses a sender for which the last work request completes when it looks
// for free slots, after it has looked for what a pause waits for. The test expects the pause to be reported
// before the sender sleeps: no event would wake it.
func TestPauseEndsWhileSlotsAreFreed(t *testing.T) {
	p := newPacking(t, protocol.ModeImm, usual(), 0, packSlotSize)
	e, err := p.c.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Begin(emptyPort{e}, new(atomic.Pointer[vnet.Keys])); err != nil {
		t.Fatal(err)
	}
	p.in.ahead = packSlots + 1 // more than there are slots
	id, _ := p.number(true)
	cq := &tardyCQ{CQ: p.ch.SendCQ, id: id}
	p.ch.SendCQ = cq
	done := make(chan struct{}, 1)
	p.Pause(done)
	p.Resume()
	if ended, err := p.work(); ended || err != nil {
		t.Fatalf("ended: %v, %v", ended, err)
	}
	if len(done) != 1 || !p.Queue.Asleep.Load() {
		t.Errorf("after %d polls the pause is reported %d times", cq.polls, len(done))
	}
}

// TestPauseWaits expects a pause to be reported when no work request is in flight, no indication is still to
// be sent and no action on windows to be posted, and not before.
func TestPauseWaits(t *testing.T) {
	p := newPacking(t, protocol.ModeImm, usual(), 0, packSlotSize)
	g, done := p.Pools()[0], make(chan struct{}, 1)
	for what, c := range map[string]struct{ begin, end func() }{
		"a work request": {func() { p.number(true) }, func() { p.ring.pop() }},
		"an indication":  {func() { p.indications.add(&inFlightEntry{pool: g}) }, func() { p.indications.forget(1) }},
		"an action":      {func() { p.actions.posting = make([]posting, 1) }, func() { p.actions.posting = nil }},
	} {
		c.begin()
		p.actions.pausing = append(p.actions.pausing, done)
		if err := p.actions.pause(); err != nil || len(done) != 0 {
			t.Fatalf("%s is left: reported %d times, %v", what, len(done), err)
		}
		c.end()
		if err := p.actions.pause(); err != nil || len(done) != 1 {
			t.Fatalf("%s is not left: reported %d times, %v", what, len(done), err)
		}
		<-done
	}
}
