package direct

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/direct/internal/paths"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// Session is a session of the host with an I/O unit.
type Session struct {
	Directs   bool // the I/O unit directs connections
	Encrypted bool
	// Send sends a message about direct connections. It fails if the I/O unit directs none.
	Send func(*session.Direct) error
	// Platform is the identifier of this host, which the I/O unit knows. StillTrusted returns until
	// when the I/O unit is trusted, also after the session; zero: no end is known.
	Platform     protocol.Platform
	StillTrusted func() (until time.Time, err error)
	// Conn has the channels. It and the MTU are set before the session is in use.
	Conn *messaging.Conn
	MTU  int
}

// Config is the configuration of Connections.
type Config struct {
	Settings
	Ports       []messaging.Port                     // queues of the netdevice
	Messaging   func(protocol.Mode) messaging.Config // template for the channels
	Encrypt     bool                                 // connections must be encrypted
	Ciphers     []seal.Cipher                        // that connections may be encrypted with
	PeerTimeout time.Duration                        // of the sessions
	Security    *session.Security
	Captures    *capture.Point
	Background  func(func()) // runs what nobody waits for
	KeyLog      *seal.KeyLog // gets the secrets of encrypted connections; may be nil
	Log         *slog.Logger
}

// Settings are those of a user. Zero fields get their defaults.
type Settings struct {
	On    bool
	Peers int // most connections; default 64. One more replaces the one unused for longest
	// Idle is the time without a frame after which a connection ends; default 1 min.
	Idle time.Duration
	// Grace is for how long connections continue without a session, and without the
	// permission of another I/O unit; default 2 s.
	Grace time.Duration
	// Answer is the time-out for the peer's answer over a new direct connection, and for its
	// receipt of this side's markers. Five times as long is the time-out for the preceding
	// steps, which the I/O unit directs. Default Config.PeerTimeout, at least 1 s.
	Answer time.Duration
	// Drain is the longest time that an end in good order waits until all frames that were
	// sent have arrived; it waits five times as long until the peer has delivered them.
	// Default 50 ms. Frames to the peer wait in the meantime, and so may frames behind them.
	Drain time.Duration
	// Budget, which may be nil, limits the total registered memory of all direct
	// connections.
	Budget *messaging.Budget
}

func (c *Config) complete() {
	c.Peers = cmp.Or(c.Peers, 64)
	c.Idle = cmp.Or(c.Idle, time.Minute)
	c.Grace = cmp.Or(c.Grace, 2*time.Second)
	c.Answer = cmp.Or(c.Answer, max(time.Second, c.PeerTimeout))
	c.Drain = cmp.Or(c.Drain, 50*time.Millisecond)
}

// shared is the state that all direct connections of a host share. Any goroutine may
// use it.
type shared struct {
	cfg     *Config
	split   *paths.Split   // nil: direct connections are disabled
	running sync.WaitGroup // goroutines of connections

	mu      sync.Mutex // guards the fields below
	session *Session   // session in use; nil: none
	settled bool       // its I/O unit has the settings of the netdevice
}

// inUse returns the session in use, or nil, and whether it is settled.
func (d *shared) inUse() (a *Session, settled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.settled
}
