package tap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap/discard"
)

// tunDevice is the clone device of the tun driver.
const tunDevice = "/dev/net/tun"

// opening is a device that is being opened or taken over, with its configuration.
type opening struct {
	*Device
	cfg Config
}

// flags returns the flags of the device's queues in TUNSETIFF and TUNGETIFF.
func (d *opening) flags() uint16 {
	if d.plain {
		return unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE
	}
	return unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE | unix.IFF_VNET_HDR
}

// attach makes the device and opens its queues, in the current namespace.
func (d *opening) attach() error {
	fd, err := openTun()
	if err != nil {
		return err
	}
	flags := d.flags() | quietStart(fd)
	d.queues = append(d.queues, NewQueue(fd))
	if d.name, err = SetIff(fd, d.cfg.Name, flags|unix.IFF_TUN_EXCL); err != nil {
		return d.explain(err)
	}
	if err := keepMAC(fd); err != nil {
		return err
	}
	// Needed on kernels without IFF_NO_CARRIER, and harmless on others.
	if err := SetCarrier(fd, false); err != nil {
		return fmt.Errorf("taking the carrier away: %w", err)
	}
	if err := SetHeader(fd); err != nil {
		return err
	}
	if err := d.join(d.name, d.cfg.Queues, flags); err != nil {
		return d.explain(err)
	}
	d.offloads, err = SetOffloads(d.queues[0].FD(), d.cfg.Offloads)
	return err
}

// join opens queues of an existing device, in the current namespace, until d has n queues.
func (d *opening) join(name string, n int, flags uint16) error {
	for len(d.queues) < n {
		fd, err := openTun()
		if err != nil {
			return err
		}
		if len(d.queues) == 0 {
			flags |= quietStart(fd)
		}
		q := newQueue(fd, d.plain)
		if _, err := SetIff(fd, name, flags); err != nil {
			return errors.Join(err, q.Close())
		}
		d.queues = append(d.queues, q)
	}
	return nil
}

// quietStart returns IFF_NO_CARRIER if the kernel knows it.
func quietStart(fd int) uint16 {
	features, err := unix.IoctlGetInt(fd, unix.TUNGETFEATURES)
	if err != nil {
		return 0
	}
	return uint16(features) & unix.IFF_NO_CARRIER
}

func openTun() (int, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, explainTun(&fs.PathError{Op: "open", Path: tunDevice, Err: err})
	}
	return fd, nil
}

// explainTun adds the remedy to an error of opening tunDevice.
func explainTun(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w (modprobe tun; in a container, hand the device in: --device %s)", err, tunDevice)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w (the kernel has no tun driver: modprobe tun)", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w (run as root; or let the service use it, DeviceAllow=%s rw, or the container, character device 10:200)", err, tunDevice)
	}
	return err
}

// explain adds the cause and the remedy to an error of TUNSETIFF.
func (d *opening) explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		link, e := netlink.LinkByName(d.cfg.Name) // in the current namespace, where attach runs
		if e != nil {
			return err
		}
		return fmt.Errorf("%w: %w, %s", ErrExists, err, describe(link))
	}
	return err
}

// describe returns a description of an existing device whose name is wanted, with the remedy.
func describe(link netlink.Link) string {
	name := link.Attrs().Name
	if t, ok := link.(*netlink.Tuntap); ok {
		if t.NonPersist {
			return fmt.Sprintf("a %s device that another process holds (choose another name, or end that process)", t.Mode)
		}
		if _, ok := labelOf(link); ok {
			return fmt.Sprintf("a persistent %s device that splitnic made (take it over with --persist, or remove it: ip link delete %s)", t.Mode, name)
		}
		return fmt.Sprintf("a persistent %s device (choose another name, or remove it: ip link delete %s)", t.Mode, name)
	}
	return fmt.Sprintf("of type %s (choose another name)", link.Type())
}

// ready makes the queues use io_uring(7) and discard early, unless the configuration says otherwise.
// A kernel without support is not an error.
func (d *opening) ready() *Device {
	for _, q := range d.queues {
		if !d.cfg.NoRing {
			_ = q.UseRings()
		}
	}
	d.discards = discard.StatusOf(d.discardEarly())
	return d.Device
}

// discardEarly makes the kernel drop whole datagrams before a queue is full, and makes the
// queues count the frames that they read. Without support of the kernel, full queues drop the
// frames that arrive.
func (d *opening) discardEarly() error {
	filter := func(program int) error {
		return d.do("discarding early", func() error {
			return ioctlPointer(d.queues[0].FD(), unix.TUNSETFILTEREBPF, "TUNSETFILTEREBPF", program)
		})
	}
	if d.taken {
		_ = filter(-1) // the filter of an earlier process uses the counters of that process
	}
	if d.cfg.NoDiscard {
		return discard.ErrUnwanted
	}
	a, err := d.attrs("reading the queue length")
	if err != nil {
		return err
	}
	f, err := discard.New(discard.Config{Queues: len(d.queues), Length: a.TxQLen})
	if err != nil {
		return err
	}
	defer f.Close() // the device keeps the program
	err = filter(f.FD())
	if err != nil {
		return err
	}
	for i, q := range d.queues {
		q.Count(f.Meter(i))
	}
	return nil
}

// setPersist sets, as configured, whether the device outlives its last descriptor.
func (d *opening) setPersist() error {
	v := 0
	if d.cfg.Persist {
		v = 1
	}
	return d.do(fmt.Sprintf("setting persistence to %t", d.cfg.Persist), func() error {
		return ioctlValue(d.queues[0].FD(), unix.TUNSETPERSIST, "TUNSETPERSIST", v)
	})
}
