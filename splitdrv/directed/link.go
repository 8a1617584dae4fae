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
)

// ErrProtocol is wrapped by the error of a link whose peer broke the protocol.
var ErrProtocol = errors.New("the peer broke the protocol of directed I/O")

// linkReceives is how many messages a peer can have under way: a request and a
// connection of its own, and the answers to ours.
const linkReceives = 4

// answerer carries out what the peer of a link asks for, and returns the answer. An
// error is a breach of the protocol.
type answerer func(l *Link, f protocol.Function, b []byte) ([]byte, error)

// Link is one end of the queue pair for messages between two units.
type Link struct {
	// Owner says that the peer owns I/O devices of this unit's, and directs it. It is
	// set before Start.
	Owner bool

	cfg    *Config
	answer answerer
	peer   protocol.Platform // as the peer was authenticated

	endpoint
	space fabric.Domain // of memory that the peer may direct to, and of connections to it

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	sending sync.Mutex    // the send queue, and its part of mem
	asking  chan struct{} // has a token while no request of this side is unanswered
	joining chan struct{} // the same for a connection

	mu      sync.Mutex // guards what follows
	calls   map[uint64]chan []byte
	last    uint64                          // transaction context
	serving map[protocol.Function]bool      // what the peer has asked for, and waits for
	open    map[protocol.Platform]answering // connections by which I/O units reach space
	doing   int                             // requests of this side that wait for an answer
	err     error
}

// endpoint is what a link has of the device.
type endpoint struct {
	dom  fabric.Domain
	qp   fabric.QP
	send fabric.CQ
	recv fabric.CQ
	mem  *pinned // receives, and behind them what is being sent
}

// answering is the requester's end of a connection with an I/O unit: the device
// answers for it.
type answering struct {
	qp fabric.QP
	cq fabric.CQ
}

func (a answering) close() error { return errors.Join(a.qp.Close(), a.cq.Close()) }

// newLink makes one of which answer carries out what the peer asks for. A link that
// it returns with an error has given everything back.
func newLink(ctx context.Context, cfg *Config, answer answerer) (l *Link, err error) {
	l = &Link{
		cfg: cfg, answer: answer, asking: make(chan struct{}, 1), joining: make(chan struct{}, 1),
		calls: make(map[uint64]chan []byte), serving: make(map[protocol.Function]bool),
		open: make(map[protocol.Platform]answering),
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
	if l.space, err = cfg.Device.NewDomain(); err != nil {
		return l, err
	}
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

// Address is what the peer's Start is told.
func (l *Link) Address() fabric.Address { return l.qp.Address() }

// Start connects the link with the other end of it, at a peer that was
// authenticated with this platform identifier, and serves it until Close. Both
// ends are started before either asks for anything.
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

// slot is the memory of a receive.
func (l *Link) slot(i int) []byte {
	return l.mem.mem[i*protocol.MaxControlSize:][:protocol.MaxControlSize]
}

func (l *Link) receive(i int) error {
	_, err := l.qp.PostRecv([]fabric.RecvWR{{
		ID: uint64(i), Addr: l.mem.Addr() + uint64(i*protocol.MaxControlSize), Len: protocol.MaxControlSize,
		LKey: l.mem.LKey(),
	}})
	return err
}

// run takes messages until the link ends, and returns why it did.
func (l *Link) run() error {
	var done [linkReceives]fabric.Completion
	for {
		n, err := reap(l.ctx, l.recv, done[:])
		if err != nil {
			return err
		}
		for i := range done[:n] {
			c := &done[i]
			if err := c.Err(); err != nil {
				return err
			}
			if c.Op != fabric.OpRecv || c.ID >= linkReceives {
				return fmt.Errorf("opcode %d arrived: %w", c.Op, ErrProtocol)
			}
			b := append([]byte(nil), l.slot(int(c.ID))[:c.Len]...)
			if err := l.receive(int(c.ID)); err != nil {
				return err
			}
			if err := l.take(b); err != nil {
				return err
			}
		}
	}
}

// take hands a message on: an answer to who waits for it, anything else to the
// node.
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
	default: // a question
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

// serve answers a message. The peer may ask again when it has the answer, and not before: each
// question takes a goroutine, which waits for as long as the peer posts no receive.
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
	call <- b // has room
	return nil
}

// call sends a message that encode makes of a transaction context, and waits for
// the answer. token is asking or joining.
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
		return nil, err
	}
	select {
	case b := <-answer:
		token <- struct{}{}
		return b, nil
	case <-ctx.Done():
		go l.await(answer, token)
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, l.Err()
	}
}

// await waits for an answer that nobody wants any more: before it has come, the
// peer is asked for nothing else. It ends with the link.
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

// transmit is say; the caller holds sending.
func (l *Link) transmit(ctx context.Context, b []byte) error {
	at := linkReceives * protocol.MaxControlSize
	n := copy(l.mem.mem[at:], b)
	return post(ctx, l.qp, l.send, []fabric.SendWR{{
		Op: fabric.OpSend, Flags: fabric.Signaled, Addr: l.mem.Addr() + uint64(at), Len: uint32(n), LKey: l.mem.LKey(),
	}})
}

// fail ends the link: nothing is sent and taken any more.
func (l *Link) fail(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.mu.Unlock()
	l.cancel()
	_ = l.qp.Fail()
}

// Err is why the link has ended, or nil.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Close ends the link and gives back all that belongs to it: memory that was
// registered with it is refused to everybody from then on.
func (l *Link) Close() error {
	l.fail(net.ErrClosed)
	l.work.Wait()
	return l.release()
}

func (l *Link) release() error {
	l.cancel()
	var errs []error
	l.mu.Lock()
	open := l.open
	l.open = make(map[protocol.Platform]answering)
	l.mu.Unlock()
	for _, a := range open {
		errs = append(errs, a.close())
	}
	if l.qp != nil {
		errs = append(errs, l.qp.Close())
	}
	if l.mem != nil {
		errs = append(errs, l.mem.Close())
	}
	for _, d := range []fabric.Domain{l.space, l.dom} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}
