package messaging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/splitnic/splitnic/bufpool"
	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/control"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/core"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/memory"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/pools"
	"github.com/splitnic/splitnic/splitdrv/messaging/internal/tx"
)

// Conn has the channels of one session and all that they need: a protection domain,
// registered memory, queue pairs, and the goroutines that move frames.
//
// Order of calls: New; send Addresses to the peer, and pass the peer's to Connect; Start
// once the peer has connected too; Close. Start consists of StartControl and StartData: a
// session on standby has only StartControl called. A session that is replaced by another
// has Pause and Stop called before Close.
type Conn struct {
	shared     core.Session
	cfg        Config // with the protection in force
	options    *control.Options
	protection ProtectionInForce
	control    *control.Channel
	channels   []*channel
	pools      *pools.Manager
	registrar  tx.Registrar
	requests   *control.Requests
	proofs     *proofs
	signs      *control.Signs
	watch      *ticker.Task
	beat       *ticker.Task                // of signs
	renewal    atomic.Pointer[ticker.Task] // nil: nothing is sealed
	queried    *member
	closing    sync.Once
	closeErr   error
}

// New creates the channels of a session and posts all receives. The queue pairs are not
// connected yet. The device remains the caller's.
func New(cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	windows := cfg.windows()
	protection, err := cfg.chooseProtection(windows)
	if err != nil {
		return nil, fmt.Errorf("messaging: device %s: %w", cfg.Device.Name(), err)
	}
	cfg.Protection = protection.Name
	c := &Conn{cfg: cfg, options: cfg.control(), protection: protection, shared: core.Session{
		Device: cfg.Device, Mode: cfg.Mode, MaxPools: cfg.MaxPools,
		Handlers: cq.NewHandlers(cfg.Handling(), cfg.vectors(), cfg.SpinLimit),
		Memory:   memory.Memory{Limit: cfg.MaxMemory, Budget: cfg.Budget, Node: cfg.Device.Limits().NUMANode},
		Clock:    cmp.Or(cfg.Clock, control.Beats.Clock(control.PartOf(cfg.control()))),
		Done:     make(chan struct{}),
	}}
	if k := cfg.Keys; k != nil {
		c.options.Sealer, c.options.Opener = k.Sealer(0, ""), k.Opener(0, "")
	}
	c.shared.MTU.Store(int64(cfg.MTU))
	c.shared.Reason = func(err error, own func() error) error {
		return causeOf(&c.shared, c.control, c.channels, err, own)
	}
	if err := c.build(windows.Bounds); err != nil {
		return nil, errors.Join(fmt.Errorf("messaging: %w", err), c.Close())
	}
	return c, nil
}

// renewInterval is the time after which frames and messages are sealed with new keys, and renewals
// the ticker of all sessions.
const renewInterval = 2 * time.Minute

var renewals ticker.Ticker

func (c *Conn) build(windowBounds bool) (err error) {
	if c.shared.Stop, err = c.shared.NewEvent(); err != nil {
		return err
	}
	if c.shared.Domain, err = c.cfg.Device.NewDomain(); err != nil {
		return err
	}
	d := &dispatcher{c: &c.shared, cfg: &c.cfg}
	slots, receives := c.cfg.controlSlots(), c.ControlReceives()
	if c.control, err = control.New(&c.shared, c.options, slots, receives, d.dispatch); err != nil {
		return err
	}
	c.shared.AtEnd = c.control.Close
	c.requests = control.NewRequests(&c.shared, c.options, &c.control.Sends, d.answer)
	c.pools = pools.New(&c.shared, c.cfg.pools(windowBounds), &c.control.Sends, c.requests)
	c.signs = control.NewSigns(&c.shared, c.options, c.control, c.requests)
	for i := range c.cfg.Queues {
		if err := c.addChannel(i + 1); err != nil {
			return fmt.Errorf("data channel %d: %w", i+1, err)
		}
	}
	c.proofs = newProofs(&c.shared, &c.cfg, c.control, c.signs, c.channels)
	d.pools, d.requests, d.proofs, d.channels = c.pools, c.requests, c.proofs, c.channels
	if f, ok := c.shared.Domain.(device.Failing); ok {
		f.OnFailure(c.shared.End)
		if c.cfg.EndsWithPort {
			f.OnPortDown(c.shared.End)
		}
	}
	return nil
}

