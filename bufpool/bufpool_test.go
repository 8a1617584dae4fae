package bufpool

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/splitnic/splitnic/internal/numa"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
)

// pair is both sides of one pool, with the messages between them: writes that are not yet
// indicated, and updates, each a list of elements. holding has the elements that the target uses.
type pair struct {
	t        *testing.T
	elements *Elements
	credits  *Credits
	writes   []uint16
	holding  []uint16
	updates  [][]uint16
}

func newPair(t *testing.T, n int) *pair {
	a, err := NewArena(n*64, numa.None)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return &pair{t: t, elements: NewElements(a.Bytes(), 64, n), credits: new(Credits).renew(0x1000, 7, 64, n, LatestFirst)}
}

// write, indicate, release and update are the steps of the two sides and of the fabric. They can
// happen in any order.
func (p *pair) write() {
	if e, ok := p.credits.Take(); ok {
		p.writes = append(p.writes, e)
	}
}

func (p *pair) indicate() {
	if len(p.writes) == 0 {
		return
	}
	e := p.writes[0]
	p.writes = p.writes[1:]
	if _, err := p.elements.Consume(int(e), 1+int(e)%64); err != nil {
		p.t.Fatal(err)
	}
	p.holding = append(p.holding, e)
}

func (p *pair) release(r *rand.Rand) {
	if len(p.holding) == 0 {
		return
	}
	i := r.IntN(len(p.holding))
	p.elements.Release(int(p.holding[i]))
	p.holding = append(p.holding[:i], p.holding[i+1:]...)
	if p.elements.Due() {
		back := p.elements.Returning()
		p.updates = append(p.updates, append([]uint16(nil), back...))
		p.elements.Returned(len(back))
	}
}

func (p *pair) update() {
	if len(p.updates) == 0 {
		return
	}
	for _, e := range p.updates[0] {
		if err := p.credits.Return(uint32(e)); err != nil {
			p.t.Fatal(err)
		}
	}
	p.updates = p.updates[1:]
}

func (p *pair) check() {
	p.t.Helper()
	l, g := p.elements.Ledger(), p.credits.Ledger()
	if err := errors.Join(l.Check(), g.Check()); err != nil {
		p.t.Fatal(err)
	}
	inUpdates := 0
	for _, u := range p.updates {
		inUpdates += len(u)
	}
	// An element that the target counts as lent is available, written and not yet indicated, or in
	// an update in flight.
	if l.Lent != g.Available+len(p.writes)+inUpdates {
		p.t.Fatalf("lent %d, available %d, writes %d, in updates %d", l.Lent, g.Available, len(p.writes), inUpdates)
	}
	if len(p.updates) > protocol.UpdatesPerPool {
		p.t.Fatalf("%d updates on their way, the bound is %d", len(p.updates), protocol.UpdatesPerPool)
	}
}

// TestPoolModel takes both sides of a pool through random sequences of writes, indications,
// releases and updates. After each step it checks the sums of the elements in each state, and the
// bound on updates. At the end all messages are processed, and at most a quarter of the elements
// may be missing.
func TestPoolModel(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 64, 255, 256} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			p := newPair(t, n)
			for range 4000 {
				switch r.IntN(4) {
				case 0:
					p.write()
				case 1:
					p.indicate()
				case 2:
					p.release(r)
				case 3:
					if r.IntN(3) == 0 { // a slow control channel
						p.update()
					}
				}
				p.check()
			}
			for len(p.writes)+len(p.holding)+len(p.updates) > 0 {
				p.indicate()
				p.release(r)
				p.update()
				p.check()
			}
			if a := p.credits.Ledger().Available; a == 0 || n-a >= (n+3)/4 {
				t.Fatalf("n=%d seed=%d: after draining %d of %d are available", n, seed, a, n)
			}
		}
	}
}

func TestElementsRefuse(t *testing.T) {
	p := newPair(t, 4)
	if _, err := p.elements.Consume(1, 64); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		elem, len int
		want      error
	}{
		{"consumed twice", 1, 64, ErrNotLent},
		{"beyond the pool", 4, 64, ErrNotLent},
		{"negative", -1, 64, ErrNotLent},
		{"too long", 2, 65, ErrLength},
		{"empty", 2, 0, ErrLength},
	} {
		if _, err := p.elements.Consume(c.elem, c.len); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	p.elements.Release(1)
	if !p.elements.Due() {
		t.Fatal("a pool of four is due after one")
	}
	if _, err := p.elements.Consume(1, 64); !errors.Is(err, ErrNotLent) {
		t.Errorf("consumed while returning: %v", err)
	}
	if err := p.elements.Ledger().Check(); err != nil {
		t.Error(err)
	}
}

