package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/capture"
	"github.com/splitnic/splitnic/splitdrv/device"
	"github.com/splitnic/splitnic/splitdrv/direct"
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/messaging/cq"
	"github.com/splitnic/splitnic/splitdrv/seal"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// Config is the configuration of a host. Each field is an independent setting of the caller;
// hence their number.
type Config struct {
	Name     string // name of this host, for the I/O unit's logs and status
	Software string // version, for display
	// IOUnits has addresses of I/O units, and names of SRV records with such addresses, in
	// order of preference: see package discovery. Discovery configures the DNS queries, and
	// Dialer makes the bootstrap connections.
	IOUnits   []string
	Discovery discovery.Settings
	Dialer    net.Dialer

	Security *session.Security
	Device   fabric.Device
	Netdev   Netdevice
	MAC      protocol.MAC  // requested address; zero: the I/O unit chooses
	MaxMTU   int           // largest MTU to request in bytes; default 9000
	Offloads vnet.Offloads // offloads to request
	// Latency, which may be nil, determines which frames are latency-sensitive. If the I/O
	// unit has a latency channel, only these frames use the last of the netdevice's queues,
	// of which there must be at least two. Netdev must be a Steerer then. NoLatency is the
	// reason for which Latency is nil although it was configured, for the status.
	Latency   *steer.Classes
	NoLatency error
	// Modes are the transfer modes to request, in order of preference; default
	// protocol.ModeImm.
	Modes []protocol.Mode
	// Encrypt says whether sessions are encrypted; default seal.Allowed. Ciphers are those to use,
	// in order of preference; default seal.Ciphers.
	Encrypt seal.Wish
	Ciphers []seal.Cipher
	// Messaging is the template for each session. The host sets Device, Mode, Queues (it
	// requests as many as the netdevice has), MTU, PeerPools, LatencyQueue, LatencyPools,
	// Invalidation, OneTouch, KeySend, OnRequest and Pace.
	Messaging messaging.Config
	// HandshakeTimeout is as in session.ClientConfig.
	HandshakeTimeout time.Duration
	// RetryMin and RetryMax bound the pause after all I/O units have failed. The pause
	// doubles each time, until a session has lasted RetryMax, but not while the I/O units
	// seem to be restarting; default 100 ms and 5 s. Rand returns a random number below n
	// for the jitter; default that of math/rand.
	RetryMin, RetryMax time.Duration
	Rand               func(n int64) int64
	// Patience is the least time that an I/O unit that is not known to be dead has for each
	// of its answers, before another one is tried in parallel. The defaults depend on the
	// case: see package uplink.
	Patience time.Duration
	// FailBack is for how long an I/O unit that is preferred to the one in use has to be
	// reachable before the host switches back to it; 0: never.
	FailBack time.Duration
	// Persevere makes the host continue to try even if every I/O unit refuses for a
	// permanent reason, such as a key that is not trusted, which an administrator may
	// change. It is always on with names of SRV records, which may have other addresses
	// later.
	Persevere bool
	// AskAgain is the time after which the I/O unit is asked again for frames that it
	// refused to send, such as those to other addresses; default 30 s.
	AskAgain time.Duration
	// Standby keeps a second session ready, with the next I/O unit.
	Standby bool
	// History describes the netdevice before Run. With KeepCarrier, when the context of Run
	// is done, the netdevice is handed over to another process and keeps its carrier.
	// OnAgreement, which may be nil, is called with what that process has to know.
	History     History
	KeepCarrier bool
	OnAgreement func(mirror.Agreement)
	// Direct configures direct connections to other hosts of the I/O unit.
	Direct direct.Settings
	KeyLog *seal.KeyLog // gets the secrets of encrypted sessions and direct connections; may be nil
	Log    *slog.Logger
	// OnState is called with every change of the state; may be nil.
	OnState func(State)

	captures *capture.Point // captures frames of all connections
}

// History describes what earlier processes have done with the netdevice.
type History struct {
	Since   time.Time // when it was created; zero if unknown
	Adopted int       // how many processes have taken it over, including this one
	// Carrier is true if the netdevice has a carrier. It keeps the carrier until there is a
	// session, or until every I/O unit has failed.
	Carrier   bool
	Agreement *mirror.Agreement // last value of the previous process's Config.OnAgreement; nil for none
}

