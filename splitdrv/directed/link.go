package directed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
)

// ErrProtocol is wrapped by the error of a link whose peer broke the protocol.
var ErrProtocol = errors.New("the peer broke the protocol of directed I/O")

// linkReceives is the largest number of messages that a peer has under way: a request and a
// connect message, and the answers to the same two of this side.
const linkReceives = 4

// answerer carries out a request or connect message of the peer of a link, and returns the
// answer. An error means that the peer broke the protocol.
type answerer func(l *Link, f protocol.Function, b []byte) ([]byte, error)

// Link is one end of the queue pair for messages between two units.
type Link struct {
	// Owner says that the peer owns I/O devices of this unit, and directs it. It is set before
	// Start.
	Owner bool

	cfg    *Config
	answer answerer
	peer   protocol.Platform // the authenticated platform identifier of the peer

	endpoint

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	sending sync.Mutex    // guards the send queue and its part of mem
	asking  chan struct{} // has a token while no request of this side is unanswered
	joining chan struct{} // has a token while no connect message of this side is unanswered

	mu      sync.Mutex                   // guards the following fields
	calls   map[uint64]chan []byte       // answers that this side waits for, by transaction
	last    uint64                       // the last transaction context
	serving map[protocol.Function]bool   // messages of the peer that are not yet answered
	spaces  map[protocol.Platform]*space // memory open to I/O units, by the unit whose requests they serve
	open    map[reach]answering          // connections by which I/O units reach the spaces
	doing   int                          // requests of this side that wait for an answer
	err     error
}

// endpoint has the device resources of a link.
type endpoint struct {
	dom  fabric.Domain
	qp   fabric.QP
	send fabric.CQ
	recv fabric.CQ
	mem  *pinned // buffers of the receives, and behind them that of the send
}

// space is the memory that I/O units can access for the requests of one unit.
type space struct {
	dom    fabric.Domain // also of the connections
	offers int           // number of Memories
}

// reach identifies a connection: it is that of an I/O unit for the requests of a requester.
type reach struct{ unit, requester protocol.Platform }

// answering is the requester's end of a connection with an I/O unit. The device alone answers
// the RDMA reads and writes of the I/O unit.
type answering struct {
	qp fabric.QP
	cq fabric.CQ
}

func (a answering) close() error { return errors.Join(a.qp.Close(), a.cq.Close()) }

// newLink makes a link. answer carries out the messages of the peer. A link that newLink
// returns together with an error has released all resources.
func newLink(ctx context.Context, cfg *Config, answer answerer) (l *Link, err error) {
	l = &Link{
		cfg: cfg, answer: answer, asking: make(chan struct{}, 1), joining: make(chan struct{}, 1),
		calls: make(map[uint64]chan []byte), serving: make(map[protocol.Function]bool),
		spaces: make(map[protocol.Platform]*space), open: make(map[reach]answering),
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.asking <- struct{}{}
	l.joining <- struct{}{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.release())
		}
	}()
	if l.dom, err = cfg.Device.NewDomain(); err != nil {
		return l, err
	}
	listen(l.dom, l.end, l.portDown)
	own, err := cfg.Device.NewDomain()
	if err != nil {
		return l, err
	}
	l.spaces[cfg.Platform] = &space{dom: own}
	if l.send, err = l.dom.NewCQ(1, 0); err != nil {
		return l, err
	}
	if l.recv, err = l.dom.NewCQ(linkReceives, 0); err != nil {
		return l, err
	}
	if l.mem, err = pin(l.dom, (linkReceives+1)*protocol.MaxControlSize, fabric.LocalWrite); err != nil {
		return l, err
	}
	l.qp, err = l.dom.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: l.send, RecvCQ: l.recv, MaxSend: 1, MaxRecv: linkReceives,
	})
	return l, err
}

// Address returns the address that the peer passes to its Start.
func (l *Link) Address() fabric.Address { return l.qp.Address() }

// Start connects the link with its other end, and serves the link until Close. peer is the
// authenticated platform identifier of the peer. Both ends have to be started before either
// of them sends a request.
func (l *Link) Start(remote fabric.Address, peer protocol.Platform) error {
	l.peer = peer
	for i := range linkReceives {
		if err := l.receive(i); err != nil {
			return err
		}
	}
	if err := l.qp.Connect(remote, l.cfg.Timing); err != nil {
		return err
	}
	l.work.Go(func() { l.fail(l.run()) })
	return nil
}

// slot returns the buffer of receive i.
func (l *Link) slot(i int) []byte {
	return l.mem.mem[i*protocol.MaxControlSize:][:protocol.MaxControlSize]
}

func (l *Link) receive(i int) error {
	_, err := l.qp.PostRecv([]fabric.RecvWR{{
		ID: uint64(i), Addr: l.mem.Addr() + uint64(i*protocol.MaxControlSize), Len: protocol.MaxControlSize,
		LKey: l.mem.LKey(),
	}})
	return fabric.Refused(l.qp, err)
}

// run handles messages until the link ends, and returns the reason. After a flush, and after a
// receive that was refused, it looks for the cause for a while: messages that have arrived before
// count.
func (l *Link) run() error {
	var done [linkReceives]fabric.Completion
	var flush error
	ctx := l.ctx
	for {
		n, err := fabric.Reap(ctx, l.recv, done[:])
		if err != nil {
			if flush != nil {
				return asFlushed(l.qp, flush)
			}
			return err
		}
		for i := range done[:n] {
			err := l.arrived(&done[i])
			if err == nil {
				continue
			}
			if _, follows := fabric.Consequence(err); !follows {
				return err
			}
			if flush == nil {
				flush = err
				late, cancel := context.WithTimeout(ctx, l.cfg.look)
				defer cancel()
				ctx = late
			}
		}
	}
}

