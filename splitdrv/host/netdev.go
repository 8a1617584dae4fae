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
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// How often one I/O unit changes the netdevice: at once, and in a second in the
// long run. Each change holds the kernel's lock of all netdevices for a while; an
// honest I/O unit says what has changed on its network card, and says it again only
// when this has been answered.
const (
	requestBurst = 32
	requestRate  = 10
)

// netdev is the netdevice, and what has been done with it: by its follower (follow.go),
// by I/O units' requests (peerrequests.go) and by sessions that begin and end.
type netdev struct {
	Netdevice
	cfg      *Config
	sessions *sessions
	wake     chan struct{}         // of the follower; of capacity one
	raised   chan struct{}         // the carrier was given; of capacity one
	changes  changes               // of what shown has, and of the session in use
	settled  func(*messaging.Conn) // called when nothing is to be asked in a session
	saved    mirror.Agreement      // what OnAgreement was told last; the follower's
	// What I/O units cause: lines in the log, and changes by their requests, which
	// are counted by their keys, or by address where there are none.
	lines        limit.Log
	peerRequests *limit.Keyed

	// mu is held while the netdevice is changed, so that no request that is still
	// being answered when the session ends can give the carrier back. It guards what
	// follows, and what attachments say that it does.
	mu     sync.Mutex
	mirror mirror.Mirror
	speed  *uint32 // that it shows, in Mbit/s; nil is what nobody knows
	is     condition

	shown atomic.Pointer[condition] // a copy, for those who do not wait for the kernel
}

// condition is what others want to know of the netdevice.
type condition struct {
	agreed    mirror.Agreement
	applied   mirror.Applied
	rejection *mirror.Rejection // the last one; nil if there was none
	carrier   bool
	offloads  vnet.Offloads
	latency   steer.Status // of the present session
	// noLatency is why the kernel refused to steer, and sessions do without a
	// latency queue.
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

// show makes the present condition known. The caller holds mu.
func (d *netdev) show() {
	d.is.agreed, d.is.applied, d.is.rejection = d.mirror.Agreement(), d.mirror.Applied(), d.mirror.LastRejection()
	is := d.is
	d.shown.Store(&is)
	d.changes.tell()
}

// unlock ends a change of the netdevice.
func (d *netdev) unlock() {
	d.show()
	d.mu.Unlock()
}

// decide has changes decided by what the netdevice is now, and carries them out. The
// caller holds mu.
func (d *netdev) decide(how func(*tap.State) mirror.Changes) error {
	state, err := d.State()
	if err != nil {
		return d.gone(err)
	}
	return d.apply(how(&state))
}

// begin notes what the netdevice has before anybody changes it.
func (d *netdev) begin() error {
	d.mu.Lock()
	defer d.unlock()
	return d.decide(func(state *tap.State) (none mirror.Changes) {
		cfg := mirror.Config{MAC: d.cfg.MAC, MaxMTU: d.cfg.MaxMTU}
		d.mirror = mirror.New(cfg, state, d.cfg.History.Agreement)
		return none
	})
}

// open keeps the follower away until a session is established, or has come to
// nothing, and returns the MAC address to ask for.
func (d *netdev) open() (mac protocol.MAC, err error) {
	d.mu.Lock()
	defer d.unlock()
	err = d.decide(func(state *tap.State) (c mirror.Changes) {
		mac, c = d.mirror.Open(state, time.Now())
		return c
	})
	return mac, err
}

// setPhase says whose the administrator's changes are, and lets the follower go on.
func (d *netdev) setPhase(p mirror.Phase) {
	d.mu.Lock()
	d.mirror.SetPhase(p)
	d.unlock()
	d.changed()
}

// changed wakes the follower.
func (d *netdev) changed() { signal(d.wake) }

// giveUpMAC gives up a MAC address that the I/O unit may have refused, and reports
// whether it did.
func (d *netdev) giveUpMAC(err error) (again bool) {
	var refused *session.RefusedError
	if !errors.As(err, &refused) || refused.Code != session.CodePolicy {
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

// configure gives the netdevice what the I/O unit granted. The caller holds mu.
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

// apply carries out changes, those too that come after one that fails. Why is known
// before the netdevice is seen to change. The caller holds mu.
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

// gone says so if err, of a change to the netdevice, means that there is none any
// more.
func (d *netdev) gone(err error) error {
	// By netlink and by ioctl.
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EBADFD) {
		return fmt.Errorf("%s: %w: %w", d.Name(), ErrNetdeviceGone, err)
	}
	return err
}

// setLink gives the netdevice the speed and the carrier of the I/O unit's link.
// The speed comes first: bonds look at it when the carrier comes. It is for
// people and for bonds only, and without it frames move all the same. The caller
// holds mu.
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

// setCarrier gives the netdevice its carrier or takes it away. The caller holds mu.
func (d *netdev) setCarrier(up bool) error {
	if err := d.SetCarrier(up); err != nil {
		return d.gone(err)
	}
	d.is.carrier = up
	if up {
		signal(d.raised)
	}
	return nil
}

// dropOldCarrier takes the carrier that the netdevice has from before.
func (d *netdev) dropOldCarrier() error {
	d.mu.Lock()
	defer d.unlock()
	if !d.is.carrier {
		return nil
	}
	return d.setCarrier(false)
}

// disconnected takes the carrier, unless another process goes on with it.
func (d *netdev) disconnected(handsOver bool) error {
	d.mu.Lock()
	defer d.unlock()
	d.mirror.SetPhase(mirror.NoSession)
	if handsOver {
		return nil
	}
	return d.setLink(session.Link{})
}

// wantsLatency reports whether to ask for a latency channel.
func (d *netdev) wantsLatency() bool {
	return d.cfg.Latency != nil && d.shown.Load().noLatency == nil
}

// steer puts latency-sensitive frames where the session has a channel for them.
// When the kernel refuses, the next session does without. The caller holds mu.
func (d *netdev) steer(w *session.Welcome) error {
	if d.cfg.Latency == nil {
		return nil
	}
	is := &d.is
	s := &is.latency
	*s = steer.Status{Classes: *d.cfg.Latency}
	steerer := d.cfg.Netdev.(Steerer) // checkLatency has seen it
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
