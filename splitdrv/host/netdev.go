package host

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/limit"
	"github.com/splitnic/splitnic/internal/wake"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// The limit for changes of the netdevice by one I/O unit: at once, and per second in the
// long run. Each change holds the kernel's RTNL lock for a while. An honest I/O unit sends a
// request only after a change of its network card, and not before the last one was answered.
const (
	requestBurst = 32
	requestRate  = 10
)

// netdev is the netdevice and its state. Its follower (follow.go), the I/O unit's requests
// (peerrequests.go), and sessions that begin and end change it.
type netdev struct {
	Netdevice
	cfg      *Config
	sessions *sessions
	wake     chan struct{}         // wakes the follower; capacity one
	raised   chan struct{}         // signaled when the netdevice gets a carrier; capacity one
	changes  changes               // notified when shown or the session in use changes
	settled  func(*messaging.Conn) // called when no request is due in a session
	saved    mirror.Agreement      // last value for OnAgreement; only the follower uses it
	// Limits of log lines and of changes that I/O units cause. They are counted by the I/O
	// unit's key, or by its address if it has none.
	lines        limit.Log
	peerRequests *limit.Keyed

	// mu is held while the netdevice is changed. So a request that is still being handled
	// when the session ends cannot set the carrier again. It guards the fields below, and
	// some of attachment.
	mu     sync.Mutex
	mirror mirror.Mirror
	speed  *uint32 // speed that the netdevice shows, in Mbit/s; nil: unknown
	is     condition

	shown atomic.Pointer[condition] // a copy of is, to be read without mu
}

// condition is the state of the netdevice that other parts read.
type condition struct {
	agreed    mirror.Agreement
	applied   mirror.Applied
	rejection *mirror.Rejection // last rejection; nil if there was none
	carrier   bool
	offloads  vnet.Offloads
	latency   steer.Status // for the session in use
	// noLatency is the kernel's error if it refused steering, so that sessions have no
	// latency channel.
	noLatency error
}

func newNetdev(cfg *Config, s *sessions) *netdev {
	d := &netdev{
		Netdevice: cfg.Netdev, cfg: cfg, sessions: s,
		wake: make(chan struct{}, 1), raised: make(chan struct{}, 1), peerRequests: limit.NewKeyed(requestRate),
	}
	d.is.carrier = cfg.History.Carrier
	d.show()
	return d
}

// show publishes the condition. The caller holds mu.
func (d *netdev) show() {
	d.is.agreed, d.is.applied, d.is.rejection = d.mirror.Agreement(), d.mirror.Applied(), d.mirror.LastRejection()
	is := d.is
	d.shown.Store(&is)
	d.changes.tell()
}

// unlock publishes the condition and unlocks mu, after a change of the netdevice.
func (d *netdev) unlock() {
	d.show()
	d.mu.Unlock()
}

// decide reads the state of the netdevice, lets how decide on changes, and applies them. The
// caller holds mu.
func (d *netdev) decide(how func(*tap.State) mirror.Changes) error {
	state, err := d.State()
	if err != nil {
		return d.gone(err)
	}
	return d.apply(how(&state))
}

// begin reads the state that the netdevice has before any change.
func (d *netdev) begin() error {
	d.mu.Lock()
	defer d.unlock()
	return d.decide(func(state *tap.State) (none mirror.Changes) {
		cfg := mirror.Config{MAC: d.cfg.MAC, MaxMTU: d.cfg.MaxMTU}
		d.mirror = mirror.New(cfg, state, d.cfg.History.Agreement)
		return none
	})
}

// open stops the follower's requests until a session is established or has failed, and
// returns the MAC address for the hello.
func (d *netdev) open() (mac protocol.MAC, err error) {
	d.mu.Lock()
	defer d.unlock()
	err = d.decide(func(state *tap.State) (c mirror.Changes) {
		mac, c = d.mirror.Open(state, time.Now())
		return c
	})
	return mac, err
}

// setPhase sets the phase of the mirror, and wakes the follower.
func (d *netdev) setPhase(p mirror.Phase) {
	d.mu.Lock()
	d.mirror.SetPhase(p)
	d.unlock()
	d.changed()
}

func (d *netdev) changed() { wake.Up(d.wake) }

// giveUpMAC gives up the administrator's MAC address if err can mean that the I/O unit
// refuses it. It reports whether it has, so that the caller tries again.
func (d *netdev) giveUpMAC(err error) (again bool) {
	if refused, ok := errors.AsType[*session.RefusedError](err); !ok || refused.Code != session.CodePolicy {
		return false
	}
	d.mu.Lock()
	defer d.unlock()
	failed := d.decide(func(state *tap.State) (c mirror.Changes) {
		if again, c = d.mirror.GiveUpMAC(state, err.Error(), time.Now()); again && c.Rejected == nil {
			d.cfg.Log.Warn("the netdevice cannot keep its MAC address", "mac", d.mirror.Agreement().MAC, "error", err)
		}
		return c
	})
	if failed != nil {
		d.cfg.Log.Warn("the netdevice cannot be set back", "what", protocol.CfgMAC, "error", failed)
	}
	return again
}

