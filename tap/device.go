package tap

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/ticker"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// Device is a TAP device with one or more queues. It may be renamed, and moved to another
// network namespace, while it is open. It has one method for each setting that a host changes
// or reads, because the kernel has one request for each.
type Device struct {
	tun
	index    int // interface index when the device was opened
	plain    bool
	taken    bool // the device existed before Open or Adopt
	discards discard.Status

	// Guarded by mu.
	label    Label
	offloads vnet.Offloads
	reported State  // last state that Watch has reported
	seen     digest // digest of that state

	unreported   atomic.Bool                  // State has returned a state other than reported; written with mu held
	pollDue      atomic.Bool                  // Watch is to check for changes, even without a hint
	subscription atomic.Pointer[subscription] // subscription of Watch

	reminder  atomic.Pointer[ticker.Task] // task of Watch that calls remind
	unglanced bool                        // a glance is due; only the goroutine of remind uses it

	pace pace // of Watch
}

// Name returns the device's name at the time it was made.
func (d *Device) Name() string { return d.name }

// Index returns the device's interface index at the time it was opened.
func (d *Device) Index() int { return d.index }

// Taken reports whether the device existed before Open or Adopt. It then has the settings
// made by its last process and its administrator: it may be up and have carrier.
func (d *Device) Taken() bool { return d.taken }

// Queues returns the device's queues. The slice belongs to the device.
func (d *Device) Queues() []*Queue { return d.queues }

// EarlyDiscard returns whether whole datagrams are dropped before a queue is full, or the
// reason why not.
func (d *Device) EarlyDiscard() discard.Status { return d.discards }

// SetCarrier tells the network stack whether the far end can be reached.
func (d *Device) SetCarrier(on bool) error {
	return d.do(fmt.Sprintf("setting the carrier to %t", on), func() error { return SetCarrier(d.queues[0].FD(), on) })
}

// SetSpeed sets the speed that the device reports, in Mbit/s; 0 means unknown. A TAP device
// has no speed of its own, and reports 10 Mbit/s by default. Kernels that do not support the
// request go on reporting the default.
func (d *Device) SetSpeed(mbit int) error {
	return d.do(fmt.Sprintf("setting the speed to %d Mbit/s", mbit), func() error {
		name, err := d.locate()
		if err == nil {
			err = d.location.setSpeed(name, mbit)
		}
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}

// Carrier reports whether the device has carrier. It is false while the device is down.
func (d *Device) Carrier() (bool, error) {
	a, err := d.attrs("reading the carrier")
	return a.RawFlags&unix.IFF_LOWER_UP != 0, err
}

// Up sets the device administratively up; frames flow once it has carrier too.
func (d *Device) Up() error { return d.SetUp(true) }

// SetUp sets the device administratively up or down.
func (d *Device) SetUp(up bool) error {
	return d.turn("up", up, (*netlink.Handle).LinkSetUp, (*netlink.Handle).LinkSetDown)
}

// turn turns a setting on or off.
func (d *Device) turn(setting string, to bool, on, off func(*netlink.Handle, netlink.Link) error) error {
	if !to {
		on = off
	}
	return d.netlink(fmt.Sprintf("setting %s to %t", setting, to), on)
}

// SetPromisc changes the device's own setting to receive all frames. With the setting off the
// device may still receive them for a packet socket or a bridge.
func (d *Device) SetPromisc(on bool) error {
	return d.turn("promisc", on, (*netlink.Handle).SetPromiscOn, (*netlink.Handle).SetPromiscOff)
}

// SetAllMulti changes the device's own setting to receive all multicast frames.
func (d *Device) SetAllMulti(on bool) error {
	return d.turn("allmulticast", on, (*netlink.Handle).LinkSetAllmulticastOn, (*netlink.Handle).LinkSetAllmulticastOff)
}

// SetMAC sets the hardware address.
func (d *Device) SetMAC(mac net.HardwareAddr) error {
	return d.netlink(fmt.Sprintf("setting MAC address %v", mac), func(h *netlink.Handle, l netlink.Link) error {
		if len(mac) != 6 {
			return fmt.Errorf("the address has %d bytes instead of 6", len(mac))
		}
		if mac[0]&1 != 0 {
			return errors.New("this is a group address; a device's has an even first byte")
		}
		if bytes.Equal(mac, l.Attrs().HardwareAddr) {
			return nil // setting it again would make the kernel forget all neighbours
		}
		return h.LinkSetHardwareAddr(l, mac)
	})
}

// SetMTU sets the MTU in bytes.
func (d *Device) SetMTU(mtu int) error {
	return d.netlink(fmt.Sprintf("setting MTU %d", mtu),
		func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetMTU(l, mtu) })
}

// SetGSOMaxSize limits the super-frames that the network stack hands to the device, in bytes.
// Kernels that do not support the request segment super-frames above 64 KiB themselves.
// Frames that are still longer than vnet.MaxFrame are dropped and counted.
func (d *Device) SetGSOMaxSize(size int) error {
	return d.netlink(fmt.Sprintf("setting gso_max_size %d", size), func(h *netlink.Handle, l netlink.Link) error {
		err := h.LinkSetGSOMaxSize(l, size)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
			return nil
		}
		return err
	})
}

