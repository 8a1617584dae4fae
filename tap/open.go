package tap

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// ErrExists is wrapped by errors of Open about a name that is in use.
var ErrExists = errors.New("a network device of this name exists")

// DefaultTxQueueLen is the length of a queue in frames: with super-frames of
// 64 KiB it is up to 32 MiB of kernel memory.
const DefaultTxQueueLen = 512

// tunDevice is the clone device of the tun driver.
const tunDevice = "/dev/net/tun"

// Config describes a TAP device to be made.
type Config struct {
	Name       string           // 1 to 15 bytes, may end in %d for a free number; empty means tap%d
	NetNS      string           // path or name of its network namespace; empty means the current one
	Queues     int              // 0 means 1
	Offloads   vnet.Offloads    // what frames read from it may leave unfinished
	MAC        net.HardwareAddr // nil leaves the kernel's choice
	MTU        int              // bytes; 0 leaves the kernel's choice
	TxQueueLen int              // frames; 0 means DefaultTxQueueLen
	NoRing     bool             // a system call for each frame, also where io_uring(7) could save some
	// NoDiscard leaves it to the queues to drop what comes when they are full.
	// Otherwise only ReadFrame and ReadFrames may read from them.
	NoDiscard bool
	// Persist makes the device outlive the process. Open takes over a persistent
	// device of that name that an earlier process made, which then keeps what it
	// has: MAC and MTU are for new ones.
	Persist bool
}

// Open makes a TAP device that speaks virtio_net_hdr. It is down and has no
// carrier. But for Config.Persist it never takes over a device that exists: the
// error then wraps ErrExists.
func Open(cfg Config) (*Device, error) {
	return open(cfg, false)
}

func open(cfg Config, plain bool) (*Device, error) {
	fail := func(err error) (*Device, error) {
		return nil, fmt.Errorf("opening TAP device %q: %w", cfg.Name, err)
	}
	if err := cfg.complete(); err != nil {
		return fail(err)
	}
	d := &Device{plain: plain}
	err := netns.Do(cfg.NetNS, func() error {
		outlast(cfg)
		if cfg.Persist {
			if there, err := d.reattach(cfg); there || err != nil {
				return err
			}
		}
		if plain {
			return d.attachPlain(cfg)
		}
		return d.attach(cfg)
	})
	switch {
	case err != nil:
	case d.taken:
		err = d.resume(cfg)
	default:
		err = d.configure(cfg)
	}
	if err == nil {
		// Last: what fails before leaves nothing behind.
		err = d.setPersist(cfg.Persist)
	}
	if err != nil {
		return fail(errors.Join(err, d.Close()))
	}
	d.useRings(cfg)
	d.discards = discard.StatusOf(d.discardEarly(cfg)) // a kernel that cannot do it is no error
	return d, nil
}

// complete fills in the defaults of cfg and checks it.
func (c *Config) complete() error {
	c.Queues = cmp.Or(c.Queues, 1)
	c.TxQueueLen = cmp.Or(c.TxQueueLen, DefaultTxQueueLen)
	c.Name = cmp.Or(c.Name, "tap%d")
	if err := checkName(c.Name); err != nil {
		return err
	}
	if c.Queues < 0 || c.Queues > maxQueues {
		return fmt.Errorf("%d queues: between 1 and %d are possible", c.Queues, maxQueues)
	}
	return nil
}

// useRings makes the queues use io_uring(7) where that is wanted.
func (d *Device) useRings(cfg Config) {
	for _, q := range d.queues {
		if !cfg.NoRing {
			_ = q.UseRings() // a kernel that cannot do it is no error
		}
	}
}

// maxQueues is MAX_TAP_QUEUES of the kernel's drivers/net/tun.c.
const maxQueues = 256

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

// checkName refuses what the kernel's dev_valid_name refuses, and what TUNSETIFF
// would silently cut off.
func checkName(name string) error {
	if len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("the name has %d bytes; a network device's has at most %d", len(name), unix.IFNAMSIZ-1)
	}
	if name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r") {
		return errors.New("the name contains a character that names of network devices cannot have")
	}
	if before, after, ok := strings.Cut(name, "%"); ok && (after != "d" || before == "") {
		return errors.New("in the name, % can only be part of a final %d")
	}
	return nil
}

// flags are those of the device's queues in TUNSETIFF and TUNGETIFF.
func (d *Device) flags() uint16 {
	if d.plain {
		return unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE
	}
	return unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE | unix.IFF_VNET_HDR
}

// attach makes the device and opens its queues, in the current namespace.
func (d *Device) attach(cfg Config) error {
	flags := d.flags()
	excl := uint16(unix.IFF_TUN_EXCL)
	name := cfg.Name
	for range cfg.Queues {
		fd, err := openTun()
		if err != nil {
			return err
		}
		if d.queues == nil {
			flags |= quietStart(fd)
		}
		d.queues = append(d.queues, NewQueue(fd))
		name, err = SetIff(fd, name, flags|excl)
		if err != nil {
			return d.explain(cfg.Name, err)
		}
		if excl != 0 {
			if err := keepMAC(fd); err != nil {
				return err
			}
		}
		excl = 0
		d.name = name
		// For kernels that know no IFF_NO_CARRIER, and harmless elsewhere.
		if err := SetCarrier(fd, false); err != nil {
			return fmt.Errorf("taking the carrier away: %w", err)
		}
		if err := SetHeader(fd); err != nil {
			return err
		}
	}
	var err error
	d.offloads, err = SetOffloads(d.queues[0].FD(), cfg.Offloads)
	return err
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

// explainTun adds what to do to an error of opening tunDevice.
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

// explain adds the cause and what to do to an error of TUNSETIFF.
func (d *Device) explain(name string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		link, e := netlink.LinkByName(name) // in the current namespace, where attach runs
		if e != nil {
			return err
		}
		return fmt.Errorf("%w: %w, %s", ErrExists, err, describe(link))
	}
	return err
}

// describe says what the device that is in the way is, and the way out.
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
