package bufpool

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/splitnic/splitnic/protocol"
)

// TestEndOfManyPools ends a session with more pools than a flush request can name. The request
// about the others must follow the reply to the first, on both sides of the pools.
func TestEndOfManyPools(t *testing.T) {
	const most, more = protocol.MaxFlushPools, 3
	cfg := config()
	cfg.MaxPools, cfg.PeerPools, cfg.MaxElements = most+more, most+more, 4*(most+more)
	w := &walk{t: t, pools: NewPools(cfg)}
	w.lent(most + more)
	for ref := range uint32(most + more) {
		w.lend(ref, 2048, false)
	}
	var taken, given []int
	var all []Action
	next := func(e Event) (replied uint64) {
		out, err := w.pools.Step(&e, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range out {
			if a.Do == Request && a.Refs[0]&giveBack != 0 {
				given = append(given, len(a.Refs))
			} else if a.Do == Request {
				taken = append(taken, len(a.Refs))
			}
			replied = max(replied, a.Transaction)
		}
		all = append(all, out...)
		return replied
	}
	n := next(Event{Kind: Ending})
	for i := 0; i < len(all) || n > 0; {
		for ; i < len(all); i++ {
			if a := all[i]; a.Do == Stop {
				n = max(n, next(Event{Did: Stop, Remote: a.Remote}))
			}
		}
		if n > 0 {
			n = next(Event{Kind: FlushReply, Transaction: n})
		}
	}
	if want := []int{most, more}; !slices.Equal(taken, want) || !slices.Equal(given, want) {
		t.Errorf("requests take %v pools back, and give %v; want %v", taken, given, want)
	}
}

// TestExtra lends a pool on request and ends its use, once on each side. It expects Extra to report
// whether there is such a pool.
func TestExtra(t *testing.T) {
	w := &walk{t: t, pools: NewPools(config())}
	extra := func(want bool) {
		t.Helper()
		if got := w.pools.Extra(); got != want {
			t.Errorf("pools that came on request: %t", got)
		}
	}
	w.lent(1)
	w.lend(1, 2048, true)
	extra(false)
	l := w.asked()
	extra(true)
	w.step(Event{Kind: Flush, Transaction: 7, Refs: []uint32{l.Ref | giveBack}}, fmt.Sprintf("drain %d", l.Ref))
	w.step(Event{Did: Drain, Local: l}, fmt.Sprintf("deregister %d; reply to 7, 0 of 0", l.Ref))
	w.step(Event{Did: Reply}, "")
	w.step(Event{Did: Deregister, Local: l}, "")
	extra(false)
	w.now = w.now.Add(time.Hour)
	w.step(Event{Kind: Needed, Channel: 1, Size: 100}, "ask of 4 × 2048 on 1")
	w.lend(2, 2048, true)
	extra(true)
	w.step(Event{Kind: Flush, Transaction: 8, Refs: []uint32{2}}, "stop 2 for good")
	extra(false)
}
