package host

import (
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
	"github.com/splitnic/splitnic/splitdrv/host/discovery"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// Config describes a host. It has a field for each thing that a caller may settle, flat
// as callers fill it in.
type Config struct {
	Name     string // of this host, for the I/O unit's logs and status
	Software string // version, for people
	// IOUnits are addresses of I/O units, and names of SRV records that have some, in
	// order of preference: see package discovery. Discovery is how DNS is asked, and Dialer
	// makes the bootstrap connections.
	IOUnits   []string
	Discovery discovery.Settings
	Dialer    net.Dialer

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
	// Invalidation, OneTouch, KeySend, OnRequest and Pace are set here.
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
	// Persevere goes on trying also where every I/O unit refuses for a reason that waiting
	// does not help, such as a key that is not trusted: somebody may see to that. So it does
	// where DNS names I/O units, which may name others later.
	Persevere bool
	// AskAgain is how long after a refusal the I/O unit is asked again for frames that it
	// refused to send, such as those to other addresses; default 30 s.
	AskAgain time.Duration
	// Standby keeps a second session ready, with the I/O unit that would be next.
	Standby bool
	// History is what was with the netdevice before. With KeepCarrier it goes to
	// another process when Run's context is done, and keeps its carrier.
	// OnAgreement is told what that process has to know; may be nil.
	History     History
	KeepCarrier bool
	OnAgreement func(mirror.Agreement)
	// Direct is about direct connections to other hosts of the I/O unit.
	Direct Direct
	Log    *slog.Logger
	// OnState is told about every change of the connection; may be nil.
	OnState func(State)

	captures *capture.Point // of all its connections
}

// History is what the netdevice brings with it from before Run: from earlier
// processes, if there were any.
type History struct {
	Since   time.Time // when it was made; zero if nobody knows
	Adopted int       // how many processes have taken it over, this one included
	// Carrier says that it has carrier. It keeps it until there is a session, or
	// every I/O unit has been tried in vain.
	Carrier   bool
	Agreement *mirror.Agreement // what the last process told Config.OnAgreement; nil for none
}

// State says how far a host has got with its I/O unit.
type State string

// The states.
const (
	Connecting State = "connecting"
	Connected  State = "connected"
)

// complete checks a configuration and puts the defaults into it.
func (c *Config) complete() error {
	if len(c.IOUnits) == 0 {
		return errors.New("host: no I/O unit; name at least one")
	}
	if c.MaxMTU == 0 {
		c.MaxMTU = 9000
	}
	if len(c.Modes) == 0 {
		c.Modes = []protocol.Mode{protocol.ModeImm}
	}
	if c.RetryMin == 0 {
		c.RetryMin = 100 * time.Millisecond
	}
	if c.RetryMax == 0 {
		c.RetryMax = 5 * time.Second
	}
	if c.AskAgain == 0 {
		c.AskAgain = 30 * time.Second
	}
	if c.Rand == nil {
		c.Rand = rand.Int64N
	}
	c.Persevere = c.Persevere || discovery.Named(c.IOUnits)
	if c.OnState == nil {
		c.OnState = func(State) {}
	}
	if c.OnAgreement == nil {
		c.OnAgreement = func(mirror.Agreement) {}
	}
	c.Direct.complete(c.Messaging.PeerTimeout)
	c.captures = new(capture.Point)
	return c.checkLatency()
}

// checkLatency reports whether the netdevice can have a latency queue.
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

// handling is which handlers sessions have before anybody changes that, for as many
// queues as the netdevice has.
func (c *Config) handling() messaging.Handling {
	m := c.messaging(c.Modes[0])
	m.Queues, m.LatencyQueue = len(c.Netdev.Ports()), c.Latency != nil
	return m.Handling()
}

func (c *Config) backoff() uplink.Backoff {
	return uplink.Backoff{Min: c.RetryMin, Max: c.RetryMax, Rand: c.Rand}
}

// handover bounds what has to be asked of I/O units to go from one to another.
func (c *Config) handover() time.Duration {
	if t := c.Messaging.PeerTimeout; t > 0 {
		return t
	}
	return time.Second
}

// handsOver reports whether the netdevice goes to another process as it is, now that
// Run ends with ctx.
func (c *Config) handsOver(ctx context.Context) bool {
	return c.KeepCarrier && ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrNetdeviceGone)
}

// Direct is what a host does about direct connections to other hosts, which its I/O unit
// directs. Zero fields get their defaults.
type Direct struct {
	On    bool
	Peers int // at most; default 64. Where one more is offered the one goes that was not used for longest
	// Idle is after how long without a frame a connection ends; default 1 min.
	Idle time.Duration
	// Grace is for how long connections go on without a session, and until another I/O
	// unit has permitted them; default 2 s.
	Grace time.Duration
	// Answer is for the peer to answer over a new direct connection, and to have this side's
	// markers; five times as long is for all that comes before, which the I/O unit leads
	// through. Default Messaging.PeerTimeout, 1 s at least.
	Answer time.Duration
	// Drain is how long an end in good order waits at most until what was sent has arrived, and
	// five times as long until the peer has delivered it; default 50 ms. Frames to the peer
	// wait meanwhile, and so may others behind them.
	Drain time.Duration
	// Budget, which may be nil, bounds the registered memory of all direct connections
	// together.
	Budget *messaging.Budget
}

func (d *Direct) complete(peerTimeout time.Duration) {
	if d.Peers == 0 {
		d.Peers = 64
	}
	if d.Idle == 0 {
		d.Idle = time.Minute
	}
	if d.Grace == 0 {
		d.Grace = 2 * time.Second
	}
	if d.Answer == 0 {
		d.Answer = max(time.Second, peerTimeout)
	}
	if d.Drain == 0 {
		d.Drain = 50 * time.Millisecond
	}
}