// addChannel creates a data channel with its first pools, and posts its receives.
func (c *Conn) addChannel(number int) error {
	ch, err := newChannel(&c.shared, &c.cfg, number, c.control, c.pools)
	if err != nil {
		return err
	}
	c.channels = append(c.channels, ch)
	for _, p := range c.cfg.channel(number).Pools {
		l, err := c.pools.First(number, p)
		if err != nil {
			return err
		}
		if err := ch.rx.Adopt(l); err != nil {
			return err
		}
	}
	return ch.rx.Post(c.cfg.channel(number).furtherReceives())
}

// ControlReceives returns how many receives this side posts on the control channel. They
// are enough for a peer that lends Config.PeerPools pools on each data channel.
func (c *Conn) ControlReceives() int { return c.cfg.controlReceives() }

// Addresses returns the addresses of the queue pairs, that of the control channel first.
func (c *Conn) Addresses() []fabric.Address {
	all := []fabric.Address{c.control.QP.Address()}
	for _, ch := range c.channels {
		all = append(all, ch.QP.Address())
	}
	c.cfg.limitPath(all)
	return all
}

// Connect connects the queue pairs to those of the peer, in the order of Addresses.
// controlReceives is the number of receives that the peer posts on the control channel.
func (c *Conn) Connect(remote []fabric.Address, controlReceives int) error {
	if len(remote) != 1+len(c.channels) {
		return fmt.Errorf("messaging: the peer has %d channels, this side %d", len(remote), 1+len(c.channels))
	}
	if need := protocol.ControlReceives(c.cfg.Mode, len(c.channels), c.cfg.MaxPools); controlReceives < need {
		return fmt.Errorf("messaging: %w: %d, %d are needed", core.ErrControlReceives, controlReceives, need)
	}
	remote = slices.Clone(remote)
	c.cfg.limitPath(remote)
	path := min(remote[0].MTU, c.Addresses()[0].MTU)
	c.shared.PathMTU.Store(int64(path))
	if c.cfg.ProvePath {
		c.control.ProvePath(path)
	}
	if err := c.control.QP.Connect(remote[0], c.cfg.Timing); err != nil {
		return fmt.Errorf("messaging: connect the control channel: %w", err)
	}
	for i, ch := range c.channels {
		if err := ch.QP.Connect(remote[1+i], c.cfg.Timing); err != nil {
			return fmt.Errorf("messaging: connect data channel %d: %w", ch.Number, err)
		}
		ch.PeerQPN = remote[1+i].QPN
	}
	if b := c.cfg.Bind; b != nil {
		c.proofs.ours, c.proofs.theirs = b.Proofs(c.Addresses(), remote)
	}
	return nil
}

// Start calls StartControl and StartData.
func (c *Conn) Start(ports []core.Port) error {
	if err := c.StartControl(); err != nil {
		return err
	}
	return c.StartData(ports, nil)
}

// StartControl starts everything except the data channels: requests are answered and
// keep-alives are sent. The peer's queue pairs must be connected. Until StartData the peer
// has no pools to write to, so its frames wait in its netdevice. With Config.Bind,
// StartControl does not wait for the peer's proof; the session ends if the proof does not
// arrive within Config.PeerTimeout.
func (c *Conn) StartControl() error {
	if err := c.proofs.begin(c.requests); err != nil {
		return fmt.Errorf("messaging: begin on the control channel: %w", err)
	}
	if err := c.control.Start(); err != nil {
		return fmt.Errorf("messaging: %w", err)
	}
	c.shared.Spawn(c.requests.Answer)
	c.watch, c.queried = theQueries.watch(&c.shared, c.cfg.KeepAlive, c.control, c.channels)
	if c.cfg.Bind == nil {
		c.keep()
		return nil
	}
	c.shared.Spawn(func() error {
		proved, err := c.proofs.wait()
		if proved {
			c.keep()
		}
		return err
	})
	return nil
}

// keep starts the pool manager and the keep-alives.
func (c *Conn) keep() {
	c.shared.Spawn(c.pools.Run)
	c.pools.Start()
	c.signs.Start()
	c.beat = control.Beats.Every(control.PartOf(c.options), c.signs.Check)
	if k := c.cfg.Keys; k != nil {
		c.renewal.Store(renewals.Every(renewInterval, func(ticker.Tick) int {
			k.Renew()
			return 0
		}))
	}
}