// configure applies the settings that the I/O unit has granted. The caller holds mu.
func (d *netdev) configure(w *session.Welcome) error {
	err := d.decide(func(state *tap.State) mirror.Changes {
		return d.mirror.Grant(state, w.MAC, w.MTU, time.Now())
	})
	if err != nil {
		return err
	}
	if d.is.offloads, err = d.SetOffloads(w.Offloads); err != nil {
		return d.gone(err)
	}
	if err := d.SetActive(w.Queues); err != nil {
		return d.gone(err)
	}
	err = d.steer(w)
	d.show()
	return d.gone(err)
}

// apply applies changes to the netdevice, also after one of them has failed. The reason is
// published before the netdevice changes. The caller holds mu.
func (d *netdev) apply(c mirror.Changes) (failed error) {
	d.show()
	if r := c.Rejected; r != nil {
		d.cfg.Log.Warn("the netdevice cannot have what it was set to", "what", r.What, "wanted", r.Wanted, "reason", r.Reason)
	}
	try := func(due bool, change func() error) {
		if !due {
			return
		}
		if err := change(); failed == nil {
			failed = err
		}
	}
	try(c.MAC != protocol.MAC{}, func() error { return d.SetMAC(net.HardwareAddr(c.MAC[:])) })
	try(c.MTU != 0, func() error { return d.SetMTU(c.MTU) })
	try(c.PromiscOff, func() error { return d.SetPromisc(false) })
	try(c.AllMultiOff, func() error { return d.SetAllMulti(false) })
	return d.gone(failed)
}

// gone wraps ErrNetdeviceGone around err, the error of an operation on the netdevice, if it
// means that the netdevice no longer exists.
func (d *netdev) gone(err error) error {
	// The errors of netlink and of ioctl.
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EBADFD) {
		return fmt.Errorf("%s: %w: %w", d.Name(), ErrNetdeviceGone, err)
	}
	return err
}

// setLink sets the speed and the carrier of the netdevice to those of the I/O unit's link.
// The speed is set first, because bonds read it when the carrier appears. A failure to set
// it is ignored: only people and bonds use it. The caller holds mu.
func (d *netdev) setLink(l session.Link) error {
	if d.speed == nil || *d.speed != l.SpeedMbps {
		d.speed = &l.SpeedMbps
		if err := d.SetSpeed(int(l.SpeedMbps)); err != nil {
			d.speed = nil
			d.cfg.Log.Debug("the netdevice does not show the link's speed", "error", err)
		}
	}
	return d.setCarrier(l.Up)
}

// setCarrier sets or removes the carrier of the netdevice. The caller holds mu.
func (d *netdev) setCarrier(up bool) error {
	if err := d.SetCarrier(up); err != nil {
		return d.gone(err)
	}
	d.is.carrier = up
	if up {
		wake.Up(d.raised)
	}
	return nil
}

// dropOldCarrier removes the carrier that the netdevice has from a previous process.
func (d *netdev) dropOldCarrier() error {
	d.mu.Lock()
	defer d.unlock()
	if !d.is.carrier {
		return nil
	}
	return d.setCarrier(false)
}

// disconnected removes the carrier, unless the netdevice is handed over to another process.
func (d *netdev) disconnected(handsOver bool) error {
	d.mu.Lock()
	defer d.unlock()
	d.mirror.SetPhase(mirror.NoSession)
	if handsOver {
		return nil
	}
	return d.setLink(session.Link{})
}

// wantsLatency reports whether to request a latency channel.
func (d *netdev) wantsLatency() bool {
	return d.cfg.Latency != nil && d.shown.Load().noLatency == nil
}

// steer steers latency-sensitive frames to the last queue, if the session has a latency
// channel. If the kernel refuses, the next session has none. The caller holds mu.
func (d *netdev) steer(w *session.Welcome) error {
	if d.cfg.Latency == nil {
		return nil
	}
	is := &d.is
	s := &is.latency
	*s = steer.Status{Classes: *d.cfg.Latency}
	steerer := d.cfg.Netdev.(Steerer) // checkLatency has checked it
	if !w.Grants(protocol.FeatureLatencyQueue) {
		if s.Reason = "the I/O unit has no channel for it"; is.noLatency != nil {
			s.Reason = is.noLatency.Error()
		}
		return steerer.Steer(nil)
	}
	rule := steer.Rule{Classes: *d.cfg.Latency, Queues: w.Queues, Limit: messaging.LatencyLimit(d.cfg.MaxMTU)}
	err := steerer.Steer(&rule)
	if errors.Is(err, steer.ErrUnavailable) {
		d.cfg.Log.Warn("no latency queue from now on", "error", err)
		is.noLatency, s.Reason = err, err.Error()
	}
	s.On, s.Limit = err == nil, rule.Limit
	return err
}

// changes notifies any number of waiting goroutines.
type changes struct {
	mu sync.Mutex
	c  chan struct{} // nil: no goroutine waits
}

func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		c.c = make(chan struct{})
	}
	return c.c
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c != nil {
		close(c.c)
		c.c = nil
	}
}
