package messaging

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/protocol"
)

// Conn is one session's channels with everything they need: a protection
// domain, registered memory, queue pairs, and the threads that move frames.
//
// Its life: New, then Addresses to the peer and the peer's to Connect, then
// Start when the peer is connected as well, then Close. Start is StartControl
// and StartData: a session that waits for its turn has only the first done. One
// that hands over to another goes through Pause and Stop before its Close.
type Conn struct {
	cfg        Config // Protection is the one in force
	protecting Protecting
	domain     fabric.Domain
	handlers   *handlers
	control    *control
	channels   []*channel
	pools      *poolManager
	requests   *requests
	binding    binding
	memory     memory
	mtu        atomic.Int64
	heard      atomic.Uint64 // messages and batches of frames from the peer

	stop       *epoll.Event // raised when the session ends; never lowered
	stopped    atomic.Bool  // the same, for those who are awake
	done       chan struct{}
	failure    error // why the session ended; written before done is closed
	ended      sync.Once
	workers    sync.WaitGroup
	background sync.WaitGroup
	closing    sync.Once
	closeErr   error

	events  []*epoll.Event
	waiters []*epoll.Set
}

// New makes the channels of a session, posts all receives, and leaves the
// queue pairs waiting for Connect. The device stays the caller's.
func New(cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	protecting, err := cfg.protecting()
	if err != nil {
		return nil, fmt.Errorf("messaging: device %s: %w", cfg.Device.Name(), err)
	}
	cfg.Protection = protecting.Name
	c := &Conn{protecting: protecting, cfg: cfg, requests: newRequests(), done: make(chan struct{}),
		binding: binding{heard: make(chan struct{}), trusted: make(chan struct{})}}
	c.handlers = newHandlers(&c.cfg)
	c.memory = memory{limit: cfg.MaxMemory, budget: cfg.Budget}
	c.pools = newPoolManager(c)
	c.mtu.Store(int64(cfg.MTU))
	if err := c.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("messaging: %w", err), c.Close())
	}
	return c, nil
}

func (c *Conn) build() (err error) {
	if c.stop, err = c.newEvent(); err != nil {
		return err
	}
	if c.domain, err = c.cfg.Device.NewDomain(); err != nil {
		return err
	}
	// Sent messages occupy a slot until their completion is polled, which can
	// be after the peer has handled them: twice the bound leaves room for that.
	sends := 2 * protocol.ControlReceives(c.cfg.Mode, c.cfg.Queues, c.cfg.MaxPools)
	if c.control, err = c.newControl(sends, c.ControlReceives()); err != nil {
		return err
	}
	for i := range c.cfg.Queues {
		ch, err := c.newChannel(i + 1)
		if err != nil {
			return fmt.Errorf("data channel %d: %w", i+1, err)
		}
		c.channels = append(c.channels, ch)
	}
	return nil
}

// ControlReceives is how many receives this side has posted on the control
// channel: enough for a peer that lends Config.PeerPools on each data channel.
func (c *Conn) ControlReceives() int {
	return protocol.ControlReceives(c.cfg.Mode, c.cfg.Queues, c.cfg.PeerPools)
}

// Addresses are the addresses of the queue pairs, the control channel's first.
func (c *Conn) Addresses() []fabric.Address {
	a := []fabric.Address{c.control.qp.Address()}
	for _, ch := range c.channels {
		a = append(a, ch.qp.Address())
	}
	return a
}

// Connect connects the queue pairs to the peer's, in the order of Addresses.
// controlReceives is how many receives the peer posts on its control channel.
func (c *Conn) Connect(remote []fabric.Address, controlReceives int) error {
	if len(remote) != 1+len(c.channels) {
		return fmt.Errorf("messaging: the peer has %d channels, this side %d", len(remote), 1+len(c.channels))
	}
	if need := protocol.ControlReceives(c.cfg.Mode, len(c.channels), c.cfg.MaxPools); controlReceives < need {
		return fmt.Errorf("messaging: %w: %d, %d are needed", ErrControlReceives, controlReceives, need)
	}
	if err := c.control.qp.Connect(remote[0], c.cfg.Timing); err != nil {
		return fmt.Errorf("messaging: connect the control channel: %w", err)
	}
	for i, ch := range c.channels {
		if err := ch.qp.Connect(remote[1+i], c.cfg.Timing); err != nil {
			return fmt.Errorf("messaging: connect data channel %d: %w", ch.number, err)
		}
		ch.peerQPN = remote[1+i].QPN
	}
	if b := c.cfg.Bind; b != nil {
		c.binding.ours, c.binding.theirs = b.Proofs(c.Addresses(), remote)
	}
	return nil
}

// Start is StartControl and StartData.
func (c *Conn) Start(ports []Port) error {
	if err := c.StartControl(); err != nil {
		return err
	}
	return c.StartData(ports, nil)
}

// StartControl starts everything but the data channels: requests are answered
// and keep-alives sent. The peer's queue pairs must be connected by now. It has
// no pools to write to before StartData, and so what it has for this side waits
// in its netdevice. With Config.Bind it does not wait until the peer has proved
// who it is, but the session ends if it does not within Config.PeerTimeout.
func (c *Conn) StartControl() (err error) {
	if c.cfg.Bind != nil {
		// There is room for the first.
		if _, err = c.ask(context.Background(), protocol.CfgBind, c.binding.ours[:]); err != nil {
			return fmt.Errorf("messaging: begin on the control channel: %w", err)
		}
	}
	c.control.idle, err = c.newWaiter(epoll.Readable(c.control.cq.FD()), epoll.Readable(c.control.w.wake.FD()))
	if err != nil {
		return fmt.Errorf("messaging: %w", err)
	}
	c.work(c.control.w, c.control.run)
	c.spawn(c.answer)
	c.spawn(c.watch)
	if c.cfg.Bind != nil {
		c.spawn(c.bind)
	} else {
		c.keep()
	}
	return nil
}

