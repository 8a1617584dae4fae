package messaging

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
)

// dispatcher handles the peer's control messages, on the control handler's goroutine.
type dispatcher struct {
	c        *core.Session
	cfg      *Config
	pools    *pools.Manager
	requests *control.Requests
	proofs   *proofs
	channels []*channel
	events   []core.RxEvent // the events of an indication; kept to avoid allocations
}

// dispatch handles one control message, on the control handler's goroutine. It never
// waits: work that takes time is passed to other goroutines. msg is valid only during the
// call.
func (d *dispatcher) dispatch(msg []byte) error {
	h, err := protocol.DecodeHeader(msg)
	if err != nil {
		return core.ControlViolation(err, "header")
	}
	if d.proofs.unproved() {
		if err = d.proofs.hear(h.Function, msg); err == nil {
			err = d.requests.OnRequest(msg) // answer it like any other request
		}
	} else {
		err = d.handle(h.Function, msg)
	}
	if err == nil {
		return nil
	}
	if broken := (*core.ProtocolError)(nil); errors.As(err, &broken) {
		return err
	}
	return core.ControlViolation(err, "%v", h.Function)
}

// handle handles a message. An error means that the peer has broken the protocol; if it is
// not a ProtocolError, the message itself is malformed.
func (d *dispatcher) handle(f protocol.Function, msg []byte) error {
	if d.cfg.Mode.Sends() {
		switch f {
		case protocol.FuncBufferRecvPoolGet, protocol.FuncBufferPoolFlushRequest, protocol.FuncBufferPoolFlushReply,
			protocol.FuncBufferRDMAIndicate:
			return core.ControlViolation(core.ErrUnexpected, "%v in mode %s", f, d.cfg.Mode)
		default:
		}
	}
	switch f {
	case protocol.FuncBufferRecvPoolUpdate:
		return d.onUpdate(msg)
	case protocol.FuncBufferRDMAIndicate:
		return d.onIndicate(msg)
	case protocol.FuncBufferRecvPool:
		return d.onPools(msg)
	case protocol.FuncBufferRecvPoolGet:
		return d.onGet(msg)
	case protocol.FuncBufferPoolFlushRequest:
		return d.onFlush(msg)
	case protocol.FuncBufferPoolFlushReply:
		return d.onFlushed(msg)
	case protocol.FuncCfgUtilRequest:
		return d.requests.OnRequest(msg)
	case protocol.FuncCfgUtilReply:
		return d.requests.OnReply(msg)
	default:
		return core.ErrUnexpected
	}
}

func (d *dispatcher) onPools(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPool(msg)
	if err != nil {
		return err
	}
	pools := make([]protocol.Pool, m.Len())
	for i := range pools {
		pools[i] = m.At(i)
	}
	// The pool with the largest elements is added first. Otherwise a sender could find in
	// between that a frame fits no pool. Pools whose keys follow stay in the order of their
	// keys.
	size := func(p protocol.Pool) uint32 {
		if d.cfg.KeySend && p.KeyFollows() {
			return math.MaxUint32
		}
		return p.ElementSize
	}
	slices.SortStableFunc(pools, func(a, b protocol.Pool) int { return cmp.Compare(size(b), size(a)) })
	for _, p := range pools {
		if err := d.addRemote(p); err != nil {
			return err
		}
	}
	return nil
}

func (d *dispatcher) addRemote(p protocol.Pool) error {
	err, order := p.Valid(), bufpool.LatestFirst
	if d.cfg.Mode.Sends() {
		err, order = p.ValidSend(), bufpool.InOrder
	}
	if err == nil && int(p.Channel()) > len(d.channels) {
		err = fmt.Errorf("%w: pool %d for data channel %d of %d", core.ErrNoChannel, p.Ref, p.Channel(), len(d.channels))
	}
	if err == nil {
		r := bufpool.NewRemote(p, order)
		r.Invalidate = d.cfg.Invalidation && p.Invalidate()
		r.KeyFollows = d.cfg.KeySend && p.KeyFollows() && !d.cfg.Mode.Sends()
		err = d.pools.Notify(bufpool.Event{Kind: bufpool.Lent, Remote: r})
	}
	return err
}

