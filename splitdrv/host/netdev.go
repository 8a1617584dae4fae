package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host/mirror"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// watchRetry is the pause after the netdevice could not be watched.
const watchRetry = time.Second

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

// netdev is the netdevice, and what has been done with it.
type netdev struct {
	Netdevice
	log    *slog.Logger
	wake   chan struct{}    // of the follower; of capacity one
	raised chan struct{}    // the carrier was given; of capacity one
	saved  mirror.Agreement // what OnAgreement was told last; the follower's

	// mu is held while the netdevice is changed, so that no request that is still
	// being answered when the session ends can give the carrier back. It guards what
	// follows, and is taken before Host.mu.
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

func newNetdev(cfg *Config) *netdev {
	d := &netdev{Netdevice: cfg.Netdev, log: cfg.Log, wake: make(chan struct{}, 1), raised: make(chan struct{}, 1)}
	d.is.carrier = cfg.History.Carrier
	d.show()
	return d
}

// show makes the present condition known. The caller holds mu.
func (d *netdev) show() {
	d.is.agreed, d.is.applied, d.is.rejection = d.mirror.Agreement(), d.mirror.Applied(), d.mirror.LastRejection()
	is := d.is
	d.shown.Store(&is)
}

// unlock ends a change of the netdevice.
func (d *netdev) unlock() {
	d.show()
	d.mu.Unlock()
}

// begin notes what the netdevice has before anybody changes it.
func (d *netdev) begin(cfg mirror.Config, earlier *mirror.Agreement) error {
	d.mu.Lock()
	defer d.unlock()
	state, err := d.State()
	if err != nil {
		return d.gone(err)
	}
	d.mirror = mirror.New(cfg, &state, earlier)
	return nil
}

// open keeps the follower away until a session is established, or has come to
// nothing, and returns the MAC address to ask for.
func (d *netdev) open() (protocol.MAC, error) {
	d.mu.Lock()
	defer d.unlock()
	state, err := d.State()
	if err != nil {
		return protocol.MAC{}, d.gone(err)
	}
	mac, changes := d.mirror.Open(&state, time.Now())
	return mac, d.apply(changes)
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

// signal is for channels of capacity one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// giveUpMAC gives up a MAC address that the I/O unit may have refused, and reports
// whether it did.
func (d *netdev) giveUpMAC(err error) bool {
	var refused *session.RefusedError
	if !errors.As(err, &refused) || refused.Code != session.CodePolicy {
		return false
	}
	d.mu.Lock()
	defer d.unlock()
	state, stateErr := d.State()
	if stateErr != nil {
		return false
	}
	again, changes := d.mirror.GiveUpMAC(&state, err.Error(), time.Now())
	if again && changes.Rejected == nil {
		d.log.Warn("the netdevice cannot keep its MAC address", "mac", d.mirror.Agreement().MAC, "reason", err)
	}
	if err := d.apply(changes); err != nil {
		d.log.Warn("the netdevice cannot be set back", "what", protocol.CfgMAC, "reason", err)
	}
	return again
}

// apply carries out changes, those too that come after one that fails. Why is known
// before the netdevice is seen to change. The caller holds mu.
func (d *netdev) apply(c mirror.Changes) (failed error) {
	d.show()
	if r := c.Rejected; r != nil {
		d.log.Warn("the netdevice cannot have what it was set to", "what", r.What, "wanted", r.Wanted, "reason", r.Reason)
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
			d.log.Debug("the netdevice does not show the link's speed", "reason", err)
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

// watch wakes the follower at changes to the netdevice until ctx is done, or
// somebody deletes it, which is the error.
func (d *netdev) watch(ctx context.Context) error {
	failing := "" // why, as logged
	for {
		err := d.Watch(ctx, func(tap.State) {
			if failing != "" {
				d.log.Info("the netdevice's settings are followed again")
				failing = ""
			}
			d.changed()
		})
		if ctx.Err() != nil {
			return nil
		}
		if err := d.gone(err); errors.Is(err, ErrNetdeviceGone) {
			return err
		}
		level := slog.LevelDebug
		if why := err.Error(); why != failing {
			level, failing = slog.LevelWarn, why // once: it may last
		}
		d.log.Log(ctx, level, "the netdevice's settings are not followed", "reason", err)
		select {
		case <-time.After(watchRetry):
		case <-ctx.Done():
			return nil
		}
	}
}

// solicit has the operating system ask for its neighbours each time that the
// carrier has been given, until ctx is done.
func (d *netdev) solicit(ctx context.Context) {
	for {
		select {
		case <-d.raised:
		case <-ctx.Done():
			return
		}
		for d.solicitOnce(ctx) {
		}
	}
}

// solicitOnce does that for one time, and reports whether the carrier has been
// given again meanwhile. A failure costs a second at most, after which the
// operating system asks by itself.
func (d *netdev) solicitOnce(ctx context.Context) (again bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- d.Solicit(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-d.raised:
		again = true
		cancel()
		err = <-done
	}
	if err != nil {
		d.log.Debug("the netdevice's neighbours are not asked for at once", "reason", err)
	}
	return again
}
