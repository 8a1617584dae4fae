package session

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/splitnic/splitnic/internal/limit"
)

// pendingConns has the connections without a valid hello. Their number is limited, and also
// the number from one machine. If there is no room, a new connection replaces another one:
//
//   - if its machine has its maximum, the oldest connection of that machine;
//   - otherwise the oldest one from where most connections come: from the widest network
//     with most of them, in that the narrower network with most, and so on.
//
// A network replaces connections of other networks only if these have at least as many. So a
// flood from a /48 affects only clients in the same /48, and there only those in the /56
// with most connections, and so on.
//
// Known machines are those from which a peer was authenticated before. Three quarters of the
// places are reserved for them, if they need them, so that a flood from anywhere does not
// affect them. The other quarter is for the others.
//
// It is not a limit.Queue, because connections do not wait here: a peer has its place while
// it does its part of the handshake, and the limit bounds for how long it can keep the place
// from others.
type pendingConns struct {
	most, perMachine int

	mu       sync.Mutex
	conns    []*pendingConn // oldest first
	unknown  int            // number of conns from machines that are not known
	networks map[networkID]*network
	known    *knownMachines
}

// perMachine is the number of machines that can occupy all places.
const perMachine = 4

type pendingConn struct {
	conn  *Conn
	from  [len(limit.Networks{})]*network // widest first
	known bool
}

type network struct {
	id    networkID
	conns int
}

// networkID identifies a network. It has the width, because all networks of an invalid
// address have the same prefix.
type networkID struct {
	width  int
	prefix netip.Prefix
}

func newPendingConns(most int) *pendingConns {
	return &pendingConns{
		most: most, perMachine: max(most/perMachine, 1),
		networks: make(map[networkID]*network), known: newKnownMachines(),
	}
}

// enter adds c. It returns whether c is from a known machine, and the connection that c
// replaces, with the reason for its end, or nil.
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

// loser returns the index of the connection that n, the newest one, replaces, and the reason,
// or -1. The caller holds p.mu.
func (p *pendingConns) loser(n *pendingConn) (int, error) {
	others := p.conns[:len(p.conns)-1]
	if n.machine().conns > p.perMachine {
		oldest := slices.IndexFunc(others, func(o *pendingConn) bool { return o.machine() == n.machine() })
		return oldest, ErrTooManyHandshakesAddress
	}
	if len(others) < p.most {
		return -1, nil
	}
	// If there are none of that kind, one of the other kind is replaced.
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

// outnumbers reports whether there are more connections from the networks of n than from
// those of o. The widest networks whose numbers differ decide.
func (n *pendingConn) outnumbers(o *pendingConn) bool {
	for i := range n.from {
		if a, b := n.from[i].conns, o.from[i].conns; a != b {
			return a > b
		}
	}
	return false
}

func (n *pendingConn) machine() *network { return n.from[len(n.from)-1] }

func (p *pendingConns) add(c *Conn) *pendingConn {
	from := limit.NetworksOf(c.RemoteAddr())
	n := &pendingConn{conn: c, known: p.known.has(from.Machine())}
	if !n.known {
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

func (p *pendingConns) leave(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.conns, func(n *pendingConn) bool { return n.conn == c }); i >= 0 {
		p.remove(i)
	}
}

// authenticated makes the machine of c known, because its peer is authenticated.
func (p *pendingConns) authenticated(c *Conn) {
	from, peer := limit.NetworksOf(c.RemoteAddr()), c.Peer()
	if peer.Insecure || !from.Valid() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known.add(peer.Fingerprint, from.Machine())
}

func (p *pendingConns) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}
