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
	unit   unit // for the role of the I/O unit

	mu      sync.Mutex       // guards the following fields, which are for the role of the owner
	units   map[uint32]*Link // link to the I/O unit of each device
	passing map[*Link]*Link  // by link to an I/O unit: link of the requester that it works for
}

// New makes a node. The device has to stay open until after Close.
func New(cfg Config) *Node {
	n := &Node{cfg: cfg.withDefaults(), units: make(map[uint32]*Link), passing: make(map[*Link]*Link)}
	n.unit = unit{cfg: &n.cfg, conns: make(map[peers]*connection)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// NewLink makes this side's end of a link. The caller sends the end's Address to the peer, and
// passes that of the peer's end to Start.
func (n *Node) NewLink() (*Link, error) { return newLink(n.ctx, &n.cfg, n.answer) }

// Assign sets the link to the I/O unit that has a device of this owner. A device without a
// link is in this node's own Storage.
func (n *Node) Assign(device uint32, unit *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.units[device] = unit
}

// Connections returns how many connections with requesters the I/O unit has, and how many it
// has made.
func (n *Node) Connections() (now int, made uint64) { return n.unit.connections() }

// Close closes the connections with requesters. The caller closes the links before.
func (n *Node) Close() error {
	n.cancel()
	return n.unit.close()
}

// answer is the answerer of the node's links.
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

// request checks a request in the role of the owner, or carries out one that an owner has
// passed on.
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

// pass makes an I/O unit carry out the request that was received from link l, and returns the
// result.
func (n *Node) pass(l, unit *Link, r *protocol.DirectedRequest) (protocol.DirectedStatus, uint64) {
	transaction := r.TransactionContext
	b, err := unit.call(l.ctx, unit.asking, func(own uint64) []byte {
		n.mu.Lock()
		n.passing[unit] = l // the I/O unit has no other request of this node now
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

// connect answers an I/O unit that wants to connect to a requester. The requester is this
// node, which waits for the answer of the owner. Or this node is the owner, and has passed on
// a request of this requester to this I/O unit; it then passes on the message.
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
