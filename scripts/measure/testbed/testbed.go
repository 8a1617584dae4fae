// Package testbed makes what measurements of both endpoints need: network namespaces, devices in
// them, and an I/O unit with a fabric in memory.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
)

// In calls fn with a netlink handle to namespace ns.
func In(ns string, fn func(h *netlink.Handle) error) error {
	h, err := netns.Handle(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	return fn(h)
}

// Up sets a device up.
func Up(ns, name string) error {
	err := In(ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return h.LinkSetUp(link)
	})
	if err != nil {
		return fmt.Errorf("setting %s up: %w", name, err)
	}
	return nil
}

// Pair makes two connected Ethernet devices, both up.
func Pair(ns1, name1, ns2, name2 string) error {
	fd, err := os.Open(netns.Path(ns2))
	if err != nil {
		return err
	}
	defer fd.Close()
	err = In(ns1, func(h *netlink.Handle) error {
		return h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name1}, PeerName: name2,
			PeerNamespace: netlink.NsFd(fd.Fd())})
	})
	if err != nil {
		return fmt.Errorf("making the pair %s and %s: %w", name1, name2, err)
	}
	return errors.Join(Up(ns1, name1), Up(ns2, name2))
}

// Bridge makes a bridge with the given ports.
func Bridge(ns, name string, ports ...string) error {
	err := In(ns, func(h *netlink.Handle) error {
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
		if err := h.LinkAdd(br); err != nil {
			return err
		}
		for _, p := range ports {
			link, err := h.LinkByName(p)
			if err != nil {
				return err
			}
			if err := h.LinkSetMaster(link, br); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("making the bridge %s: %w", name, err)
	}
	return Up(ns, name)
}

// Address gives a device an address.
func Address(ns, dev, prefix string) error {
	err := In(ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(dev)
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(prefix)
		if err != nil {
			return err
		}
		return h.AddrAdd(link, addr)
	})
	if err != nil {
		return fmt.Errorf("giving %s the address %s: %w", dev, prefix, err)
	}
	return nil
}

// Sweep deletes the network namespaces of processes that were killed. The name of a namespace is
// the prefix, the number of the process, and more after "-".
func Sweep(prefix string) error {
	found, err := filepath.Glob(filepath.Join(netns.Dir, prefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), "-")
		if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
			continue // the process is running
		}
		if err := netns.Delete(filepath.Base(path)); err != nil {
			return err
		}
	}
	return nil
}

// Tasks has functions that run in their own goroutines, and keeps their errors.
type Tasks struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

// Go starts a task.
func (t *Tasks) Go(f func() error) {
	t.wg.Go(func() {
		err := f()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.errs = append(t.errs, err)
	})
}

// Wait waits until all tasks have ended, and returns their errors.
func (t *Tasks) Wait() error {
	t.wg.Wait()
	return errors.Join(t.errs...)
}

// Serve starts an I/O unit with the listener that listen returns. The I/O unit runs until ctx is
// done, and its device is closed then. tasks has the goroutine.
func Serve(
	ctx context.Context, tasks *Tasks, c iounit.Config, security *session.Security,
	listen func(c session.ServerConfig) (*session.Listener, error),
) (unit *iounit.Unit, address string, err error) {
	if unit, err = iounit.New(c); err != nil {
		return nil, "", err
	}
	ln, err := listen(session.ServerConfig{Security: security, Burst: unit.Burst, Rejected: unit.Rejected})
	if err != nil {
		return nil, "", err
	}
	tasks.Go(func() error { return errors.Join(unit.Run(ctx, ln), ln.Close(), c.Device.Close()) })
	return unit, ln.Addr().String(), nil
}

// Loopback listens on any free port of the loopback address.
func Loopback(c session.ServerConfig) (*session.Listener, error) {
	return session.Listen("127.0.0.1:0", c)
}
