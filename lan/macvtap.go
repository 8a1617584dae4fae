package lan

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// Macvtap makes a macvtap in bridge mode. The kernel switches frames by MAC address, and each host
// receives only its own. Hosts on one card reach each other. They cannot reach the I/O unit's own
// addresses on the card. A promiscuous host, or one with further addresses, also gets frames from a
// packet socket beside the macvtap. This receives frames that arrive at the card, but not those that
// other hosts on the same card send.
const Macvtap Kind = "macvtap"

var macvtapKind = kind{
	Facts: Facts{
		Name: Macvtap, Argument: "NIC", Noun: "network card", Example: "eth1",
		When:    "the kernel sorts frames by MAC address; best when only the hosts use the card",
		Latency: true,
		Needs:   Capability{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN},
		// A character device that is in no directory is made in a mount namespace.
		Capabilities: []int{unix.CAP_BPF}, Elsewhere: []int{unix.CAP_SYS_ADMIN, unix.CAP_MKNOD},
		Module: "macvtap", Instead: "packet:NIC",
	},
	at: onNetdevice(openMacvtap),
	suits: func(i *Info) error {
		use := ""
		switch i.MasterType {
		case "bridge":
			use = "tap:"
		case "bond", "team":
			use = "macvtap:"
		default:
			return nil
		}
		return fmt.Errorf("%s is part of %s %s, and no macvtap can be on it: %w; use %s%s", i.Name, i.MasterType, i.Master,
			unix.EBUSY, use, i.Master)
	},
}

// txQueueLen is the largest number of frames that wait in a queue for a host.
const txQueueLen = tap.DefaultTxQueueLen

// macvtap is a port that is a macvtap device on a card. The kernel switches its frames.
type macvtap struct {
	filtered // of the packet socket beside the macvtap
	name     string
	own      int // interface index of the macvtap itself
	fds      []int
	queues   []*tap.Queue
	merged   *mergedQueue // the first queue, with the frames of the socket beside

	discards discard.Status
	early    *discard.Filter // drops before the queues; nil without

	groups []net.HardwareAddr // guarded by port.lock, as is all
	all    bool               // the host wants frames to all groups
}

var _ Interface = (*macvtap)(nil)

// openMacvtap makes a macvtap on c. It takes ownership of c, also if it fails.
func openMacvtap(c *card, below netlink.Link, cfg Config) (Interface, error) {
	m := &macvtap{name: cfg.Name, all: true}
	m.filtered = filtered{card: c, filter: receiveFilter{mac: cfg.MAC, beside: true}, owner: m}
	if m.name == "" {
		m.name = deriveName(cfg.MAC)
	}
	err := m.create(below, cfg)
	if err == nil {
		err = m.attach(cfg)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// deriveName returns the name of the device that carries the frames of the host with this
// address. A MAC address is unique in a network, and so is the name in a network namespace.
func deriveName(mac net.HardwareAddr) string { return "sn" + hex.EncodeToString(mac) }

// create makes the netdevice on the card below.
func (m *macvtap) create(below netlink.Link, cfg Config) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = m.name
	attrs.ParentIndex = m.index
	attrs.HardwareAddr = cfg.MAC
	attrs.MTU = below.Attrs().MTU
	attrs.TxQLen = txQueueLen
	attrs.NumTxQueues = cfg.Queues
	link := &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}}
	err := m.handle.LinkAdd(link)
	if errors.Is(err, unix.EEXIST) && cfg.Name == "" {
		// The name belongs to the device of a host that has changed its address since.
		m.name = deriveName(randomMAC())
		link.Name = m.name
		err = m.handle.LinkAdd(link)
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("making macvtap %s: %w: %w (a host with the same MAC address is connected, or a killed process left it: ip link delete %s)", m.name, ErrInUse, err, m.name)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("making macvtap %s: %w (modprobe macvtap, or use packet:%s)", m.name, err, m.nic)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("making macvtap %s: %w (%s is part of a bridge or bond; use tap:BRIDGE or the bond itself)", m.name,
			err, m.nic)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("making macvtap %s: %w (needs CAP_NET_ADMIN)", m.name, err)
	case err != nil:
		return fmt.Errorf("making macvtap %s: %w", m.name, err)
	}
	m.own = link.Index // LinkAdd has looked it up
	if m.own == 0 {
		return fmt.Errorf("finding macvtap %s: %w", m.name, ErrGone)
	}
	if err := m.handle.LinkAddAltName(link, markPrefix+m.name); err != nil {
		return fmt.Errorf("marking %s: %w", m.name, err)
	}
	m.silence(link)
	if err := m.handle.LinkSetAllmulticastOn(link); err != nil {
		return fmt.Errorf("setting %s to receive all multicast: %w", m.name, err)
	}
	if err := m.handle.LinkSetUp(link); err != nil {
		if taken(err) {
			return fmt.Errorf("setting %s up: %w: %w (something else on %s has MAC address %v)", m.name, ErrInUse, err, m.nic,
				cfg.MAC)
		}
		return fmt.Errorf("setting %s up: %w", m.name, err)
	}
	return nil
}

