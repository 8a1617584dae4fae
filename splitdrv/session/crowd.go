package session

import (
	"fmt"
	"slices"
	"sync"
)

// crowd are the connections on their way to a valid hello. There is room for so
// many, and for fewer of one source. One that comes when there is none takes the
// place of another:
//
//   - if its own source has as many as it may, that source's oldest one's;
//   - otherwise the oldest one's of the source that has most.
//
// Whoever does not hurry has the least to lose, and a source pushes out nobody
// else's connections unless these are as many as its own: a flood from one
// address keeps out only who shares that address.
type crowd struct {
	most, perSource int

	mu      sync.Mutex
	members []member // oldest first
}

type member struct {
	conn *Conn
	from source
}

// enter adds c and returns the connection whose place it takes, with the reason
// for its end, or nil.
func (w *crowd) enter(c *Conn) (out *Conn, reason error) {
	from := sourceOf(c.RemoteAddr())
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, err := w.loser(from); i >= 0 {
		out = w.members[i].conn
		reason = fmt.Errorf("authenticate %v: %w", out, err)
		w.members = slices.Delete(w.members, i, i+1)
	}
	w.members = append(w.members, member{c, from})
	return out, reason
}

// loser is the index of the connection that has to go for one from there, and
// why, or -1. The caller holds w.mu.
func (w *crowd) loser(from source) (int, error) {
	count := make(map[source]int, len(w.members))
	for _, m := range w.members {
		count[m.from]++
	}
	if count[from] >= w.perSource {
		return slices.IndexFunc(w.members, func(m member) bool { return m.from == from }), ErrCrowdedSource
	}
	if len(w.members) < w.most {
		return -1, nil
	}
	loser := 0
	for i, m := range w.members {
		if count[m.from] > count[w.members[loser].from] {
			loser = i
		}
	}
	return loser, ErrCrowded
}

// leave takes c out, if it is in.
func (w *crowd) leave(c *Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.IndexFunc(w.members, func(m member) bool { return m.conn == c }); i >= 0 {
		w.members = slices.Delete(w.members, i, i+1)
	}
}

func (w *crowd) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.members)
}
