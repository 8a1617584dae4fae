package messaging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/ticker"
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
	shared
	protecting Protecting
	control    *control
	channels   []*channel
	pools      *poolManager
	registrar  registrar
	requests   *requests
	binding    *binding
	signs      *signsOfLife
	watch      *ticker.Task
	closing    sync.Once
	closeErr   error
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
	c := &Conn{protecting: protecting, shared: shared{
		cfg: cfg, handlers: newHandlers(&cfg),
		memory: memory{limit: cfg.MaxMemory, budget: cfg.Budget, node: cfg.Device.Limits().NUMANode},
		clock:  cmp.Or(cfg.clock, beats.Clock(partOf(&cfg))),
		done:   make(chan struct{}),
	}}
	c.mtu.Store(int64(cfg.MTU))
	c.reason = func(err error) error { return causeOf(&c.shared, c.control, c.channels, err) }
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
	d := &dispatcher{c: &c.shared}
	if c.control, err = newControl(&c.shared, sends, c.ControlReceives(), d.dispatch); err != nil {
		return err
	}
	c.atEnd = c.control.close
	c.requests = newRequests(&c.shared, &c.control.controlSends, d.answer)
	c.pools = newPoolManager(&c.shared, &c.control.controlSends, c.requests)
	c.signs = &signsOfLife{c: &c.shared, control: c.control, requests: c.requests}
	for i := range c.cfg.Queues {
		if err := c.addChannel(i + 1); err != nil {
			return fmt.Errorf("data channel %d: %w", i+1, err)
		}
	}
	c.binding = newBinding(&c.shared, c.signs, c.channels)
	d.pools, d.requests, d.binding, d.channels = c.pools, c.requests, c.binding, c.channels
	return nil
}

// addChannel makes a data channel with its first pools, and posts its receives.
func (c *Conn) addChannel(number int) error {
	ch, err := newChannel(&c.shared, number, c.control, c.pools)
	if err != nil {
		return err
	}
	c.channels = append(c.channels, ch)
	c.pools.channels = append(c.pools.channels, poolChannel{
		number: number, sender: &ch.tx.queue, receiver: &ch.rx.queue, credits: &ch.tx.credits, slots: ch.tx.in.slots,
		sequence: &ch.tx.out.sequence, tx: &ch.tx.count, rx: &ch.rx.count,
	})
	for _, p := range c.cfg.channel(number).Pools {
		l, err := c.pools.first(number, p)
		if err != nil {
			return err
		}
		if err := ch.rx.adopt(l); err != nil {
			return err
		}
	}
	return ch.rx.post(c.cfg.channel(number).furtherReceives())
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
		if _, err = c.requests.ask(context.Background(), protocol.CfgBind, c.binding.ours[:],
			make(chan protocol.CfgUtilReply, 1)); err != nil {
			return fmt.Errorf("messaging: begin on the control channel: %w", err)
		}
	}
	c.control.idle, err = c.newWaiter(epoll.Readable(c.control.cq.FD()), epoll.Readable(c.control.w.wake.FD()))
	if err != nil {
		return fmt.Errorf("messaging: %w", err)
	}
	c.work(c.control.w, c.control.run)
	c.spawn(c.requests.answer)
	c.watch = watch(&c.shared, c.control, c.channels)
	if c.cfg.Bind == nil {
		c.keep()
		return nil
	}
	c.spawn(func() error {
		proved, err := c.binding.wait()
		if proved {
			c.keep()
		}
		return err
	})
	return nil
}

// keep starts those who look after the session.
func (c *Conn) keep() {
	c.spawn(c.pools.run)
	c.pools.start()
	c.signs.start()
}

// Reach asks the peer for a sign of life and waits for the answer: until ctx is
// done, or, with an error that wraps context.DeadlineExceeded, for
// Config.PeerTimeout. How it is answered does not matter.
func (c *Conn) Reach(ctx context.Context) error { return c.signs.reach(ctx) }

// Request sends a configuration request and waits for the reply, whose data it
// returns. At most MaxRequests are out at a time, one fewer of those that the
// peer may hold back; more wait for their turn. A status other than
// protocol.CfgOK is returned as a *StatusError. It fails with net.ErrClosed, wrapped,
// when the session ends first.
//
// When ctx ends first the request stays counted until its reply comes, because
// it occupies a receive at the peer until then.
func (c *Conn) Request(ctx context.Context, t protocol.CfgType, data []byte) ([]byte, error) {
	return c.requests.request(ctx, t, data)
}

