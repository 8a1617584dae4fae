package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// Config describes a host.
type Config struct {
	Name     string   // of this host, for the I/O unit's logs and status
	Software string   // version, for people
	IOUnits  []string // addresses of I/O units, in order of preference
	Security *session.Security
	Device   fabric.Device
	Netdev   Netdevice
	MAC      protocol.MAC  // wanted; zero leaves it to the I/O unit
	MaxMTU   int           // wanted at most; default 9000
	Offloads vnet.Offloads // wanted at most
	// Latency, which may be nil, says which frames are latency-sensitive. They
	// get the last of the netdevice's queues, of which there are two at least, to
	// themselves if the I/O unit has a latency channel. Netdev is a Steerer then.
	// NoLatency is why it is nil although it was wanted, for the status.
	Latency   *steer.Classes
	NoLatency error
	// Modes are the transfer modes wanted, in order of preference; default
	// protocol.ModeImm.
	Modes []protocol.Mode
	// Messaging is the template for each session. Device, Mode, Queues (the
	// netdevice's are wanted), MTU, PeerPools, LatencyQueue, LatencyPools and
	// OnRequest are set here.
	Messaging messaging.Config
	// HandshakeTimeout is as in session.ClientConfig.
	HandshakeTimeout time.Duration
	// RetryMin and RetryMax bound the pause after all I/O units failed, which
	// doubles each time until a session has lasted RetryMax; default 100 ms
	// and 5 s.
	RetryMin, RetryMax time.Duration
	// Past is what was with the netdevice before. With KeepCarrier it goes to
	// another process when Run's context is done, and keeps its carrier.
	// OnAgreement is told what that process has to know; may be nil.
	Past        Past
	KeepCarrier bool
	OnAgreement func(Agreement)
	Log         *slog.Logger
	// OnState is told about every change of the connection; may be nil.
	OnState func(State)
}

// State says how far a host has got with its I/O unit.
type State string

// The states.
const (
	Connecting State = "connecting"
	Connected  State = "connected"
)

// features are the optional parts of the protocol that this host can use.
func (h *Host) features() []string {
	var words []string
	if !h.cfg.Messaging.NoPack {
		words = append(words, protocol.FeaturePack)
	}
	if h.wantsLatency() {
		words = append(words, protocol.FeatureLatencyQueue)
	}
	return append(words, protocol.FeatureBind)
}

// ErrNetdeviceGone is wrapped by Run's error when somebody has deleted the
// netdevice. A new process makes a new one.
var ErrNetdeviceGone = errors.New("the netdevice was deleted; start this again to make a new one")

// Host is a running host.
type Host struct {
	cfg Config

	// changing is held while an established session changes the netdevice, so
	// that no request that is still being answered when the session ends can
	// give the carrier back.
	changing sync.Mutex

	wake chan struct{} // of the follower; of capacity one

	remembered Agreement // what OnAgreement was told last

	mu       sync.Mutex // guards what follows; taken after changing
	state    State
	phase    phase
	set      settings
	unit     string // address of the I/O unit in use, or tried last
	peer     session.Identity
	welcome  session.Welcome
	carrier  bool
	offloads vnet.Offloads
	conn     *messaging.Conn
	handling messaging.Handling // of sessions, the present one included
	latency  steer.Status       // of the present session
	// noLatency is why the kernel refused to steer, and sessions do without a
	// latency queue.
	noLatency error
	since     time.Time
	sessions  int
	attempts  int
	lastErr   error
	rehandled int                 // changes of handling
	key       session.Fingerprint // of this side, when it last opened a session
	ended     map[string]uint64   // sessions that might not go on, by reason
}

// New makes a host. Nothing happens before Run.
func New(cfg Config) (*Host, error) {
	if len(cfg.IOUnits) == 0 {
		return nil, errors.New("host: no I/O unit; name at least one")
	}
	if cfg.MaxMTU == 0 {
		cfg.MaxMTU = 9000
	}
	if len(cfg.Modes) == 0 {
		cfg.Modes = []protocol.Mode{protocol.ModeImm}
	}
	if cfg.RetryMin == 0 {
		cfg.RetryMin = 100 * time.Millisecond
	}
	if cfg.RetryMax == 0 {
		cfg.RetryMax = 5 * time.Second
	}
	if cfg.OnState == nil {
		cfg.OnState = func(State) {}
	}
	if cfg.OnAgreement == nil {
		cfg.OnAgreement = func(Agreement) {}
	}
	if err := cfg.checkLatency(); err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, state: Connecting, carrier: cfg.Past.Carrier, since: time.Now(), wake: make(chan struct{}, 1)}
	for _, m := range cfg.Modes {
		if err := h.messaging(m).Check(); err != nil {
			return nil, fmt.Errorf("host: %w", err)
		}
	}
	h.handling = h.initialHandling()
	return h, nil
}