// arrived handles the completion of a receive.
func (l *Link) arrived(c *fabric.Completion) error {
	if err := c.Err(); err != nil {
		return err
	}
	if c.Op != fabric.OpRecv || c.ID >= linkReceives {
		return fmt.Errorf("opcode %d arrived: %w", c.Op, ErrProtocol)
	}
	b := append([]byte(nil), l.slot(int(c.ID))[:c.Len]...)
	refusal := l.receive(int(c.ID))
	if err := l.take(b); err != nil {
		return err
	}
	return refusal
}

// take handles a message. It passes an answer to the goroutine that waits for it. Any other
// message is answered in a new goroutine.
func (l *Link) take(b []byte) error {
	f, err := protocol.DecodeDirectedFunction(b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	switch f {
	case protocol.FuncDirectedReply:
		r, err := protocol.DecodeDirectedReply(b)
		return l.answered(r.TransactionContext, b, err)
	case protocol.FuncDirectedConnected:
		c, err := protocol.DecodeDirectedConnected(b)
		return l.answered(c.TransactionContext, b, err)
	default: // a request or a connect message
	}
	l.mu.Lock()
	busy := l.serving[f]
	l.serving[f] = true
	l.mu.Unlock()
	if busy {
		return fmt.Errorf("a second %v before the answer to the first: %w", f, ErrProtocol)
	}
	l.work.Go(func() {
		if err := l.serve(f, b); err != nil {
			l.fail(err)
		}
	})
	return nil
}

// serve answers a message. The peer may send the next message of this kind only when it has
// the answer. Otherwise the number of goroutines would have no limit: each message takes one,
// which waits for as long as the peer posts no receive.
func (l *Link) serve(f protocol.Function, b []byte) error {
	answer, err := l.answer(l, f, b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	l.mu.Lock()
	delete(l.serving, f)
	l.mu.Unlock()
	return l.transmit(l.ctx, answer)
}

func (l *Link) answered(transaction uint64, b []byte, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	call := l.calls[transaction]
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	case call == nil:
		return fmt.Errorf("an answer to transaction %d, which there is not: %w", transaction, ErrProtocol)
	}
	delete(l.calls, transaction)
	call <- b // does not block: the channel has room for one answer
	return nil
}

// call sends a message and waits for the answer. encode makes the message with a transaction
// context. token is asking or joining.
func (l *Link) call(ctx context.Context, token chan struct{}, encode func(uint64) []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	select {
	case <-token:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, l.Err()
	}
	answer := make(chan []byte, 1)
	l.mu.Lock()
	l.last++
	transaction := l.last
	l.calls[transaction] = answer
	l.mu.Unlock()
	if err := l.say(ctx, encode(transaction)); err != nil {
		l.fail(err)
		return nil, l.Err()
	}
	select {
	case b := <-answer:
		token <- struct{}{}
		return b, nil
	case <-ctx.Done():
		go l.await(answer, token)
		return nil, ctx.Err()
	case <-l.ctx.Done():
	}
	select {
	case b := <-answer: // it came before the end
		return b, nil
	default:
		return nil, l.Err()
	}
}

// await waits for the answer to a call that was given up, and then returns the token. Until
// then, no other message of the same kind is sent to the peer. await returns when the link
// ends.
func (l *Link) await(answer chan []byte, token chan struct{}) {
	timer := time.NewTimer(l.cfg.Timeout)
	defer timer.Stop()
	select {
	case <-answer:
		token <- struct{}{}
	case <-timer.C:
		l.fail(fmt.Errorf("no answer for %v: %w", l.cfg.Timeout, os.ErrDeadlineExceeded))
	case <-l.ctx.Done():
	}
}

// say sends a message.
func (l *Link) say(ctx context.Context, b []byte) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.transmit(ctx, b)
}

// transmit is say for a caller that holds l.sending.
func (l *Link) transmit(ctx context.Context, b []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	at := linkReceives * protocol.MaxControlSize
	n := copy(l.mem.mem[at:], b)
	return post(ctx, l.qp, l.send, []fabric.SendWR{{
		Op: fabric.OpSend, Flags: fabric.Signaled, Addr: l.mem.Addr() + uint64(at), Len: uint32(n), LKey: l.mem.LKey(),
	}}, l.cfg.look)
}

// fail ends the link: no more messages are sent or received. The first error is kept.
func (l *Link) fail(err error) {
	if f, ok := l.dom.(device.Failing); ok {
		err = f.Explain(err)
	}
	l.end(err)
	_ = l.qp.Fail()
}

// end is fail for an event of the device. It does not wait for the device.
func (l *Link) end(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.mu.Unlock()
	l.cancel()
}

// portDown ends the link, if one side waits for the other.
func (l *Link) portDown(err error) {
	l.mu.Lock()
	waits := len(l.calls)+len(l.serving) > 0
	l.mu.Unlock()
	if waits {
		l.end(err)
	}
}

// Err returns the reason why the link has ended, or nil.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the link and releases its resources. From then on, memory that was registered
// with the link is not accessible to any peer.
func (l *Link) Close() error {
	l.fail(net.ErrClosed)
	l.work.Wait()
	return l.release()
}

func (l *Link) release() error {
	l.cancel()
	var errs []error
	l.mu.Lock()
	spaces := l.spaces
	l.open, l.spaces = make(map[reach]answering), make(map[protocol.Platform]*space)
	l.mu.Unlock()
	for _, s := range spaces {
		errs = append(errs, s.dom.Close()) // and the connections with it
	}
	if l.dom != nil {
		errs = append(errs, l.mem.closeWith(l.dom))
	}
	return errors.Join(errs...)
}
