package session

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// crowd are the connections on their way to a valid hello. There is room for so
// many, and for fewer of one machine. One that comes when there is none takes the
// place of another:
//
//   - if its own machine has as many as it may, that machine's oldest one's;
//   - otherwise the oldest one's of those of whom there are most: in the widest
//     network that has most, the narrower one that has most there, and so on.
//
// Whoever does not hurry has the least to lose, and a network pushes out nobody
// else's connections unless these are as many as its own: a flood from a /48
// keeps out only who shares it, and there only who shares the /56 of most, and so
// on.
//
// Machines from which a peer has been authenticated before are acquainted. They
// have three quarters of the places to themselves, if they need them: a flood from
// all over the world keeps out none of them. The other quarter is for strangers.
type crowd struct {
	most, perSource int

	mu       sync.Mutex
	members  []*member // oldest first
	strange  int       // members that are not acquainted
	networks map[place]*network
	acquaint map[netip.Prefix]uint64 // machines, by when they were last there
	seen     uint64                  // the last such time
}

// maxAcquainted bounds the machines that are remembered.
const maxAcquainted = 4096

type member struct {
	conn       *Conn
	from       [len(source{})]*network // the widest first
	acquainted bool
}

// network is one from which there are members.
type network struct {
	place   place
	members int
}

// place says which of a source's networks it is: those of the zero source are all
// the same prefix.
type place struct {
	width  int
	prefix netip.Prefix
}

func newCrowd(most int) *crowd {
	return &crowd{
		most: most, perSource: max(most/perSource, 1),
		networks: make(map[place]*network), acquaint: make(map[netip.Prefix]uint64),
	}
}

// enter adds c and returns the connection whose place it takes, with the reason
// for its end, or nil.
func (w *crowd) enter(c *Conn) (out *Conn, reason error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.add(c)
	if i, err := w.loser(m); i >= 0 {
		out = w.members[i].conn
		reason = fmt.Errorf("authenticate %v: %w", out, err)
		w.remove(i)
	}
	return out, reason
}

// loser is the index of the connection that has to go for m, the newest one, and
// why, or -1. The caller holds w.mu.
func (w *crowd) loser(m *member) (int, error) {
	others := w.members[:len(w.members)-1]
	if m.machine().members > w.perSource {
		return slices.IndexFunc(others, func(o *member) bool { return o.machine() == m.machine() }), ErrCrowdedSource
	}
	if len(others) < w.most {
		return -1, nil
	}
	// Nobody else is there to go if all are of the other kind.
	fromStrangers := w.strange > w.most/4
	if !slices.ContainsFunc(others, func(o *member) bool { return o.acquainted != fromStrangers }) {
		fromStrangers = !fromStrangers
	}
	loser := -1
	for i, o := range others {
		if o.acquainted != fromStrangers && (loser < 0 || o.crowds(others[loser])) {
			loser = i
		}
	}
	return loser, ErrCrowded
}

// crowds reports whether more come from where m comes from than from where o does:
// from the widest network in which they differ in number.
func (m *member) crowds(o *member) bool {
	for i := range m.from {
		if a, b := m.from[i].members, o.from[i].members; a != b {
			return a > b
		}
	}
	return false
}

// machine is the narrowest network of m.
func (m *member) machine() *network { return m.from[len(m.from)-1] }

func (w *crowd) add(c *Conn) *member {
	from := sourceOf(c.RemoteAddr())
	m := &member{conn: c, acquainted: w.knows(from)}
	if !m.acquainted {
		w.strange++
	}
	for i, prefix := range from {
		at := place{i, prefix}
		n := w.networks[at]
		if n == nil {
			n = &network{place: at}
			w.networks[at] = n
		}
		n.members++
		m.from[i] = n
	}
	w.members = append(w.members, m)
	return m
}

func (w *crowd) remove(i int) {
	m := w.members[i]
	w.members = slices.Delete(w.members, i, i+1)
	if !m.acquainted {
		w.strange--
	}
	for _, n := range m.from {
		if n.members--; n.members == 0 {
			delete(w.networks, n.place)
		}
	}
}

// leave takes c out, if it is in.
func (w *crowd) leave(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.members, func(m *member) bool { return m.conn == c }); i >= 0 {
		w.remove(i)
	}
}

// knows reports whether somebody was authenticated from there. The caller holds
// w.mu.
func (w *crowd) knows(from source) bool {
	_, known := w.acquaint[from.machine()]
	return known && from.valid()
}

// acquainted is knows for others.
func (w *crowd) acquainted(from source) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.knows(from)
}

// meets makes the machine of c acquainted: its peer is authenticated. The one that
// has not been there for longest is forgotten when there are too many.
func (w *crowd) meets(c *Conn) {
	from := sourceOf(c.RemoteAddr())
	if c.Peer().Insecure || !from.valid() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
	w.acquaint[from.machine()] = w.seen
	if len(w.acquaint) <= maxAcquainted {
		return
	}
	oldest := from.machine()
	for p, at := range w.acquaint {
		if at < w.acquaint[oldest] {
			oldest = p
		}
	}
	delete(w.acquaint, oldest)
}

func (w *crowd) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.members)
}