// State is the state of a host's connection to an I/O unit.
type State string

// The states.
const (
	Connecting State = "connecting"
	Connected  State = "connected"
)

// complete checks the configuration and sets defaults.
func (c *Config) complete() error {
	if len(c.IOUnits) == 0 {
		return errors.New("host: no I/O unit; name at least one")
	}
	c.MaxMTU = cmp.Or(c.MaxMTU, 9000)
	if len(c.Modes) == 0 {
		c.Modes = []protocol.Mode{protocol.ModeImm}
	}
	c.RetryMin = cmp.Or(c.RetryMin, 100*time.Millisecond)
	c.RetryMax = cmp.Or(c.RetryMax, 5*time.Second)
	c.AskAgain = cmp.Or(c.AskAgain, 30*time.Second)
	if c.Rand == nil {
		c.Rand = rand.Int64N
	}
	c.Encrypt = cmp.Or(c.Encrypt, seal.Allowed)
	if c.Ciphers == nil {
		c.Ciphers = seal.Ciphers()
	}
	c.Persevere = c.Persevere || discovery.Named(c.IOUnits)
	if c.OnState == nil {
		c.OnState = func(State) {}
	}
	if c.OnAgreement == nil {
		c.OnAgreement = func(mirror.Agreement) {}
	}
	c.captures = new(capture.Point)
	return c.checkLatency()
}

// checkLatency returns an error if the netdevice cannot have a latency queue.
func (c *Config) checkLatency() error {
	if c.Latency == nil {
		return nil
	}
	if n := len(c.Netdev.Ports()); n < 2 {
		return fmt.Errorf("host: a latency queue of a netdevice with %d queues; it needs two at least", n)
	}
	if _, ok := c.Netdev.(Steerer); !ok {
		return fmt.Errorf("host: a latency queue of a netdevice that cannot steer: %T", c.Netdev)
	}
	return c.Latency.Check()
}

// messaging returns the configuration of a session's channels in a mode.
func (c *Config) messaging(mode protocol.Mode) messaging.Config {
	m := c.Messaging
	m.Device, m.Mode = c.Device, mode
	if m.Pools == nil {
		m.Pools = messaging.DefaultPools(mode, c.MaxMTU)
	}
	m.LatencyPools = messaging.LatencyPools(mode, c.MaxMTU)
	if mode.Sends() {
		m.MaxPools = 0 // default: always one
	}
	return m
}

func (c *Config) ciphers() []seal.Cipher {
	if c.Encrypt == seal.No {
		return nil
	}
	return c.Ciphers
}

// lends returns the number of pools for the hello: the largest of all modes.
func (c *Config) lends() int {
	most := 0
	for _, m := range c.Modes {
		most = max(most, c.messaging(m).Lends())
	}
	return most
}

// handling returns the configured handlers of sessions, for as many queues as the netdevice
// has.
func (c *Config) handling() cq.Handling {
	m := c.messaging(c.Modes[0])
	m.Queues, m.LatencyQueue = len(c.Netdev.Ports()), c.Latency != nil
	return m.Handling()
}

func (c *Config) backoff() uplink.Backoff {
	return uplink.Backoff{Min: c.RetryMin, Max: c.RetryMax, Rand: c.Rand}
}

// handover returns the time-out for requests to I/O units during a switch.
func (c *Config) handover() time.Duration {
	return cmp.Or(c.Messaging.PeerTimeout, time.Second)
}

// handsOver reports whether the netdevice is handed over to another process when Run ends
// because of ctx.
func (c *Config) handsOver(ctx context.Context) bool {
	return c.KeepCarrier && ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrNetdeviceGone)
}

// carried returns an error if the device cannot carry a mode.
func (c *Config) carried() error {
	if err := device.Lacks(c.Device, fabric.RC); err != nil {
		return err
	}
	for _, m := range c.Modes {
		if err := device.Carries(c.Device, m); err != nil {
			return fmt.Errorf("mode %s: %w", m, err)
		}
	}
	return nil
}