// SetOffloads sets the offloads that frames read from the device may use, and returns those
// that are in force from now on: fewer than o if the kernel does not support all of them,
// none on a plain device. Frames that are already queued do not change.
func (d *Device) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) {
	err := d.do("setting offloads", func() error {
		if d.plain {
			return nil
		}
		got, err := SetOffloads(d.queues[0].FD(), o)
		if err == nil {
			d.offloads = got
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return d.Offloads(), nil
}

// Offloads returns the offloads that are in force.
func (d *Device) Offloads() vnet.Offloads {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.offloads
}

// MAC reads the hardware address from the kernel: an administrator may have
// changed it.
func (d *Device) MAC() (net.HardwareAddr, error) {
	a, err := d.attrs("reading the MAC address")
	return a.HardwareAddr, err
}

// Enslave makes the device a port of the bridge with the given interface index
// in its network namespace.
func (d *Device) Enslave(bridge int) error {
	return d.netlink("enslaving",
		func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetMasterByIndex(l, bridge) })
}

// Label returns the device's label.
func (d *Device) Label() Label {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.label
}

// SetMemory writes m into the device's label, for the next process.
func (d *Device) SetMemory(m Memory) error {
	l := d.Label()
	l.Memory = m
	return d.setLabel(l)
}

// setLabel makes l the device's label. It removes the previous label only after it has added
// l: a process that is killed in between leaves at least one of them.
func (d *Device) setLabel(l Label) error {
	return d.netlink("labelling", func(h *netlink.Handle, link netlink.Link) error {
		l.random, l.number = rand.Uint32(), 1
		if before, ok := labelOf(link); ok {
			l.random, l.number = before.random, before.number+1
		}
		d.label = l
		if err := h.LinkAddAltName(link, l.String()); err != nil {
			return err
		}
		for _, name := range link.Attrs().AltNames {
			if _, ok := parseLabel(name); !ok {
				continue
			}
			if err := h.LinkDelAltName(link, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove deletes the device, even if another process has its descriptors, and closes it. A
// device that has been deleted before is not an error.
func (d *Device) Remove() error {
	err := d.netlink("deleting", (*netlink.Handle).LinkDel)
	if errors.Is(err, ErrGone) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EBADFD) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// Close closes the queues. The device vanishes with them, unless it is persistent or another
// process has its descriptors too. Workers must have stopped polling the queues' descriptors.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	for _, q := range d.queues {
		errs = append(errs, q.Close())
	}
	d.location.close()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing %s: %w", d.name, err)
	}
	return nil
}
