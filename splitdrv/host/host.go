package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
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
	// Messaging is the template for each session. Device, Queues (the
	// netdevice's are wanted), MTU and OnRequest are set here.
	Messaging messaging.Config
	// HandshakeTimeout is as in session.ClientConfig.
	HandshakeTimeout time.Duration
	// RetryMin and RetryMax bound the pause after all I/O units failed, which
	// doubles each time until a session has lasted RetryMax; default 100 ms
	// and 5 s.
	RetryMin, RetryMax time.Duration
	Log                *slog.Logger
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

	mu       sync.Mutex // guards what follows, for Status
	state    State
	unit     string // address of the I/O unit in use, or tried last
	peer     session.Identity
	welcome  session.Welcome
	carrier  bool
	mtu      int
	mac      protocol.MAC
	offloads vnet.Offloads
	conn     *messaging.Conn
	since    time.Time
	sessions int
	attempts int
	lastErr  error
}

// New makes a host. Nothing happens before Run.
func New(cfg Config) (*Host, error) {
	if len(cfg.IOUnits) == 0 {
		return nil, errors.New("host: no I/O unit; name at least one")
	}
	if cfg.MaxMTU == 0 {
		cfg.MaxMTU = 9000
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
	return &Host{cfg: cfg, state: Connecting, since: time.Now()}, nil
}

// Run connects to the I/O units in turn and keeps the netdevice working until
// ctx is done, when it returns nil. It returns an error at once if no session
// has ever come about and every I/O unit refuses for a reason that waiting
// does not cure, such as a key that is not trusted, or this process may not
// lock the memory that it takes.
func (h *Host) Run(ctx context.Context) error {
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
	h.attempts++
}

func (h *Host) ever() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions
}

// attach runs one session with the I/O unit at addr, from beginning to end,
// and reports whether it was ever established.
func (h *Host) attach(ctx context.Context, addr string) (established bool, err error) {
	c, err := session.Dial(ctx, addr, session.ClientConfig{Security: h.cfg.Security, PeerTimeout: h.cfg.Messaging.PeerTimeout, HandshakeTimeout: h.cfg.HandshakeTimeout})
	if err != nil {
		return false, err
	}
	defer c.Close()
	ports := h.cfg.Netdev.Ports()
	pools := h.cfg.Messaging.Pools
	if pools == nil {
		pools = messaging.DefaultPools(protocol.ModeImm, h.cfg.MaxMTU)
	}
	w, err := c.Hello(ctx, session.Hello{
		Name: h.cfg.Name, Software: h.cfg.Software, Modes: []protocol.Mode{protocol.ModeImm},
		Queues: len(ports), Pools: len(pools),
		MaxMTU: h.cfg.MaxMTU, Offloads: h.cfg.Offloads, MAC: h.cfg.MAC,
	})
	if err != nil {
		return false, err
	}
	if err := h.configure(&w); err != nil {
		return false, errors.Join(err, c.Bye(session.CodeFailed, err.Error()))
	}

	mcfg := h.cfg.Messaging
	mcfg.Device, mcfg.Queues, mcfg.MTU, mcfg.Pools = h.cfg.Device, w.Queues, w.MTU, pools
	var conn *messaging.Conn
	mcfg.OnRequest = func(t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
		return h.onRequest(conn, t, data)
	}
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
	h.connected(c, &w, conn, addr)
	// Before Start, from which on the I/O unit can tell of changes.
	if err = h.setCarrier(w.Link.Up); err == nil {
		err = conn.Start(ports[:w.Queues])
	}
	code, reason := session.CodeFailed, "starting failed"
	if err == nil {
		h.cfg.Log.Info("session established", "iounit", addr, "name", w.Name, "session", w.Session,
			"mac", w.MAC, "mtu", w.MTU, "queues", w.Queues, "link", w.Link.Up)
		code, reason, err = h.wait(ctx, c, conn)
	}
	// The carrier first: nothing else is as urgent.
	err = errors.Join(err, h.disconnected())
	return true, errors.Join(err, c.Bye(code, reason))
}