// Run connects to the I/O units in turn and keeps the netdevice working until
// ctx is done, when it returns nil. It returns an error at once if no session
// has ever come about and every I/O unit refuses for a reason that waiting
// does not cure, such as a key that is not trusted, or this process may not
// lock the memory that it takes.
func (h *Host) Run(ctx context.Context) error {
	if err := h.baseline(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	workers.Go(func() {
		if err := h.watch(ctx); err != nil {
			cancel(err)
		}
	})
	workers.Go(func() { h.follow(ctx) })
	err := h.connect(ctx)
	if gone := context.Cause(ctx); errors.Is(gone, ErrNetdeviceGone) {
		err = gone
	}
	cancel(nil)
	workers.Wait()
	h.remember()
	return err
}

// baseline notes what the netdevice has before anybody changes it.
func (h *Host) baseline() error {
	h.changing.Lock()
	defer h.changing.Unlock()
	state, err := h.cfg.Netdev.State()
	if err != nil {
		return h.netdevice(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set.mac, h.set.mtu = macOf(state.MAC), state.MTU
	if a := h.cfg.Past.Agreement; a != nil {
		h.set.resume(a)
	}
	return nil
}

// connect is Run without those who follow the netdevice.
func (h *Host) connect(ctx context.Context) error {
	retry := backoff{min: h.cfg.RetryMin, max: h.cfg.RetryMax}
	for {
		var permanent []error
		var longest time.Duration // session of this round
		for _, addr := range h.cfg.IOUnits {
			started := time.Now()
			established, err := h.attach(ctx, addr)
			if ctx.Err() != nil {
				return nil
			}
			h.note(addr, err)
			if errors.Is(err, ErrNetdeviceGone) {
				return err
			}
			switch {
			case established:
				lasted := time.Since(started)
				h.cfg.Log.Warn("session ended", "iounit", addr, "reason", err, "lasted", lasted.Round(time.Millisecond))
				longest = max(longest, lasted)
			case isPermanent(err):
				permanent = append(permanent, err)
				fallthrough
			default:
				h.cfg.Log.Warn("no session", "iounit", addr, "reason", err)
			}
		}
		if err := h.forsake(); errors.Is(err, ErrNetdeviceGone) {
			return err
		}
		if h.ever() == 0 && len(permanent) == len(h.cfg.IOUnits) {
			return errors.Join(permanent...)
		}
		select {
		case <-time.After(retry.pause(longest)):
		case <-ctx.Done():
			return nil
		}
	}
}

// isPermanent reports whether trying again will not help.
func isPermanent(err error) bool {
	var untrusted *session.UntrustedError
	var version *session.VersionError
	var refused *session.RefusedError
	switch {
	case errors.As(err, &untrusted), errors.As(err, &version),
		errors.Is(err, session.ErrNotSplitnic), errors.Is(err, session.ErrSecurityMode),
		errors.Is(err, syscall.ENOMEM): // of this process: RLIMIT_MEMLOCK, if not the machine's
		return true
	case errors.As(err, &refused):
		return !refused.Retry
	}
	return false
}

func (h *Host) note(addr string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unit, h.lastErr = addr, err
	h.countEnd(err)
	h.attempts++
}

func (h *Host) ever() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions
}

// attach runs one session with the I/O unit at addr, from beginning to end,
// and reports whether it was ever established. An administrator's MAC address
// that the I/O unit refuses is given up.
func (h *Host) attach(ctx context.Context, addr string) (ever bool, err error) {
	ever, err = h.session(ctx, addr)
	if !ever && h.giveUpMAC(err) {
		ever, err = h.session(ctx, addr)
	}
	return ever, err
}

// session is attach without a second try.
func (h *Host) session(ctx context.Context, addr string) (ever bool, err error) {
	c, err := session.Dial(ctx, addr, session.ClientConfig{Security: h.cfg.Security, PeerTimeout: h.cfg.Messaging.PeerTimeout, HandshakeTimeout: h.cfg.HandshakeTimeout})
	if err != nil {
		return false, err
	}
	defer c.Close()
	mac, err := h.begin()
	if err != nil {
		return false, h.netdevice(err)
	}
	defer h.setPhase(idle)
	ports := h.cfg.Netdev.Ports()
	w, err := c.Hello(ctx, session.Hello{
		Features: h.features(),
		Name:     h.cfg.Name, Software: h.cfg.Software, Modes: h.cfg.Modes,
		Queues: len(ports), Pools: h.lends(),
		MaxMTU: h.cfg.MaxMTU, Offloads: h.cfg.Offloads, MAC: mac,
	})
	if err != nil {
		return false, err
	}
	if err := h.configure(&w); err != nil {
		return false, errors.Join(err, c.Bye(session.CodeFailed, err.Error()))
	}

	mcfg := h.messaging(w.Mode)
	mcfg.Queues, mcfg.MTU, mcfg.PeerPools = w.Queues, w.MTU, w.Pools
	mcfg.LatencyQueue = w.Grants(protocol.FeatureLatencyQueue)
	mcfg.NoPack = !slices.Contains(w.Features, protocol.FeaturePack)
	if mcfg.Bind, err = binding(c, &w); err != nil {
		return false, errors.Join(err, c.Bye(session.CodeFailed, err.Error()))
	}
	var conn *messaging.Conn
	mcfg.OnRequest = func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
		return h.onRequest(conn, t, data)
	}
	change := h.handle(&mcfg)
	conn, err = messaging.New(mcfg)
	if err != nil {
		return false, errors.Join(err, c.Bye(session.CodeFailed, err.Error()))
	}
	defer conn.Close()
	accept := session.Accept{ControlReceives: conn.ControlReceives()}
	for _, a := range conn.Addresses() {
		accept.Channels = append(accept.Channels, session.ChannelOf(a))
	}
	if err := c.Accept(ctx, accept); err != nil {
		return false, err
	}
	remote := make([]fabric.Address, 0, len(w.Channels))
	for _, ch := range w.Channels {
		remote = append(remote, ch.Address())
	}
	if err := conn.Connect(remote, w.ControlReceives); err != nil {
		return false, errors.Join(err, c.Bye(session.CodeFailed, err.Error()))
	}
	if err := c.Ready(ctx); err != nil {
		return false, err
	}
	h.connected(c, &w, conn, addr, change)
	// Before Start, from which on the I/O unit can tell of changes.
	if err = h.setCarrier(w.Link.Up); err == nil {
		err = conn.Start(ports[:w.Queues])
	}
	code, reason := session.CodeFailed, "starting failed"
	if err == nil {
		h.cfg.Log.Info("session established", "iounit", addr, "name", w.Name, "session", w.Session,
			"mode", w.Mode, "mac", w.MAC, "mtu", w.MTU, "queues", w.Queues, "link", w.Link.Up)
		h.setPhase(established)
		code, reason, err = h.wait(ctx, c, conn)
	}
	// The carrier first: nothing else is as urgent.
	err = errors.Join(err, h.disconnected(ctx))
	return true, errors.Join(err, c.Bye(code, reason))
}

// messaging is the configuration of a session's channels in that mode.
func (h *Host) messaging(mode protocol.Mode) messaging.Config {
	c := h.cfg.Messaging
	c.Device, c.Mode = h.cfg.Device, mode
	if c.Pools == nil {
		c.Pools = messaging.DefaultPools(mode, h.cfg.MaxMTU)
	}
	c.LatencyPools = messaging.LatencyPools(mode, h.cfg.MaxMTU)
	if mode.Sends() {
		c.MaxPools = 0 // one: there is no other choice
	}
	return c
}

// lends is the number of pools for the hello: the most of all modes.
func (h *Host) lends() int {
	most := 0
	for _, m := range h.cfg.Modes {
		most = max(most, h.messaging(m).Lends())
	}
	return most
}

// wait waits for the end of the session and returns the reason, and what to
// tell the I/O unit.
func (h *Host) wait(ctx context.Context, c *session.Client, conn *messaging.Conn) (code session.Code, reason string, err error) {
	select {
	case <-ctx.Done():
		if err := context.Cause(ctx); errors.Is(err, ErrNetdeviceGone) {
			return session.CodeFailed, err.Error(), err
		}
		return session.CodeShuttingDown, "the host is shutting down", ctx.Err()
	case <-c.Done():
		conn.Abort(c.Err())
		return session.CodeFailed, "the connection broke", c.Err()
	case <-conn.Done():
		err = conn.Err()
	}
	code = session.CodeFailed
	var pe *messaging.ProtocolError
	if errors.As(err, &pe) {
		code = session.CodeProtocol
	}
	return code, err.Error(), err
}

// netdevice says so if err, of a change to the netdevice, means that there is
// none any more.
func (h *Host) netdevice(err error) error {
	// By netlink and by ioctl.
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EBADFD) {
		return fmt.Errorf("%s: %w: %w", h.cfg.Netdev.Name(), ErrNetdeviceGone, err)
	}
	return err
}