// keep starts those who look after the session.
func (c *Conn) keep() {
	c.spawn(c.pools.run)
	c.spawn(c.keepAlive)
}

// StartData lends the pools to the peer and starts moving frames between the
// ports, one for each data channel, and the peer; with Config.Bind, as soon as
// the peer has proved who it is. The ports stay the caller's and must outlive the
// Conn, or its Stop. What remains of an earlier Conn with the same ports, which
// may be nil, is sent first.
func (c *Conn) StartData(ports []Port, remains *Remains) error {
	if len(ports) != len(c.channels) {
		return fmt.Errorf("messaging: %d ports for %d data channels", len(ports), len(c.channels))
	}
	for i, ch := range c.channels {
		if err := errors.Join(ch.tx.begin(ports[i]), ch.rx.begin(ports[i])); err != nil {
			return fmt.Errorf("messaging: data channel %d: %w", ch.number, err)
		}
	}
	if remains != nil {
		c.takeOver(remains)
	}
	if c.cfg.Bind != nil {
		c.spawn(c.moveBound)
		return nil
	}
	if err := c.move(); err != nil {
		return fmt.Errorf("messaging: %w", err)
	}
	return nil
}

// move lends the first pools and starts those who move frames.
func (c *Conn) move() error {
	if err := c.lendFirst(); err != nil {
		return fmt.Errorf("lend the pools: %w", err)
	}
	for _, ch := range c.channels {
		if c.cfg.Poll {
			c.work(ch.rx.w, ch.poll)
			continue
		}
		c.work(ch.rx.w, ch.rx.run)
		c.work(ch.tx.w, ch.tx.run)
	}
	return nil
}

// lendFirst has the first pools offered, which their receivers have adopted.
func (c *Conn) lendFirst() error {
	for _, ch := range c.channels {
		for _, l := range *ch.rx.local.Load() {
			if err := c.pools.step(bufpool.Event{Kind: bufpool.Adopted, Local: l}); err != nil {
				return err
			}
		}
	}
	return nil
}

// newEvent makes an event that lives as long as the Conn.
func (c *Conn) newEvent() (*epoll.Event, error) {
	e, err := epoll.NewEvent()
	if err == nil {
		c.events = append(c.events, e)
	}
	return e, err
}

// newWaiter makes a waiter for the descriptors and the end of the session.
func (c *Conn) newWaiter(interests ...epoll.Interest) (*epoll.Set, error) {
	w, err := epoll.NewSet(append(interests, epoll.Readable(c.stop.FD()))...)
	if err == nil {
		c.waiters = append(c.waiters, w)
	}
	return w, err
}

// spawn runs a worker until the session ends; an error of its ends the session.
func (c *Conn) spawn(run func() error) {
	c.workers.Go(func() {
		if err := run(); err != nil {
			c.end(c.reason(err))
		}
	})
}

// work is spawn for a goroutine with a worker.
func (c *Conn) work(w *worker, run func() error) {
	c.spawn(func() error {
		w.place()
		defer w.release()
		return run()
	})
}

// end ends the session; only the first reason counts.
func (c *Conn) end(err error) {
	c.ended.Do(func() {
		c.failure = err
		c.stopped.Store(true)
		if c.stop != nil {
			c.stop.Set()
		}
		close(c.done)
		if c.control != nil {
			c.control.close()
		}
	})
}

// Abort ends the session for err at once: no frame passes any more. Close still
// has to be called.
func (c *Conn) Abort(err error) { c.end(err) }

// Done is closed when the session has ended, because something failed or Close
// was called. Close still has to be called.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil before Done is closed, net.ErrClosed after Close, and otherwise
// what ended the session.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.failure
	default:
		return nil
	}
}

// Close ends the session, waits for the workers, and releases everything. It
// is idempotent.
func (c *Conn) Close() error {
	c.halt()
	c.closing.Do(func() {
		c.background.Wait()
		c.handlers.close()
		var errs []error
		// Before the descriptors that they wait for.
		for _, w := range c.waiters {
			errs = append(errs, w.Close())
		}
		if c.domain != nil {
			c.quiesce()
			errs = append(errs, c.domain.Close())
		}
		errs = append(errs, c.memory.close())
		for _, e := range c.events {
			errs = append(errs, e.Close())
		}
		c.closeErr = errors.Join(errs...)
	})
	return c.closeErr
}

// halt ends the session and waits for the workers.
func (c *Conn) halt() {
	c.end(net.ErrClosed)
	c.workers.Wait()
}

// quiesce takes the queue pairs out of service before they are destroyed, so
// that no retransmission timer fires into a queue pair that is gone.
func (c *Conn) quiesce() {
	// An error here is one that the domain's Close reports as well.
	if c.control != nil && c.control.qp != nil {
		_ = c.control.qp.Fail()
	}
	for _, ch := range c.channels {
		_ = ch.qp.Fail()
	}
}

// SetMTU changes the MTU that frames from the peer are checked against.
func (c *Conn) SetMTU(mtu int) { c.mtu.Store(int64(mtu)) }
