package tap

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// Open makes a TAP device that speaks virtio_net_hdr. It is down and has no
// carrier. But for Config.Persist it never takes over a device that exists: the
// error then wraps ErrExists.
func Open(cfg Config) (*Device, error) {
	return open(cfg, false)
}

// OpenPlain makes a TAP device that knows no virtio_net_hdr: the kernel
// finishes every checksum and cuts every super-frame before a queue sees it.
// Its queues put an empty header before the frames they read and refuse, with
// unix.EINVAL, frames whose header asks for anything. Config.Offloads is
// ignored.
func OpenPlain(cfg Config) (*Device, error) {
	cfg.Offloads = 0
	return open(cfg, true)
}

func open(cfg Config, plain bool) (*Device, error) {
	fail := func(err error) (*Device, error) {
		return nil, fmt.Errorf("opening TAP device %q: %w", cfg.Name, err)
	}
	if err := cfg.complete(); err != nil {
		return fail(err)
	}
	d := &opening{Device: &Device{plain: plain}, cfg: cfg}
	err := netns.Do(cfg.NetNS, func() error {
		outlast(cfg)
		if cfg.Persist {
			if there, err := d.reattach(); there || err != nil {
				return err
			}
		}
		if plain {
			return d.attachPlain()
		}
		return d.attach()
	})
	switch {
	case err != nil:
	case d.taken:
		err = d.resume()
	default:
		err = d.configure()
	}
	if err == nil {
		// Last: what fails before leaves nothing behind.
		err = d.setPersist()
	}
	if err != nil {
		return fail(errors.Join(err, d.Close()))
	}
	d.useRings()
	d.discards = discard.StatusOf(d.discardEarly()) // a kernel that cannot do it is no error
	return d.Device, nil
}

// configure gives the fresh device its attributes.
func (d *opening) configure() error {
	err := d.netlink(fmt.Sprintf("setting the queue length to %d", d.cfg.TxQueueLen),
		func(h *netlink.Handle, l netlink.Link) error {
			d.index = l.Attrs().Index
			return h.LinkSetTxQLen(l, d.cfg.TxQueueLen)
		})
	if err != nil {
		return err
	}
	if d.cfg.MAC != nil {
		if err := d.SetMAC(d.cfg.MAC); err != nil {
			return err
		}
	}
	if d.cfg.MTU != 0 {
		if err := d.SetMTU(d.cfg.MTU); err != nil {
			return err
		}
	}
	if !d.plain {
		if err := d.SetGSOMaxSize(vnet.GSOMaxSize); err != nil {
			return err
		}
	}
	if err := d.SetSpeed(0); err != nil {
		return err
	}
	return d.setLabel(Label{Name: d.name, Since: time.Now().Truncate(time.Second), TxQueueLen: d.cfg.TxQueueLen})
}

// lingerTime is how long the device of a process that was killed may outlive
// it, and a persistent one may be in use: the kernel frees its rings, which hold
// the queues open, in its own time, some ten milliseconds on a machine that has
// nothing else to do.
const lingerTime = time.Second

// outlast waits for a device of that name to vanish if it is one that vanishes
// with its process, or to be free if it is a persistent one that is wanted, if
// that comes about soon.
func outlast(cfg Config) {
	for start := time.Now(); time.Since(start) < lingerTime; time.Sleep(5 * time.Millisecond) {
		link, err := netlink.LinkByName(cfg.Name)
		t, ok := link.(*netlink.Tuntap)
		if err != nil || !ok {
			return
		}
		if inUse := t.Queues+t.DisabledQueues > 0; !t.NonPersist && (!cfg.Persist || !inUse) {
			return
		}
	}
}