func (d *dispatcher) onUpdate(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPoolUpdate(msg)
	if err != nil {
		return err
	}
	for r := m.Returns(); r.Next(); {
		g := d.pools.Remote(r.Pool())
		if g == nil {
			return core.ControlViolation(bufpool.ErrPool, "update of pool %d", r.Pool())
		}
		ch := d.channels[g.Channel-1]
		for i := range r.Len() {
			elem := r.Element(i)
			if err := g.Return(uint32(elem)); err != nil {
				return core.ControlViolation(err, "update of pool %d", r.Pool())
			}
			ch.tx.Acknowledge(g, elem)
		}
		ch.shared.Sender.Credits.Wake()
	}
	return nil
}

// onIndicate passes indications to the receiver of their data channel.
func (d *dispatcher) onIndicate(msg []byte) error {
	m, err := protocol.DecodeBufferRDMAIndicate(msg)
	if err != nil {
		return err
	}
	channel := int(m.At(0).Pool / uint32(d.cfg.MaxPools))
	if channel >= len(d.channels) {
		return core.ControlViolation(bufpool.ErrPool, "indication of pool %d", m.At(0).Pool)
	}
	first := d.c.FirstRef(channel + 1)
	events := d.events[:0]
	for i := range m.Len() {
		x := m.At(i)
		class := x.Pool - first
		if class >= uint32(d.cfg.MaxPools) {
			return core.ControlViolation(bufpool.ErrPool, "indication of pool %d in a message about data channel %d", x.Pool,
				channel+1)
		}
		events = append(events, core.RxEvent{
			Do: bufpool.Consume, Class: class, Elem: x.Element, Length: x.Length, Last: i == m.Len()-1,
		})
	}
	d.events = events
	return d.channels[channel].rx.Indicated(events)
}

// onGet handles the peer's request for another pool.
func (d *dispatcher) onGet(msg []byte) error {
	m, err := protocol.DecodeBufferRecvPoolGet(msg)
	if err != nil {
		return err
	}
	if int(m.Channel) > len(d.channels) {
		return core.ControlViolation(core.ErrNoChannel, "BufferRecvPoolGet for data channel %d of %d", m.Channel,
			len(d.channels))
	}
	size := int(min(m.ElementSize, pools.MaxElementSize+1)) // no larger elements are lent
	return d.pools.Notify(bufpool.Event{Kind: bufpool.Get, Channel: int(m.Channel), Size: size, Elements: int(m.Elements)})
}

// onFlush handles a flush request: the peer takes back some of its pools, or returns some
// of ours.
func (d *dispatcher) onFlush(msg []byte) error {
	m, err := protocol.DecodeBufferPoolFlushRequest(msg)
	if err != nil {
		return err
	}
	refs := make([]uint32, m.Len())
	for i := range refs {
		refs[i] = m.Pool(i)
	}
	return d.pools.Notify(bufpool.Event{Kind: bufpool.Flush, Transaction: m.TransactionContext, Refs: refs})
}

// onFlushed handles the reply to this side's flush request.
func (d *dispatcher) onFlushed(msg []byte) error {
	m, err := protocol.DecodeBufferPoolFlushReply(msg)
	if err == nil {
		err = d.pools.Notify(bufpool.Event{Kind: bufpool.FlushReply, Transaction: m.TransactionContext})
	}
	return err
}

// answer handles the requests that concern the session itself.
func (d *dispatcher) answer(t protocol.CfgType, data []byte) protocol.CfgStatus {
	switch t {
	case protocol.CfgKeepAlive:
		if protocol.DecodeKeepAlive(data) != nil {
			return protocol.CfgInvalid
		}
		return protocol.CfgOK
	case protocol.CfgSent:
		return d.onSent(data)
	case protocol.CfgBind, protocol.CfgPath:
		return d.proofs.answer(t)
	default:
		return d.pools.HearKeys(data)
	}
}

// onSent handles the sequence number that the peer has reached on a data channel that can
// lose messages.
func (d *dispatcher) onSent(data []byte) protocol.CfgStatus {
	sent, err := protocol.DecodeSent(data)
	switch {
	case !d.cfg.Mode.Lossy():
		return protocol.CfgUnsupported
	case err != nil || sent.Channel < 1 || int(sent.Channel) > len(d.channels):
		return protocol.CfgInvalid
	}
	d.channels[sent.Channel-1].rx.PeerSent(sent.Next)
	return protocol.CfgOK
}