// silence keeps the I/O unit's own IPv6 off the device. From the same MAC address, the I/O
// unit would derive the same link-local address as the host, and duplicate address detection
// of the host would find it. The I/O unit receives nothing on the device. Without an address
// it therefore sends nothing, unless it forwards IPv6: a router reports its multicast groups.
// In that case, or if the device has to keep its address, IPv6 is disabled for the device.
// Errors are ignored, because kernels without IPv6 refuse all of this.
func (m *macvtap) silence(link netlink.Link) {
	const conf = "/proc/sys/net/ipv6/conf/"
	err := m.handle.LinkSetIP6AddrGenMode(link, 1) // IN6_ADDR_GEN_MODE_NONE
	_ = netns.Do(m.ns, func() error {
		routes, e := os.ReadFile(conf + m.name + "/forwarding")
		if err == nil && e == nil && string(routes) == "0\n" {
			return nil
		}
		// Not written if avoidable: the write is retried for as long as another thread changes
		// any netdevice of the machine.
		return os.WriteFile(conf+m.name+"/disable_ipv6", []byte("1"), 0o644)
	})
}

// attach opens the queues.
func (m *macvtap) attach(cfg Config) error {
	fds, err := openNodes(m.ns, m.name, m.own, cfg.Queues)
	if err != nil {
		return fmt.Errorf("opening queues of %s: %w", m.name, err)
	}
	for _, fd := range fds {
		m.fds = append(m.fds, fd)
		m.queues = append(m.queues, tap.NewQueue(fd))
	}
	for i, fd := range fds {
		if _, err := tap.SetIff(fd, m.name, unix.IFF_TAP|unix.IFF_NO_PI|unix.IFF_VNET_HDR|unix.IFF_MULTI_QUEUE); err != nil {
			return fmt.Errorf("attaching a queue to %s: %w", m.name, err)
		}
		if err := tap.SetHeader(fd); err != nil {
			return fmt.Errorf("attaching a queue to %s: %w", m.name, err)
		}
		if !cfg.NoRing {
			_ = m.queues[i].UseRings() // optional: the kernel may not support it
		}
	}
	if m.merged, err = newMergedQueue(m.queues[0]); err != nil {
		return err
	}
	if _, err = m.SetOffloads(cfg.Offloads); err != nil {
		return err
	}
	if cfg.Latency != nil {
		if err := m.steer(cfg.Latency); err != nil {
			return err
		}
	}
	m.discards = discard.StatusOf(m.discardEarly(cfg)) // optional: the kernel may not support it
	return nil
}

func (m *macvtap) EarlyDiscard() discard.Status { return m.discards }

func (m *macvtap) Name() string { return m.name }

func (m *macvtap) Queues() []Queue {
	out := asQueues(m.queues)
	out[0] = m.merged
	return out
}

// self returns a link by which netlink addresses the macvtap.
func (m *macvtap) self() netlink.Link { return device(m.name, m.own) }

func (m *macvtap) Watch(ctx context.Context, fn func(LinkState)) error {
	return m.watch(ctx, m.own, func(s LinkState) error { return m.followMTU(m.name, m.own, s) }, fn)
}

