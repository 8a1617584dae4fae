package tap

import (
	"errors"
	"fmt"
	"os"

	"github.com/songgao/water"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/vnet"
)

// attachPlain is attach for a plain device.
func (d *opening) attachPlain() error {
	// The library would attach to an existing device, which attach never does.
	if link, err := netlink.LinkByName(d.cfg.Name); err == nil {
		return fmt.Errorf("%w: %s", ErrExists, describe(link))
	}
	name := d.cfg.Name
	for range d.cfg.Queues {
		wcfg := water.Config{DeviceType: water.TAP}
		wcfg.Name = name
		wcfg.MultiQueue = true
		ifc, err := water.New(wcfg)
		if err != nil {
			return d.explain(explainTun(err))
		}
		fd, err := detach(ifc)
		if err != nil {
			return err
		}
		d.queues = append(d.queues, newQueue(fd, true))
		if len(d.queues) == 1 {
			if err := keepMAC(fd); err != nil {
				return err
			}
		}
		name = ifc.Name()
		d.name = name
		if err := SetCarrier(fd, false); err != nil {
			return fmt.Errorf("taking the carrier away: %w", err)
		}
	}
	d.offloads = vnet.Offloads(0)
	return nil
}

// detach returns a duplicate of ifc's descriptor and closes ifc. The duplicate is not in Go's
// poller, which would wake up for every frame although no goroutine waits there.
func detach(ifc *water.Interface) (int, error) {
	f, ok := ifc.ReadWriteCloser.(*os.File)
	if !ok {
		return -1, errors.Join(fmt.Errorf("a TAP device is a %T instead of a file", ifc.ReadWriteCloser), ifc.Close())
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, errors.Join(os.NewSyscallError("fcntl", err), f.Close())
	}
	// Fd has made both block.
	if err := errors.Join(os.NewSyscallError("fcntl", unix.SetNonblock(fd, true)), f.Close()); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}
