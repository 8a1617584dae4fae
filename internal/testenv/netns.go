package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

var nsCount atomic.Int32

// NetNS makes a network namespace with its loopback device up and returns its name. The namespace
// is removed at the end of the test. NetNS needs root.
func NetNS(t testing.TB) string {
	t.Helper()
	NeedRoot(t)
	name := fmt.Sprintf("sntest-%d-%d", os.Getpid(), nsCount.Add(1))
	if err := netns.New(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netns.Delete(name); err != nil {
			t.Error(err)
		}
	})
	With(t, name, func(h *netlink.Handle) error {
		return h.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 1}})
	})
	return name
}

// within runs fn in ns, and fails the test if fn fails.
func within(t testing.TB, ns string, fn func() error) {
	t.Helper()
	if err := netns.Do(ns, fn); err != nil {
		t.Fatal(err)
	}
}

// DisableIPv6 disables IPv6 on devices that are made in ns from now on. Otherwise the kernel sends
// frames of IPv6 by itself.
func DisableIPv6(t testing.TB, ns string) {
	t.Helper()
	err := netns.Do(ns, func() error {
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// With runs fn with a netlink handle to namespace ns and fails the test if fn
// fails.
func With(t testing.TB, ns string, fn func(h *netlink.Handle) error) {
	t.Helper()
	h, err := netns.Handle(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := fn(h); err != nil {
		t.Fatalf("in network namespace %s: %v", ns, err)
	}
}

// withLink is With for a device.
func withLink(t testing.TB, ns, name string, fn func(h *netlink.Handle, link netlink.Link) error) {
	t.Helper()
	With(t, ns, func(h *netlink.Handle) error {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		return fn(h, link)
	})
}

// Link returns the device of that name, or nil if there is none.
func Link(t testing.TB, ns, name string) (link netlink.Link) {
	t.Helper()
	With(t, ns, func(h *netlink.Handle) error {
		if l, err := h.LinkByName(name); err == nil {
			link = l
		}
		return nil
	})
	return link
}

// Links returns the names of all devices in ns.
func Links(t testing.TB, ns string) []string {
	t.Helper()
	var names []string
	With(t, ns, func(h *netlink.Handle) error {
		links, err := netns.Links(h)
		for _, l := range links {
			names = append(names, l.Attrs().Name)
		}
		return err
	})
	return names
}

// Veth makes a pair of connected Ethernet devices, one in each of two
// namespaces, both up.
func Veth(t testing.TB, ns1, name1, ns2, name2 string) {
	t.Helper()
	fd, err := os.Open(netns.Path(ns2))
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	With(t, ns1, func(h *netlink.Handle) error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name1}, PeerName: name2, PeerNamespace: netlink.NsFd(fd.Fd())}
		if err := h.LinkAdd(v); err != nil {
			return err
		}
		return h.LinkSetUp(v)
	})
	Up(t, ns2, name2)
}

// Bridge makes a bridge with the given ports in ns and sets all of them up.
func Bridge(t testing.TB, ns, name string, ports ...string) {
	t.Helper()
	With(t, ns, func(h *netlink.Handle) error {
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
			if err := h.LinkSetUp(link); err != nil {
				return err
			}
		}
		return h.LinkSetUp(br)
	})
}

// Up sets a device up.
func Up(t testing.TB, ns, name string) {
	t.Helper()
	withLink(t, ns, name, (*netlink.Handle).LinkSetUp)
}

// Address gives a device an address, such as 10.0.0.1/24, that can be used at
// once.
func Address(t testing.TB, ns, name, addr string) {
	t.Helper()
	withLink(t, ns, name, func(h *netlink.Handle, link netlink.Link) error {
		a, err := netlink.ParseAddr(addr)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD // no second of waiting
		}
		return h.AddrAdd(link, a)
	})
}

// Command returns a command that runs in network namespace ns.
func Command(t testing.TB, ns, name string, args ...string) *exec.Cmd {
	t.Helper()
	NeedTools(t, "ip")
	return exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", ns, name}, args...)...)
}

// Run runs a command in ns to its end, fails the test if the command fails, and returns its output.
func Run(t testing.TB, ns, name string, args ...string) string {
	t.Helper()
	out, err := Command(t, ns, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q in %s: %v\n%s", name, args, ns, err, out)
	}
	return string(out)
}