func TestCreditsRefuse(t *testing.T) {
	p := newPair(t, 4)
	if err := p.credits.Return(0); !errors.Is(err, ErrNotOut) {
		t.Errorf("returned before it was taken: %v", err)
	}
	if err := p.credits.Return(4); !errors.Is(err, ErrNotOut) {
		t.Errorf("returned beyond the pool: %v", err)
	}
	e, _ := p.credits.Take()
	if err := p.credits.Return(uint32(e)); err != nil {
		t.Fatal(err)
	}
	if err := p.credits.Return(uint32(e)); !errors.Is(err, ErrNotOut) {
		t.Errorf("returned twice: %v", err)
	}
	if next, _ := p.credits.Take(); next != e {
		t.Errorf("took element %d, not %d which was returned last", next, e)
	}
	if a := p.credits.Address(3); a != 0x1000+3*64 {
		t.Errorf("element 3 at %#x", a)
	}
}

func TestArenaOnNode(t *testing.T) {
	node := testenv.LastNode(t)
	for _, size := range []int{1, 1 << 16, 2<<20 + 1} {
		a, err := NewArena(size, node)
		if err != nil {
			t.Fatal(err)
		}
		clear(a.Bytes())
		testenv.OnNode(t, a.Bytes(), node)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSlots(t *testing.T) {
	a, err := NewArena(1<<21, numa.None)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := NewSlots(512, 4096)
	if _, ok := s.Take(); ok || s.Len() != 0 {
		t.Fatalf("%d slots before there is memory", s.Len())
	}
	const few = 3
	s.Add(a.Bytes()[:few*4096+4095], 1) // adds as many slots as fit
	if held, _ := s.Take(); held != 0 || s.Len() != few || s.Free() != few-1 {
		t.Fatalf("slot %d of %d, %d are free", held, s.Len(), s.Free())
	}
	if n := testing.AllocsPerRun(1, func() {
		if s.Len() == few { // AllocsPerRun calls it twice
			s.Add(a.Bytes()[few*4096:], 2)
		}
	}); n != 0 || s.Len() != 512 || s.Free() != 511 {
		t.Fatalf("%d slots, %d are free, %v allocations", s.Len(), s.Free(), n)
	}
	s.Put(0)
	seen := map[uint32]bool{}
	for i := range s.Len() {
		slot, ok := s.Take()
		if !ok || seen[slot] {
			t.Fatalf("take %d: slot %d ok %v", i, slot, ok)
		}
		seen[slot] = true
		b := s.Bytes(slot)
		if at := int(uintptr(unsafe.Pointer(&b[0]))-uintptr(unsafe.Pointer(&a.Bytes()[0]))) / 4096; at != int(slot) {
			t.Fatalf("slot %d is where slot %d is to be", slot, at)
		}
		if key := s.Key(slot); (key == 1) != (slot < few) {
			t.Fatalf("slot %d has key %d", slot, key)
		}
		b[0], b[len(b)-1] = byte(i), byte(i)
		if len(b) != 4096 || cap(b) != 4096 {
			t.Fatalf("slot of %d bytes, capacity %d", len(b), cap(b))
		}
	}
	if _, ok := s.Take(); ok {
		t.Fatal("a 513th slot")
	}
	s.Put(17)
	if slot, _ := s.Take(); slot != 17 {
		t.Fatalf("took %d, not the one freed last", slot)
	}
	s.Put(17)
	defer func() {
		if recover() == nil {
			t.Error("freeing a slot twice went unnoticed")
		}
	}()
	s.Put(17)
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	p := newPair(t, 256)
	a, err := NewArena(64*64, numa.None)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := NewSlots(64, 64)
	s.Add(a.Bytes(), 1)
	n := testing.AllocsPerRun(1000, func() {
		slot, _ := s.Take()
		e, ok := p.credits.Take()
		if !ok {
			t.Fatal("no credit")
		}
		if _, err := p.elements.Consume(int(e), 64); err != nil {
			t.Fatal(err)
		}
		p.elements.Release(int(e))
		if p.elements.Due() {
			for _, e := range p.elements.Returning() {
				if err := p.credits.Return(uint32(e)); err != nil {
					t.Fatal(err)
				}
			}
			p.elements.Returned(len(p.elements.Returning()))
		}
		s.Put(slot)
	})
	if n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

// TestInOrder takes and returns elements in the order of a receive queue: the n-th element taken is
// always element n modulo the size of the pool.
func TestInOrder(t *testing.T) {
	const n = 5
	g := new(Credits).renew(0, 0, 64, n, InOrder)
	taken, returned := 0, 0
	for range 100 {
		for range 3 {
			if e, ok := g.Take(); ok {
				if int(e) != taken%n {
					t.Fatalf("element %d is taken as number %d", e, taken)
				}
				taken++
			}
		}
		for returned < taken-2 {
			if err := g.Return(uint32(returned % n)); err != nil {
				t.Fatal(err)
			}
			returned++
		}
	}
	if taken < 50 {
		t.Errorf("only %d elements were taken", taken)
	}
}

// TestKeys expects the key of an element to stay the same while the element is out, and to change
// with each return.
func TestKeys(t *testing.T) {
	g := new(Credits).renew(0, 7, 64, 2, LatestFirst)
	if g.Key(1) != 7 {
		t.Errorf("key %#x where all have the same", g.Key(1))
	}
	keys := []uint32{0x1fe, 0x210}
	want := slices.Clone(keys)
	g.keys = keys
	for range 300 {
		e, ok := g.Take()
		if !ok || g.Key(e) != want[e] {
			t.Fatalf("element %d, %t, has key %#x, not %#x", e, ok, g.Key(e), want[e])
		}
		if err := g.Return(uint32(e)); err != nil {
			t.Fatal(err)
		}
		want[e] = want[e]&^0xff | uint32(uint8(want[e]+1))
	}
}

// TestElementsWithoutMemory tests a pool without memory, whose elements represent receives.
func TestElementsWithoutMemory(t *testing.T) {
	l := NewElements(nil, 64, 2)
	if l.Used() {
		t.Error("used before the first element was consumed")
	}
	if b, err := l.Consume(1, 64); b != nil || err != nil {
		t.Errorf("Consume returned %d bytes, %v", len(b), err)
	}
	if _, err := l.Consume(1, 64); !errors.Is(err, ErrNotLent) {
		t.Errorf("consumed twice: %v", err)
	}
	if !l.Used() || l.Used() {
		t.Error("Used does not tell once of the element")
	}
}

// TestRenew makes the credits of a new pool in the memory of the credits of an old pool. Some
// elements of the old pool are out, others were returned. It expects all elements of the new pool
// to be available, in the order of the new pool.
func TestRenew(t *testing.T) {
	old := new(Credits).renew(0x1000, 7, 64, 8, LatestFirst)
	old.keys = make([]uint32, 8)
	for range 5 {
		old.Take()
	}
	if err := old.Return(3); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		n     int
		order Order
	}{{8, InOrder}, {3, LatestFirst}, {3, InOrder}, {8, LatestFirst}, {20, InOrder}} {
		g := old.renew(0x2000, 9, 128, tt.n, tt.order)
		if g.Len() != tt.n || g.ElementSize() != 128 || g.RKey() != 9 || g.Key(2) != 9 || g.Address(1) != 0x2080 ||
			g.Available() != tt.n {
			t.Errorf("%d elements: %+v", tt.n, g)
		}
		if l := g.Ledger(); l.Available != tt.n || l.Check() != nil {
			t.Errorf("%d elements: %+v", tt.n, l)
		}
		for want := range tt.n {
			if err := g.Return(uint32(want)); err == nil {
				t.Errorf("element %d of %d is returned that is not out", want, tt.n)
			}
			if e, ok := g.Take(); !ok || int(e) != want {
				t.Errorf("element %d is taken, want %d", e, want)
			}
		}
		if _, ok := g.Take(); ok {
			t.Errorf("more than %d elements are taken", tt.n)
		}
		for e := range g.Len() {
			if err := g.Return(uint32(e)); err != nil {
				t.Error(err)
			}
		}
		old = g
	}
}

// TestBooks reuses the memory of an old pool's records for a new pool, and expects the new pool to
// have none of the old content.
func TestBooks(t *testing.T) {
	lent := protocol.Pool{Ref: 3, Elements: 4, ElementSize: 2048}
	old, r := NewRemote(lent, LatestFirst), NewRemote(lent, LatestFirst)
	old.keep(nil, nil)
	old.Name(1, 7)
	if r.keep(old, nil); &r.frames[0] != &old.frames[0] || r.NamedIn(1) != 0 {
		t.Errorf("an element is indicated by message %d", r.NamedIn(1))
	}
}