// StartData lends the pools to the peer and starts moving frames between the
// ports, one for each data channel, and the peer; with Config.Bind, as soon as
// the peer has proved who it is. The ports stay the caller's and must outlive the
// Conn, or its Stop. What remains of an earlier Conn with the same ports, which
// may be nil, is sent first.
func (c *Conn) StartData(ports []Port, unsent *Unsent) error {
	if len(ports) != len(c.channels) {
		return fmt.Errorf("messaging: %d ports for %d data channels", len(ports), len(c.channels))
	}
	for i, ch := range c.channels {
		if err := errors.Join(ch.tx.begin(ports[i], &c.registrar.keys), ch.rx.begin(ports[i])); err != nil {
			return fmt.Errorf("messaging: data channel %d: %w", ch.number, err)
		}
	}
	if p, ok := ports[0].(ZeroCopyPort); ok && lentPieces(&c.cfg) > 0 {
		c.inBackground(func() error { return c.registrar.run(&c.shared, p) })
	}
	if unsent != nil {
		unsent.handOver(c.channels)
	}
	if c.cfg.Bind != nil {
		c.spawn(func() error {
			if !c.binding.awaitTrust() {
				return nil
			}
			if err := c.move(); !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil // the session has ended meanwhile
		})
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
	c.control.polled.Store(c.cfg.Poll)
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
			if err := c.pools.notify(bufpool.Event{Kind: bufpool.Adopted, Local: l}); err != nil {
				return err
			}
		}
	}
	return nil
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
		for _, ch := range c.channels {
			ch.tx.in.close()
		}
		errs = append(errs, c.registrar.close(&c.shared), c.memory.close())
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
	for _, ch := range c.channels {
		ch.tx.in.loans.leave()
	}
	c.watch.Stop()
	if c.signs != nil { // New has come so far
		c.pools.beat.Load().Stop()
		c.signs.beat.Stop()
	}
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

// Unhold has every worker that waits for the end of a hold look again how long
// that is: see PacedPort. It never waits. It must not be called after Close.
func (c *Conn) Unhold() {
	for _, ch := range c.channels {
		ch.tx.queue.wake.Set()
		ch.rx.queue.wake.Set()
	}
}

// Pause has the data channels take no more frames from their ports, and waits
// until all that were taken and sent have arrived in the peer's memory. Frames
// from the peer go on coming. A pause ends with Resume or Stop.
func (c *Conn) Pause(ctx context.Context) error {
	paused := make(chan struct{}, len(c.channels))
	for _, ch := range c.channels {
		ch.tx.paused.Store(true)
		ch.tx.queue.put(sqRequest{kind: sqDrain, done: paused})
	}
	fail := func(err error) error { return fmt.Errorf("messaging: wait for what was sent: %w", err) }
	for range c.channels {
		select {
		case <-paused:
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		case <-c.done:
			return fail(net.ErrClosed)
		}
	}
	// The reply says that the peer has handled all indications, too.
	var status *StatusError
	if _, err := c.Request(ctx, protocol.CfgKeepAlive, nil); err != nil && !errors.As(err, &status) {
		return fail(err)
	}
	return nil
}

// Resume ends a pause.
func (c *Conn) Resume() {
	for _, ch := range c.channels {
		ch.tx.paused.Store(false)
		ch.tx.queue.put(sqRequest{kind: sqDrain})
	}
}

// Flush has all pools go, those that this side lends and those that it uses: the
// peer is asked to stop using the former, and to take back the latter, and memory is
// deregistered upon its replies. It is for the end of a session in good order, once:
// no frame passes afterwards, and those that were not sent stay with their ports.
// Where it fails, for which it has Config.FlushTime, pools end with the session. It does
// with a peer that does not move frames yet.
func (c *Conn) Flush() error {
	if c.cfg.Mode.Sends() {
		return nil // there is no memory to be given back
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.FlushTime)
	defer cancel()
	gone, err := c.pools.end()
	if err == nil {
		select {
		case <-gone:
			return c.Pause(ctx) // until the peer has the messages that invalidate its windows, too
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-c.done:
			err = net.ErrClosed
		}
	}
	return fmt.Errorf("messaging: flush all pools: %w", err)
}

// Stop ends the session as Close does, but only waits for the workers: when it
// returns the ports are the caller's again. What the peer had written by then
// has been delivered, as far as it was in order. Close has still to be called, which
// takes longer: until it returns, frames that a ZeroCopyPort has lent may be on their way.
func (c *Conn) Stop() *Unsent {
	c.halt()
	r := &Unsent{Frames: make([][][]byte, len(c.channels))}
	for i, ch := range c.channels {
		ch.tx.unsent(r, i)
		r.Unrevoked += ch.rx.count.RxUnrevoked.Load()
	}
	return r
}