func (h *Host) setCarrier(up bool) error {
	if err := h.cfg.Netdev.SetCarrier(up); err != nil {
		return h.netdevice(err)
	}
	h.mu.Lock()
	h.carrier = up
	h.mu.Unlock()
	return nil
}

func (h *Host) connected(c *session.Client, w *session.Welcome, conn *messaging.Conn, addr string, change int) {
	h.mu.Lock()
	h.catchUp(conn, change)
	h.state, h.since, h.unit, h.peer, h.welcome, h.conn = Connected, time.Now(), addr, c.Peer(), *w, conn
	h.lastErr = nil
	h.sessions++
	h.mu.Unlock()
	h.cfg.OnState(Connected)
}

// current reports whether conn is that of the established session.
func (h *Host) current(conn *messaging.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conn == conn
}

// disconnected forgets the session and takes the carrier, unless another process
// follows.
func (h *Host) disconnected(ctx context.Context) error {
	h.mu.Lock()
	h.state, h.since, h.conn, h.phase = Connecting, time.Now(), nil, idle
	h.mu.Unlock()
	var err error
	if !h.handsOver(ctx) {
		h.changing.Lock()
		err = h.setCarrier(false)
		h.changing.Unlock()
	}
	h.cfg.OnState(Connecting)
	return err
}
