package directed

import (
	"context"
	"sync"

	"github.com/splitnic/splitnic/protocol"
)

// Node is a unit that takes part in directed I/O.
type Node struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	unit   unit // the part of an I/O unit

	mu      sync.Mutex       // guards what follows
	units   map[uint32]*Link // of an owner: the I/O unit of each device
	passing map[*Link]*Link  // of an owner: whose request an I/O unit carries out
}

// New makes a node. The device outlives it.
func New(cfg Config) *Node {
	n := &Node{cfg: cfg.withDefaults(), units: make(map[uint32]*Link), passing: make(map[*Link]*Link)}
	n.unit = unit{cfg: &n.cfg, conns: make(map[protocol.Platform]*connection)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// NewLink makes this side's end of a link. Its Address goes to the peer, whose own
// goes to Start.
func (n *Node) NewLink() (*Link, error) { return newLink(n.ctx, &n.cfg, n.answer) }

// Assign tells an owner by which I/O unit a device is reached. A device without one
// is this node's own Storage.
func (n *Node) Assign(device uint32, unit *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.units[device] = unit
}

// Connections is how many connections with requesters an I/O unit has, and how many
// it has made.
func (n *Node) Connections() (now int, made uint64) { return n.unit.connections() }

// Close closes the connections with requesters. The links are closed before.
func (n *Node) Close() error {
	n.cancel()
	return n.unit.close()
}

// answer carries out what the peer of a link asks for, and returns the answer. An
// error is a breach of the protocol.
func (n *Node) answer(l *Link, f protocol.Function, b []byte) ([]byte, error) {
	if f == protocol.FuncDirectedConnect {
		c, err := protocol.DecodeDirectedConnect(b)
		if err != nil {
			return nil, err
		}
		status, end := n.connect(l, c)
		return protocol.AppendDirectedConnected(nil, protocol.DirectedConnected{
			TransactionContext: c.TransactionContext, Status: status, End: end,
		}), nil
	}
	r, err := protocol.DecodeDirectedRequest(b)
	if err != nil {
		return nil, err
	}
	transaction := r.TransactionContext
	status, bytes := n.request(l, &r)
	return protocol.AppendDirectedReply(nil, protocol.DirectedReply{
		TransactionContext: transaction, Status: status, Bytes: bytes,
	}), nil
}

// request judges a request as the owner, or carries out what an owner has passed on.
func (n *Node) request(l *Link, r *protocol.DirectedRequest) (protocol.DirectedStatus, uint64) {
	if r.Requester != 0 { // passed on
		storage, ok := n.cfg.Storage[r.Device]
		if !l.Owner || !ok {
			return protocol.DirectedDenied, 0
		}
		return n.unit.execute(l, r, storage)
	}
	r.Requester = l.peer
	var list protocol.ListDecoder
	_, more, err := list.Add(r.List)
	if err != nil {
		return protocol.DirectedInvalid, 0
	}
	if !more {
		if s := judge(&list, r); s != protocol.DirectedOK {
			return s, 0
		}
	}
	if n.cfg.Allow == nil || !n.cfg.Allow(l.peer, r, list.Attributes().Bytes) {
		return protocol.DirectedDenied, 0
	}
	n.mu.Lock()
	unit := n.units[r.Device]
	n.mu.Unlock()
	if unit != nil {
		return n.pass(l, unit, r)
	}
	if storage, ok := n.cfg.Storage[r.Device]; ok {
		return n.unit.execute(l, r, storage)
	}
	return protocol.DirectedDenied, 0
}

// pass has an I/O unit carry out the request that came by link l.
func (n *Node) pass(l, unit *Link, r *protocol.DirectedRequest) (protocol.DirectedStatus, uint64) {
	transaction := r.TransactionContext
	b, err := unit.call(l.ctx, unit.asking, func(own uint64) []byte {
		n.mu.Lock()
		n.passing[unit] = l // it has no other request now
		n.mu.Unlock()
		r.TransactionContext = own
		return protocol.AppendDirectedRequest(nil, *r)
	})
	r.TransactionContext = transaction
	n.mu.Lock()
	if n.passing[unit] == l {
		delete(n.passing, unit)
	}
	n.mu.Unlock()
	if err != nil {
		return protocol.DirectedFailed, 0
	}
	reply, err := protocol.DecodeDirectedReply(b)
	if err != nil {
		return protocol.DirectedFailed, 0
	}
	return reply.Status, reply.Bytes
}

// connect answers an I/O unit that wants to reach a requester: this node, which is
// waiting for what the owner has done by it; or whose request this node has passed
// on to that I/O unit.
func (n *Node) connect(l *Link, c protocol.DirectedConnect) (protocol.DirectedStatus, protocol.DirectedEnd) {
	const no = protocol.DirectedUnreachable
	if c.To == n.cfg.Platform {
		l.mu.Lock()
		waits := l.doing > 0
		l.mu.Unlock()
		if !waits {
			return no, protocol.DirectedEnd{}
		}
		end, err := l.accept(c)
		if err != nil {
			return no, protocol.DirectedEnd{}
		}
		return protocol.DirectedOK, end
	}
	n.mu.Lock()
	requester := n.passing[l]
	n.mu.Unlock()
	if requester == nil || requester.peer != c.To || c.From != l.peer {
		return no, protocol.DirectedEnd{}
	}
	b, err := requester.call(l.ctx, requester.joining, func(own uint64) []byte {
		c.TransactionContext = own
		return protocol.AppendDirectedConnect(nil, c)
	})
	if err != nil {
		return no, protocol.DirectedEnd{}
	}
	answer, err := protocol.DecodeDirectedConnected(b)
	if err != nil {
		return no, protocol.DirectedEnd{}
	}
	return answer.Status, answer.End
}
