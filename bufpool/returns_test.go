package bufpool

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/splitnic/splitnic/protocol"
)

// freed makes a local pool of n elements. The first free elements are ready to be returned.
func freed(t *testing.T, ref uint32, n, free int) *Local {
	t.Helper()
	l := &Local{Ref: ref, Elements: NewElements(nil, 64, n)}
	for i := range free {
		if _, err := l.Elements.Consume(i, 1); err != nil {
			t.Fatal(err)
		}
		l.Elements.Release(i)
	}
	return l
}

// update sends the next update, and returns its content as "pool:elements …".
func update(r *Returns, pools []*Local) string {
	var words []string
	returns := r.Next(pools, nil)
	for _, x := range returns {
		words = append(words, fmt.Sprintf("%d:%d", x.Pool, len(x.Elements)))
	}
	if len(returns) > 0 {
		r.Sent(pools, returns)
	}
	return strings.Join(words, " ")
}

// TestReturns checks when an update is due, and its content, for pools with free elements and
// indications.
func TestReturns(t *testing.T) {
	room := protocol.PoolReturnSize(50)
	pools := func(t *testing.T) []*Local {
		return []*Local{freed(t, 0, 8, 1), freed(t, 1, 8, 2), freed(t, 2, 200, 90), freed(t, 3, 8, 0)}
	}
	for _, tt := range []struct {
		name string
		mode protocol.Mode
		say  func(r *Returns, l []*Local)
		want []string // updates, until none is due
	}{
		{"a quarter is free", protocol.ModeImm, func(*Returns, []*Local) {}, []string{"1:2", "2:50"}},
		{"a quarter is free, and others go with it", protocol.ModeIndicate, func(*Returns, []*Local) {
		}, []string{"1:2 0:1", "2:50"}},
		{"one that the peer waits for comes first", protocol.ModeImm, func(r *Returns, l []*Local) {
			r.Indicated(l[0], true)
		}, []string{"0:1 1:2", "2:50"}},
		{"one that it waits for in a pool of many", protocol.ModeImm, func(r *Returns, l []*Local) {
			r.Indicated(l[2], true)
		}, []string{"2:50", "2:40 1:2"}},
		{"few indications are not urgent", protocol.ModeIndicate, func(r *Returns, l []*Local) {
			for range indicatesPerUpdate - 1 {
				r.Indicated(l[1], false)
				r.Indicated(l[1], true)
			}
		}, []string{"1:2 0:1", "2:50"}},
		{"many are", protocol.ModeIndicate, func(r *Returns, l []*Local) {
			for range indicatesPerUpdate {
				r.Indicated(l[0], true)
			}
		}, []string{"0:1 1:2", "2:50"}},
		{"they are acknowledged before a pool goes", protocol.ModeIndicate, func(r *Returns, l []*Local) {
			r.Indicated(l[0], true)
			if !r.Retire(l[0]) {
				t.Error("nothing has to be acknowledged")
			}
		}, []string{"0:1 1:2", "2:50"}},
		{"not before another pool goes", protocol.ModeIndicate, func(r *Returns, l []*Local) {
			r.Indicated(l[1], true)
			r.Indicated(l[0], true)
			if r.Retire(l[1]) {
				t.Error("a pool waits for what another one acknowledges")
			}
		}, []string{"1:2 0:1", "2:50"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, l := &Returns{Mode: tt.mode, Room: room}, pools(t)
			tt.say(r, l)
			var got []string
			for r.Due(l) && len(got) < 10 {
				got = append(got, update(r, l))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("updates %q, want %q", got, tt.want)
			}
			if slices.ContainsFunc(l, r.Retire) {
				t.Error("there is something to acknowledge")
			}
		})
	}
}

// TestReturnsForget expects no elements of a forgotten pool in updates.
func TestReturnsForget(t *testing.T) {
	r := &Returns{Mode: protocol.ModeImm, Room: protocol.PoolReturnSize(50)}
	gone, l := freed(t, 0, 8, 1), freed(t, 1, 8, 1)
	r.Indicated(gone, true)
	r.Forget(gone)
	if got := update(r, []*Local{l}); got != "1:1" {
		t.Errorf("an update of %q", got)
	}
}

// TestBatches takes elements through batches. It expects the memory of batches to be reused, and
// all unfinished batches to be abandoned in their order.
func TestBatches(t *testing.T) {
	var b Batches
	r := Returns{Mode: protocol.ModeImm, Room: protocol.PoolReturnSize(4)}
	l := freed(t, 0, 4, 0)
	if b.Revoke() != nil {
		t.Error("a batch of nothing")
	}
	round := func() {
		for e := range 4 {
			if _, err := l.Elements.Consume(e, 1); err != nil {
				t.Fatal(err)
			}
			b.Gather(Written{Local: l, Element: e, Indicated: e == 2, Last: true})
		}
		batch := b.Revoke()
		b.Revoked()
		batch.Rebound(&r)
		b.Put(batch)
		l.Elements.Returned(4)
	}
	round()
	if len(b.Gathered()) != 0 || len(b.Abandoned()) != 0 || !r.Due([]*Local{l}) {
		t.Errorf("%+v; %+v", b, r)
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for a batch", n)
	}
	b.Gather(Written{Local: l})
	first := b.Revoke()
	b.Gather(Written{Local: l, Element: 1})
	if left := b.Abandoned(); len(left) != 2 || left[0] != first {
		t.Errorf("%d batches are abandoned", len(left))
	}
}