// Reach sends a keep-alive and waits until the peer answers, with any status. It fails
// when ctx is done, or, with an error that wraps context.DeadlineExceeded, after
// Config.PeerTimeout.
func (c *Conn) Reach(ctx context.Context) error { return c.signs.Reach(ctx) }

// Request sends a configuration request, waits for the reply, and returns its data. At
// most MaxRequests are outstanding at a time, one fewer of the kinds that the peer may
// delay; further requests wait. A status other than protocol.CfgOK is returned as a
// *StatusError. If the session ends first, the error wraps net.ErrClosed.
//
// If ctx ends first, the request counts as outstanding until its reply arrives, because it
// occupies a receive of the peer until then.
func (c *Conn) Request(ctx context.Context, t protocol.CfgType, data []byte) ([]byte, error) {
	return c.requests.Request(ctx, t, data)
}

// StartData lends the pools to the peer and starts to move frames between the ports, one
// for each data channel, and the peer; with Config.Bind, once the peer has proved its
// identity. The ports remain the caller's, and must stay open until Stop or Close has
// returned. unsent, which may be nil, has the frames that an earlier Conn with the same
// ports did not send; they are sent first.
func (c *Conn) StartData(ports []core.Port, unsent *Unsent) error {
	if len(ports) != len(c.channels) {
		return fmt.Errorf("messaging: %d ports for %d data channels", len(ports), len(c.channels))
	}
	for i, ch := range c.channels {
		if err := errors.Join(ch.tx.Begin(ports[i], &c.registrar.Keys), ch.rx.Begin(ports[i])); err != nil {
			return fmt.Errorf("messaging: data channel %d: %w", ch.Number, err)
		}
	}
	if p, ok := ports[0].(core.ZeroCopyPort); ok && tx.LentPieces(c.cfg.sender(1)) > 0 {
		c.registrar.Budget = c.cfg.ZeroCopy
		c.shared.InBackground(func() error { return c.registrar.Run(&c.shared, p) })
	}
	if unsent != nil {
		unsent.handOver(c.channels)
	}
	if c.cfg.Bind != nil {
		c.shared.Spawn(func() error {
			if !c.proofs.awaitTrust() {
				return nil
			}
			if err := c.move(); !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil // the session has ended in the meantime
		})
		return nil
	}
	if err := c.move(); err != nil {
		return fmt.Errorf("messaging: %w", err)
	}
	return nil
}

// move lends the first pools and starts the senders and receivers.
func (c *Conn) move() error {
	if err := c.lendFirst(); err != nil {
		return fmt.Errorf("lend the pools: %w", err)
	}
	if c.cfg.Poll {
		c.control.LeaveToOthers()
	}
	for _, ch := range c.channels {
		if c.cfg.Poll {
			c.shared.Work(ch.rx.W, ch.poll, ch.failure)
			continue
		}
		ch.rx.Start()
		ch.tx.Start()
	}
	return nil
}

