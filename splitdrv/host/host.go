package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/pace"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
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
	// netdevice's are wanted), MTU, PeerPools, LatencyQueue, LatencyPools,
	// Invalidation, OneTouch, OnRequest and Pace are set here.
	Messaging messaging.Config
	// HandshakeTimeout is as in session.ClientConfig.
	HandshakeTimeout time.Duration
	// RetryMin and RetryMax bound the pause after all I/O units failed, which
	// doubles each time until a session has lasted RetryMax, but not while they
	// seem to be restarting; default 100 ms and 5 s. Rand, for its jitter, returns
	// a number below n; default that of math/rand.
	RetryMin, RetryMax time.Duration
	Rand               func(n int64) int64
	// Patience is how long an I/O unit that has not been found dead has for each of
	// its answers until another one is tried as well, at least; there are defaults.
	Patience time.Duration
	// FailBack is how long an I/O unit that is preferred to the present one has
	// to be reachable before the host goes back to it; 0: never.
	FailBack time.Duration
	// Standby keeps a second session ready, with the I/O unit that would be next.
	Standby bool
	// History is what was with the netdevice before. With KeepCarrier it goes to
	// another process when Run's context is done, and keeps its carrier.
	// OnAgreement is told what that process has to know; may be nil.
	History     History
	KeepCarrier bool
	OnAgreement func(mirror.Agreement)
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
	if h.cfg.Device.Limits().Windows { // then it can invalidate those of others
		words = append(words, protocol.FeatureWindow)
	}
	return append(words, protocol.FeatureOneTouch, protocol.FeatureBind, protocol.FeatureRenew)
}

// ErrNetdeviceGone is wrapped by Run's error when somebody has deleted the
// netdevice. A new process makes a new one.
var ErrNetdeviceGone = errors.New("the netdevice was deleted; start this again to make a new one")

// Host is a running host. It has many methods, because it is what carries out the
// decisions of mirror and uplink, on several goroutines: connect's, which has the session in
// use (connect.go, serve.go, switchover.go), the follower's (follow.go), and those of the
// background goroutines (standby.go, renew.go). What they share is guarded by dev.mu and mu.
type Host struct {
	cfg        Config
	units      uplink.Candidates
	protection messaging.Protecting // of the memory that it lends, in modes that do
	dev        *netdev
	switching  switching
	retired    retirees
	background sync.WaitGroup // of what goes on beside a session in use
	// What I/O units cause: lines in the log, and changes by their requests, which
	// are counted by their keys, or by address where there are none.
	lines        pace.Pace
	peerRequests *pace.Keyed[string]

	mu        sync.Mutex // guards what follows; taken after dev.mu
	session   current
	handling  handling
	standby   standby
	failovers failovers
	tally     tally
}

// current is the session in use.
type current struct {
	state   State
	since   time.Time
	unit    int    // index of the I/O unit in use, or used last
	addr    string // of the I/O unit in use, or tried last
	peer    session.Identity
	welcome session.Welcome
	conn    *messaging.Conn // nil: there is none
}

// handling is which handlers sessions have, the one in use included.
type handling struct {
	messaging.Handling
	changes int
}

// tally is what has happened since the start.
type tally struct {
	sessions int
	attempts int // failed or ended
	lastErr  error
	warned   map[int]failure   // why there is no session with an I/O unit, as logged
	ended    map[string]uint64 // sessions that might not go on, by reason
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
	if cfg.Rand == nil {
		cfg.Rand = rand.Int64N
	}
	if cfg.OnState == nil {
		cfg.OnState = func(State) {}
	}
	if cfg.OnAgreement == nil {
		cfg.OnAgreement = func(mirror.Agreement) {}
	}
	if err := cfg.checkLatency(); err != nil {
		return nil, err
	}
	protection, err := messaging.ProtectionOn(cfg.Messaging.Protection, cfg.Device.Limits())
	if err != nil {
		return nil, fmt.Errorf("host: device %s: %w", cfg.Device.Name(), err)
	}
	h := &Host{
		cfg: cfg, units: cfg.IOUnits, protection: protection, dev: newNetdev(&cfg),
		peerRequests: pace.NewKeyed[string](requestRate),
		switching:    switching{requests: make(chan *switchRequest), over: make(chan struct{})},
		session:      current{state: Connecting, since: time.Now()},
		tally:        tally{warned: make(map[int]failure)},
	}
	for range cfg.IOUnits {
		h.switching.preparing = append(h.switching.preparing, make(chan struct{}, 1))
	}
	for _, m := range cfg.Modes {
		if err := h.cfg.messaging(m).Check(); err != nil {
			return nil, fmt.Errorf("host: %w", err)
		}
	}
	h.handling.Handling = h.cfg.initialHandling()
	return h, nil
}

// Run connects to the I/O units in turn and keeps the netdevice working until
// ctx is done, when it returns nil. It returns an error at once if no session
// has ever come about and every I/O unit refuses for a reason that waiting
// does not help, such as a key that is not trusted, or this process may not
// lock the memory that it takes.
func (h *Host) Run(ctx context.Context) error {
	if err := h.dev.begin(mirror.Config{MAC: h.cfg.MAC, MaxMTU: h.cfg.MaxMTU}, h.cfg.History.Agreement); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	workers.Go(func() {
		if err := h.dev.watch(ctx); err != nil {
			cancel(err)
		}
	})
	workers.Go(func() { h.follow(ctx) })
	workers.Go(func() { h.dev.solicit(ctx) })
	err := h.connect(ctx)
	h.background.Wait()
	h.retired.wait()
	if gone := context.Cause(ctx); errors.Is(gone, ErrNetdeviceGone) {
		err = gone
	}
	cancel(nil)
	workers.Wait()
	h.saveAgreement()
	return err
}

// messaging is the configuration of a session's channels in that mode.
func (c *Config) messaging(mode protocol.Mode) messaging.Config {
	m := c.Messaging
	m.Device, m.Mode = c.Device, mode
	if m.Pools == nil {
		m.Pools = messaging.DefaultPools(mode, c.MaxMTU)
	}
	m.LatencyPools = messaging.LatencyPools(mode, c.MaxMTU)
	if mode.Sends() {
		m.MaxPools = 0 // one: there is no other choice
	}
	return m
}

// lends is the number of pools for the hello: the most of all modes.
func (c *Config) lends() int {
	most := 0
	for _, m := range c.Modes {
		most = max(most, c.messaging(m).Lends())
	}
	return most
}

// conn is that of the established session; nil if there is none.
func (h *Host) conn() *messaging.Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.session.conn
}