// wait waits for the end of the session and returns the reason, and what to
// tell the I/O unit.
func (h *Host) wait(ctx context.Context, c *session.Client, conn *messaging.Conn) (code session.Code, reason string, err error) {
	select {
	case <-ctx.Done():
		return session.CodeShuttingDown, "the host is shutting down", ctx.Err()
	case <-c.Done():
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

// configure gives the netdevice what the I/O unit granted.
func (h *Host) configure(w *session.Welcome) error {
	d := h.cfg.Netdev
	if err := d.SetMAC(net.HardwareAddr(w.MAC[:])); err != nil {
		return h.netdevice(err)
	}
	if err := d.SetMTU(w.MTU); err != nil {
		return h.netdevice(err)
	}
	o, err := d.SetOffloads(w.Offloads)
	if err != nil {
		return h.netdevice(err)
	}
	if err := d.SetActive(w.Queues); err != nil {
		return h.netdevice(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mac, h.mtu, h.offloads = w.MAC, w.MTU, o
	return nil
}

// errEnded is why a request is not carried out when its session has ended.
var errEnded = errors.New("the session has ended")

// onRequest answers the I/O unit's configuration requests.
func (h *Host) onRequest(conn *messaging.Conn, t protocol.CfgType, data []byte) (protocol.CfgStatus, []byte) {
	apply := func(what string, decodeErr error, apply func() error) (protocol.CfgStatus, []byte) {
		if decodeErr != nil {
			return protocol.CfgInvalid, nil
		}
		h.changing.Lock()
		defer h.changing.Unlock()
		err := errEnded
		if h.current(conn) {
			err = apply()
		}
		if err != nil {
			h.cfg.Log.Error("the I/O unit's configuration could not be applied", "what", what, "error", err)
			return protocol.CfgFailed, nil
		}
		return protocol.CfgOK, data
	}
	switch t {
	case protocol.CfgLinkState:
		l, err := protocol.DecodeLinkState(data)
		return apply("link state", err, func() error {
			h.cfg.Log.Info("link state", "up", l.Up, "mbit_s", l.Speed)
			h.mu.Lock()
			h.welcome.Link = session.Link{Up: l.Up, SpeedMbps: l.Speed}
			h.mu.Unlock()
			return h.setCarrier(l.Up)
		})
	case protocol.CfgMTU:
		mtu, err := protocol.DecodeMTU(data)
		return apply("MTU", err, func() error {
			mtu = min(mtu, h.cfg.MaxMTU)
			if err := h.cfg.Netdev.SetMTU(mtu); err != nil {
				return err
			}
			conn.SetMTU(mtu)
			h.mu.Lock()
			h.mtu = mtu
			h.mu.Unlock()
			h.cfg.Log.Info("MTU", "mtu", mtu)
			return nil
		})
	case protocol.CfgMAC:
		mac, err := protocol.DecodeMAC(data)
		return apply("MAC address", err, func() error {
			if err := h.cfg.Netdev.SetMAC(net.HardwareAddr(mac[:])); err != nil {
				return err
			}
			h.mu.Lock()
			h.mac = mac
			h.mu.Unlock()
			return nil
		})
	default:
		return protocol.CfgUnsupported, nil
	}
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

func (h *Host) connected(c *session.Client, w *session.Welcome, conn *messaging.Conn, addr string) {
	h.mu.Lock()
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

// disconnected forgets the session and takes the carrier.
func (h *Host) disconnected() error {
	h.mu.Lock()
	h.state, h.since, h.conn = Connecting, time.Now(), nil
	h.mu.Unlock()
	h.changing.Lock()
	err := h.setCarrier(false)
	h.changing.Unlock()
	h.cfg.OnState(Connecting)
	return err
}
