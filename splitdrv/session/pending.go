package session

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/internal/limit"
)

// pendingConns are the connections on their way to a valid hello. There is room for
// so many, and for fewer of one machine. A new one takes the place of another when
// there is none:
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
// Known machines are those from which a peer has been authenticated before. They
// have three quarters of the places to themselves, if they need them: a flood from
// all over the world keeps out none of them. The other quarter is for the others.
//
// This is no limit.Queue, because nobody waits here: a peer has its place while it
// does its part of the handshake, and what is bounded is how long it can keep others
// from that.
type pendingConns struct {
	most, perMachine int

	mu       sync.Mutex
	conns    []*pendingConn // oldest first
	unknown  int            // of these: not from known machines
	networks map[networkID]*network
	known    map[netip.Prefix]uint64 // machines, by when they were last there
	seen     uint64                  // the last such time
}

const (
	// perMachine is the part of the places that one machine can have.
	perMachine = 4
	// maxKnown bounds the machines that are remembered.
	maxKnown = 4096
)

type pendingConn struct {
	conn  *Conn
	from  [len(limit.Networks{})]*network // the widest first
	known bool
}

// network is one from which there are connections.
type network struct {
	id    networkID
	conns int
}

// networkID says which of an address's networks it is: those of no address are all
// the same prefix.
type networkID struct {
	width  int
	prefix netip.Prefix
}

func newPendingConns(most int) *pendingConns {
	return &pendingConns{
		most: most, perMachine: max(most/perMachine, 1),
		networks: make(map[networkID]*network), known: make(map[netip.Prefix]uint64),
	}
}

// enter adds c. It returns whether that is from a known machine, and the connection
// whose place it takes, with the reason for its end, or nil.
func (p *pendingConns) enter(c *Conn) (known bool, out *Conn, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.add(c)
	if i, err := p.loser(n); i >= 0 {
		out = p.conns[i].conn
		reason = fmt.Errorf("authenticate %v: %w", out, err)
		p.remove(i)
	}
	return n.known, out, reason
}

// loser is the index of the connection that has to go for n, the newest one, and
// why, or -1. The caller holds p.mu.
func (p *pendingConns) loser(n *pendingConn) (int, error) {
	others := p.conns[:len(p.conns)-1]
	if n.machine().conns > p.perMachine {
		oldest := slices.IndexFunc(others, func(o *pendingConn) bool { return o.machine() == n.machine() })
		return oldest, ErrTooManyHandshakesAddress
	}
	if len(others) < p.most {
		return -1, nil
	}
	// Nobody else is there to go if all are of the other kind.
	fromUnknown := p.unknown > p.most/4
	if !slices.ContainsFunc(others, func(o *pendingConn) bool { return o.known != fromUnknown }) {
		fromUnknown = !fromUnknown
	}
	loser := -1
	for i, o := range others {
		if o.known != fromUnknown && (loser < 0 || o.outnumbers(others[loser])) {
			loser = i
		}
	}
	return loser, ErrTooManyHandshakes
}

// outnumbers reports whether more come from where n comes from than from where o
// does: from the widest network in which they differ in number.
func (n *pendingConn) outnumbers(o *pendingConn) bool {
	for i := range n.from {
		if a, b := n.from[i].conns, o.from[i].conns; a != b {
			return a > b
		}
	}
	return false
}

// machine is the narrowest network of n.
func (n *pendingConn) machine() *network { return n.from[len(n.from)-1] }

func (p *pendingConns) add(c *Conn) *pendingConn {
	from := limit.NetworksOf(c.RemoteAddr())
	_, known := p.known[from.Machine()]
	n := &pendingConn{conn: c, known: known}
	if !known {
		p.unknown++
	}
	for i, prefix := range from {
		id := networkID{i, prefix}
		in := p.networks[id]
		if in == nil {
			in = &network{id: id}
			p.networks[id] = in
		}
		in.conns++
		n.from[i] = in
	}
	p.conns = append(p.conns, n)
	return n
}

func (p *pendingConns) remove(i int) {
	n := p.conns[i]
	p.conns = slices.Delete(p.conns, i, i+1)
	if !n.known {
		p.unknown--
	}
	for _, in := range n.from {
		if in.conns--; in.conns == 0 {
			delete(p.networks, in.id)
		}
	}
}

// leave takes c out, if it is in.
func (p *pendingConns) leave(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.conns, func(n *pendingConn) bool { return n.conn == c }); i >= 0 {
		p.remove(i)
	}
}

// authenticated makes the machine of c a known one: its peer is authenticated. The
// one that has not been there for longest is forgotten when there are too many.
func (p *pendingConns) authenticated(c *Conn) {
	from := limit.NetworksOf(c.RemoteAddr())
	if c.Peer().Insecure || !from.Valid() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	p.known[from.Machine()] = p.seen
	if len(p.known) <= maxKnown {
		return
	}
	oldest := from.Machine()
	for machine, at := range p.known {
		if at < p.known[oldest] {
			oldest = machine
		}
	}
	delete(p.known, oldest)
}

func (p *pendingConns) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}
