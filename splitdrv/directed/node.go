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

	mu      sync.Mutex                  // guards the following fields, which are for the role of the owner
	units   map[uint32]*Link            // link to the I/O unit of each device
	lenders map[protocol.Platform]*Link // links to units whose memory the lists of others may name
	passing map[*Link]passed            // by link to an I/O unit: what it works for
}

// passed is a request that was passed on to an I/O unit.
type passed struct {
	requester *Link
	request   protocol.DirectedRequest
}

// New makes a node. The device has to stay open until after Close.
func New(cfg Config) *Node {
	n := &Node{
		cfg: cfg.withDefaults(), units: make(map[uint32]*Link), lenders: make(map[protocol.Platform]*Link),
		passing: make(map[*Link]passed),
	}
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

// Admit lets the lists of other units name memory of the unit at the other end of l, as far as
// Config.AllowMemory permits. The link has to be started.
func (n *Node) Admit(l *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lenders[l.peer] = l
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
	reply := n.request(l, &r)
	reply.TransactionContext = transaction
	return protocol.AppendDirectedReply(nil, reply), nil
}

// request checks a request in the role of the owner, or carries out one that an owner has
// passed on.
func (n *Node) request(l *Link, r *protocol.DirectedRequest) protocol.DirectedReply {
	if r.Requester != 0 { // passed on
		storage, ok := n.cfg.Storage[r.Device]
		if !l.Owner || !ok {
			return refusal(protocol.DirectedDenied)
		}
		return n.unit.execute(l, r, storage, func(protocol.Platform) *Link { return l })
	}
	r.Requester = l.peer
	holder := func(of protocol.Platform) *Link { return n.holder(l, r, of) }
	if s := judge(r, holder); s != protocol.DirectedOK {
		return refusal(s)
	}
	if n.cfg.Allow == nil || !n.cfg.Allow(l.peer, r) {
		return refusal(protocol.DirectedDenied)
	}
	n.mu.Lock()
	unit := n.units[r.Device]
	n.mu.Unlock()
	if unit != nil {
		return n.pass(l, unit, r)
	}
	if storage, ok := n.cfg.Storage[r.Device]; ok {
		return n.unit.execute(l, r, storage, holder)
	}
	return refusal(protocol.DirectedDenied)
}

func refusal(s protocol.DirectedStatus) protocol.DirectedReply {
	return protocol.DirectedReply{Status: s}
}

// judge checks whose memory the list of a request names, as far as the owner sees the list.
func judge(r *protocol.DirectedRequest, allowed holder) protocol.DirectedStatus {
	if len(r.List) == 0 {
		return protocol.DirectedOK
	}
	list := protocol.ListDecoder{Local: r.Requester}
	_, more, err := list.Add(r.List)
	switch {
	case err != nil:
		return protocol.DirectedInvalid
	case more:
		return protocol.DirectedOK // the I/O unit asks for the others
	}
	last := r.Requester // of which it is known that it is allowed
	for e := range list.Elements() {
		if e.Data != nil || e.Platform == last {
			continue
		}
		if last = e.Platform; allowed(last) == nil {
			return protocol.DirectedPlatform
		}
	}
	return protocol.DirectedOK
}

// holder returns the link to a unit whose memory the list of a request may name, or nil if it must
// not: the requester, or another unit that Config.AllowMemory permits.
func (n *Node) holder(requester *Link, r *protocol.DirectedRequest, of protocol.Platform) *Link {
	if of == requester.peer {
		return requester
	}
	if n.cfg.AllowMemory == nil || !n.cfg.AllowMemory(requester.peer, of, r) {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lenders[of]
}

// pass makes an I/O unit carry out the request that was received from link l, and returns the
// result.
func (n *Node) pass(l, unit *Link, r *protocol.DirectedRequest) protocol.DirectedReply {
	transaction := r.TransactionContext
	b, err := unit.call(l.ctx, unit.asking, func(own uint64) []byte {
		n.mu.Lock()
		n.passing[unit] = passed{l, *r} // the I/O unit has no other request of this node now
		n.mu.Unlock()
		r.TransactionContext = own
		return protocol.AppendDirectedRequest(nil, *r)
	})
	r.TransactionContext = transaction
	n.mu.Lock()
	if n.passing[unit].requester == l {
		delete(n.passing, unit)
	}
	n.mu.Unlock()
	if err != nil {
		return refusal(protocol.DirectedFailed)
	}
	reply, err := unit.reply(b, r)
	if err != nil {
		return refusal(protocol.DirectedFailed)
	}
	return reply
}

// connect answers an I/O unit that wants to connect to a unit with memory. That is this node, which
// waits for the answer of the owner, or has offered the memory. Or this node is the owner, and has
// passed on a request to this I/O unit; it then passes on the message.
func (n *Node) connect(l *Link, c protocol.DirectedConnect) (protocol.DirectedStatus, protocol.DirectedEnd) {
	const no = protocol.DirectedUnreachable
	if c.To == n.cfg.Platform {
		end, err := l.accept(c)
		if err != nil {
			return no, protocol.DirectedEnd{}
		}
		return protocol.DirectedOK, end
	}
	n.mu.Lock()
	p := n.passing[l]
	n.mu.Unlock()
	if p.requester == nil || p.requester.peer != c.Requester || c.From != l.peer {
		return no, protocol.DirectedEnd{}
	}
	to := n.holder(p.requester, &p.request, c.To)
	if to == nil {
		return protocol.DirectedPlatform, protocol.DirectedEnd{}
	}
	b, err := to.call(l.ctx, to.joining, func(own uint64) []byte {
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