func (m *macvtap) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) {
	got := o
	err := m.do("setting offloads", func() error {
		for _, fd := range m.fds {
			var err error
			if got, err = tap.SetOffloads(fd, got); err != nil {
				return err
			}
		}
		m.offloads = got
		if q := m.merged.beside.Load(); q != nil {
			q.offloads.Store(uint32(got))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return got, nil
}

func (m *macvtap) Announce(frame []byte) error {
	return m.do("announcing", func() error {
		if m.filter.down {
			return unix.ENETDOWN
		}
		err := m.sendOut(frame)
		if errors.Is(err, unix.EPERM) { // no CAP_NET_RAW: use the port; other ports get it too
			_, err = unix.Write(m.fds[0], frame)
			err = os.NewSyscallError("write", err)
		}
		return err
	})
}

func (m *macvtap) Stats() Stats {
	s := tapStats(m.card, m.own, m.queues, func(s *netlink.LinkStatistics) uint64 { return s.RxDropped })
	s.Dropped += m.early.Dropped()
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.merged != nil {
		s.add(m.merged.stats())
	}
	return s
}

// tapStats returns the queues' counters of long frames and the netdevice's counter of the frames that
// its queues lost. A macvtap receives what the queue reads, and a TAP device transmits it.
func tapStats(c *card, index int, queues []*tap.Queue, lost func(*netlink.LinkStatistics) uint64) Stats {
	var s Stats
	for _, q := range queues {
		s.TooLong += q.TooLong()
	}
	_ = c.do("reading statistics", func() error {
		link, err := c.looks.LinkByIndex(index)
		if err != nil || link.Attrs().Statistics == nil {
			return err
		}
		s.Dropped = lost(link.Attrs().Statistics)
		return nil
	})
	return s
}

func (m *macvtap) Close() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if !m.shut() {
		return nil
	}
	var errs []error
	if m.merged != nil {
		errs = append(errs, m.merged.Close())
	}
	for _, q := range m.queues {
		errs = append(errs, q.Close())
	}
	if m.own != 0 {
		// The macvtap may have been removed with its card.
		if err := m.remove(m.self()); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("removing %s: %w", m.name, err))
		}
	}
	m.release()
	return errors.Join(errs...)
}

// The priorities of the eBPF programs at the ingress of a macvtap. The second program depends
// on the queue that the first has selected.
const (
	steerPriority uint16 = 1 + iota
	discardPriority
)

// steer directs latency-sensitive frames to the last queue of the macvtap. A macvtap has no
// hook for this. It selects the queue by the hash of a frame, which an eBPF program at the
// ingress of the device can set. The program is removed with the device.
func (m *macvtap) steer(r *steer.Rule) error {
	p, err := r.Load(steer.Ingress)
	if err != nil {
		return err
	}
	defer p.Close() // the filter has a reference to the program
	if err := m.classify(steerPriority, p.FD()); err != nil {
		return fmt.Errorf("%w: %w", steer.ErrUnavailable, err)
	}
	return nil
}

// discardEarly makes the kernel drop whole datagrams before a queue of the macvtap is full.
// It is called after steer.
func (m *macvtap) discardEarly(cfg Config) error {
	if cfg.NoDiscard {
		return discard.ErrUnwanted
	}
	f, err := discard.New(discard.Config{Ingress: true, Queues: len(m.queues), Length: txQueueLen})
	if err != nil {
		return err
	}
	defer f.Close() // as in steer
	if err := m.classify(discardPriority, f.FD()); err != nil {
		return err
	}
	for i, q := range m.queues {
		q.Count(f.Meter(i))
	}
	m.early = f
	return nil
}

// classify attaches an eBPF program to the ingress of the macvtap. The program gets the
// frames for the macvtap before the macvtap itself.
func (m *macvtap) classify(priority uint16, program int) error {
	fail := func(what string, err error) error {
		hint := ""
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			hint = " (the kernel needs the modules sch_ingress and cls_bpf: modprobe -a sch_ingress cls_bpf)"
		}
		return fmt.Errorf("%s of %s: %w%s", what, m.name, err, hint)
	}
	err := m.handle.QdiscAdd(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: m.own, Handle: netlink.MakeHandle(0xffff, 0),
			Parent: netlink.HANDLE_CLSACT},
		QdiscType: "clsact",
	})
	if err != nil && !errors.Is(err, unix.EEXIST) { // the qdisc exists if another program has it
		return fail("adding the clsact qdisc", err)
	}
	err = m.handle.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: m.own, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: priority, Protocol: unix.ETH_P_ALL,
		},
		Fd: program, Name: "splitnic", DirectAction: true,
	})
	if err != nil {
		return fail("adding the filter", err)
	}
	return nil
}
