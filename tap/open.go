package tap

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/vnet"
)

// Open makes a TAP device. The device is down and has no carrier. Only with Config.Persist does
// Open take over an existing device. Otherwise the error for a name in use wraps ErrExists.
func Open(cfg Config) (*Device, error) {
	fail := func(err error) (*Device, error) {
		return nil, fmt.Errorf("opening TAP device %q: %w", cfg.Name, err)
	}
	if err := cfg.complete(); err != nil {
		return fail(err)
	}
	d := &opening{Device: &Device{plain: cfg.Plain}, cfg: cfg}
	err := netns.Do(cfg.NetNS, func() error {
		outlast(cfg)
		if cfg.Persist {
			if there, err := d.reattach(); there || err != nil {
				return err
			}
		}
		if d.plain {
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
		// Last, so that a failure before it leaves no device behind.
		err = d.setPersist()
	}
	if err != nil {
		return fail(errors.Join(err, d.Close()))
	}
	return d.ready(), nil
}

// configure sets the attributes of a new device.
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

// lingerTime is how long Open waits for the device of a killed process to vanish, or for a
// persistent one to be free. The rings of the process keep the queues open, and the kernel
// frees them with a delay: some ten milliseconds on an idle machine.
const lingerTime = time.Second

// outlast waits, for lingerTime at most, for a device of the configured name. A device that
// vanishes with its process must vanish. A persistent device must become free if
// Config.Persist is set.
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