// lendFirst offers the first pools, which the receivers have already adopted.
func (c *Conn) lendFirst() error {
	for _, ch := range c.channels {
		for _, l := range ch.rx.Pools() {
			if err := c.pools.Notify(bufpool.Event{Did: bufpool.Adopt, Local: l}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Abort ends the session immediately, for the reason err. No more frames pass. The caller
// still has to call Close.
func (c *Conn) Abort(err error) { c.shared.End(err) }

// Done returns a channel that is closed when the session has ended, because something
// failed or Close was called. The caller still has to call Close.
func (c *Conn) Done() <-chan struct{} { return c.shared.Done }

// Err returns nil before Done is closed, net.ErrClosed after Close, and otherwise the
// reason for which the session has ended.
func (c *Conn) Err() error {
	select {
	case <-c.shared.Done:
		return c.shared.Failure
	default:
		return nil
	}
}

// Close ends the session, waits for the workers, and releases everything. It
// is idempotent.
func (c *Conn) Close() error {
	c.halt()
	c.closing.Do(func() {
		c.shared.Background.Wait()
		c.shared.Handlers.Close()
		var errs []error
		// The waiters are closed before the descriptors that they wait for.
		for _, w := range c.shared.Waiters {
			errs = append(errs, w.Close())
		}
		if c.shared.Domain != nil {
			c.quiesce()
			errs = append(errs, c.shared.Domain.Close())
		}
		for _, ch := range c.channels {
			ch.tx.Close()
		}
		errs = append(errs, c.registrar.Close(), c.shared.Memory.Close())
		for _, e := range c.shared.Events {
			errs = append(errs, e.Close())
		}
		c.closeErr = errors.Join(errs...)
	})
	return c.closeErr
}

// halt ends the session and waits until the workers have returned.
func (c *Conn) halt() {
	c.shared.End(net.ErrClosed)
	c.shared.Workers.Wait()
	for _, ch := range c.channels {
		ch.tx.Leave()
	}
	c.watch.Stop()
	c.queried.leave()
	c.renewal.Load().Stop()
	c.beat.Stop()
	if c.pools != nil { // nil if New has failed early
		c.pools.Stop()
	}
}

// quiesce moves the queue pairs to the error state before they are destroyed, so that no
// retransmission timer fires for a destroyed queue pair.
func (c *Conn) quiesce() {
	// The domain's Close reports the same error again.
	if c.control != nil && c.control.QP != nil {
		_ = c.control.QP.Fail()
	}
	for _, ch := range c.channels {
		_ = ch.QP.Fail()
	}
}

// SetMTU changes the MTU, in bytes, that limits the frames from the peer.
func (c *Conn) SetMTU(mtu int) { c.shared.MTU.Store(int64(mtu)) }

// Unhold makes each worker that waits for the end of a hold (see PacedPort) ask its port
// again for how long that is. It never waits. It must not be called after Close.
func (c *Conn) Unhold() {
	for _, ch := range c.channels {
		ch.shared.Sender.Queue.Event.Set()
		ch.shared.Receiver.Queue.Event.Set()
	}
}

// Pause makes the data channels stop reading frames from their ports, and waits until all
// frames that were sent have arrived in the peer's memory. Frames from the peer are still
// received. A pause ends with Resume or Stop.
func (c *Conn) Pause(ctx context.Context) error {
	paused := make(chan struct{}, len(c.channels))
	for _, ch := range c.channels {
		ch.tx.Pause(paused)
	}
	fail := func(err error) error { return fmt.Errorf("messaging: wait for what was sent: %w", err) }
	for range c.channels {
		select {
		case <-paused:
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		case <-c.shared.Done:
			return fail(net.ErrClosed)
		}
	}
	// The reply shows that the peer has also handled all indications.
	if err := c.requests.KeepAlive(ctx); err != nil {
		return fail(err)
	}
	return nil
}

// Resume ends a pause.
func (c *Conn) Resume() {
	for _, ch := range c.channels {
		ch.tx.Resume()
	}
}

// Flush ends all pools, local and remote: the peer is asked to stop using the former and
// to take back the latter, and their memory is deregistered when it has replied. It is
// called once, at the end of a session in good order. No frames pass afterwards; those that
// were not sent stay in their ports. If it fails, at the latest after Config.FlushTime, the
// pools end with the session. It always fails if the peer does not move frames yet.
func (c *Conn) Flush() error {
	if c.cfg.Mode.Sends() {
		return nil // the peer has no access to memory
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.FlushTime)
	defer cancel()
	gone, err := c.pools.End()
	if err == nil {
		select {
		case <-gone:
			return c.Pause(ctx) // wait until the messages that invalidate windows have arrived, too
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-c.shared.Done:
			err = net.ErrClosed
		}
	}
	return fmt.Errorf("messaging: flush all pools: %w", err)
}

// Stop ends the session like Close, but only waits until the workers have returned. The
// caller can then use the ports again. Frames that had arrived by then have been delivered,
// unless the session had failed. The caller still has to call Close, which takes longer.
// Until Close returns, frames that a ZeroCopyPort has lent may be in flight.
func (c *Conn) Stop() *Unsent {
	c.halt()
	r := &Unsent{Frames: make([][][]byte, len(c.channels))}
	for i, ch := range c.channels {
		frames, uncertain, lost := ch.tx.Left()
		r.Frames[i], r.Uncertain, r.Lost = frames, r.Uncertain+uncertain, r.Lost+lost
		r.Unrevoked += ch.shared.Receiver.Count.RxUnrevoked.Load()
	}
	return r
}
