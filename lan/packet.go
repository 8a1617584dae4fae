package lan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// Packet opens AF_PACKET sockets on the card, which becomes promiscuous, and makes no netdevice.
// Each host's socket sees every frame of the card, including those of other hosts, and filters them.
// The host must be able to receive checksum and TCP offloads, because a packet socket passes
// super-frames on unchanged.
const Packet Kind = "packet"

var packetKind = kind{
	Facts: Facts{
		Name: Packet, Argument: "NIC", Noun: "network card", Example: "eth1",
		When:    "there is no macvtap module, or other programs use the card",
		Latency: true,
		Needs:   Capability{"CAP_NET_RAW", unix.CAP_NET_RAW},
	},
	at: onNetdevice(openPacket),
}

// socketBuffer is the size of a packet socket's buffers in bytes, in each direction. The
// default of 208 KiB has room for three super-frames.
const socketBuffer = 8 << 20

// packetRequires has the offloads that a host must be able to receive from packet sockets.
const packetRequires = vnet.CSUM | vnet.TSO4 | vnet.TSO6

// packetPort is a port made of packet sockets on the card itself.
type packetPort struct {
	filtered // the memberships are of the first queue's socket
	queues   []*packetQueue
}

var _ Interface = (*packetPort)(nil)

// openPacket opens packet sockets on c. It takes ownership of c, also if it fails.
func openPacket(c *card, below netlink.Link, cfg Config) (Interface, error) {
	p := &packetPort{}
	p.filtered = filtered{card: c, filter: receiveFilter{mac: cfg.MAC, allMulti: true}, owner: p}
	err := p.differs(cfg.MAC, below)
	if err == nil {
		err = netns.Do(c.ns, func() error { return p.open(cfg) })
	}
	if err == nil {
		_, err = p.SetOffloads(cfg.Offloads)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// checkOwn returns an error if mac is the card's own address: the host would get, and could
// answer, frames for the I/O unit itself. The kernel makes the same check for macvtaps.
func (p *packetPort) checkOwn(mac net.HardwareAddr) error {
	link, err := p.looks.LinkByIndex(p.index)
	if err != nil {
		return fmt.Errorf("looking up %s: %w", p.nic, err)
	}
	return p.differs(mac, link)
}

// differs is checkOwn with the card's link that netlink has returned.
func (p *packetPort) differs(mac net.HardwareAddr, link netlink.Link) error {
	if slices.Equal(link.Attrs().HardwareAddr, mac) {
		return fmt.Errorf("MAC address %v: %w: it is that of %s itself", mac, ErrInUse, p.nic)
	}
	return nil
}

// open opens the sockets in the current network namespace. No socket receives frames before
// all of them share the frames, because some frames would otherwise arrive more than once.
func (p *packetPort) open(cfg Config) error {
	fanout, way := noFanout, unix.PACKET_FANOUT_HASH
	if cfg.Latency != nil {
		way = unix.PACKET_FANOUT_EBPF
	}
	for range cfg.Queues {
		fd, err := packetSocket()
		if err != nil {
			return err
		}
		q := newPacketQueue(fd)
		p.queues = append(p.queues, q)
		if err := p.bind(fd); err != nil {
			return err
		}
		if p.asked.index == 0 {
			p.asked = memberships{fd: fd, index: p.index}
		}
		if cfg.Queues > 1 {
			if fanout, err = joinFanout(fd, fanout, way); err != nil {
				return err
			}
		}
	}
	if cfg.Latency != nil {
		if err := steerFanout(p.asked.fd, cfg.Latency); err != nil {
			return err
		}
	}
	return p.applyFilter(p.filter)
}

func (p *packetPort) EarlyDiscard() discard.Status {
	return discard.Status{Reason: "packet sockets cannot do it"}
}

// bind prepares a socket and binds it to the card. The socket was made without a protocol, so
// that it has not received anything yet.
func (c *card) bind(fd int) error {
	if err := attachFilter(fd, rejectAll); err != nil {
		return err
	}
	for _, o := range []struct {
		name              string
		level, opt, value int
	}{
		{"PACKET_VNET_HDR", unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{"PACKET_AUXDATA", unix.SOL_PACKET, unix.PACKET_AUXDATA, 1},
		{"SO_RCVBUFFORCE", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer},
		{"SO_SNDBUFFORCE", unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			err = os.NewSyscallError("setsockopt "+o.name, err)
			if errors.Is(err, unix.EPERM) {
				return fmt.Errorf("%w (needs CAP_NET_ADMIN)", err)
			}
			return err
		}
	}
	addr := unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: c.index}
	if err := unix.Bind(fd, &addr); err != nil {
		return fmt.Errorf("binding to %s: %w", c.nic, os.NewSyscallError("bind", err))
	}
	return nil
}

// networkOrder swaps the bytes of v.
func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }

// noFanout stands for no fanout group. 0 is the number of a group.
const noFanout = -1

// joinFanout adds a socket to a fanout group and returns the group's number. If group is
// noFanout, it makes a new one. way is the fanout mode: PACKET_FANOUT_HASH distributes frames
// by the hash of their flow, PACKET_FANOUT_EBPF by a program.
func joinFanout(fd, group, way int) (int, error) {
	arg := group | way<<16
	if group == noFanout {
		arg = (way | unix.PACKET_FANOUT_FLAG_UNIQUEID) << 16
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
		return 0, os.NewSyscallError("setsockopt PACKET_FANOUT", err)
	}
	v, err := unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt PACKET_FANOUT", err)
	}
	return v & 0xffff, nil
}

// steerFanout directs latency-sensitive frames to the last socket of a fanout group. fd is a
// socket of the group, which has the mode PACKET_FANOUT_EBPF: see joinFanout.
func steerFanout(fd int, r *steer.Rule) error {
	p, err := r.Load(steer.Fanout)
	if err != nil {
		return err
	}
	// The group has a reference to the program.
	defer p.Close()
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, p.FD()); err != nil {
		return fmt.Errorf("%w: %w", steer.ErrUnavailable, os.NewSyscallError("setsockopt PACKET_FANOUT_DATA", err))
	}
	return nil
}

// applyFilter applies f to the card and all sockets, and sets p.filter. The caller holds
// port.lock, unless p is not yet known to any other goroutine.
func (p *packetPort) applyFilter(f receiveFilter) error {
	if err := p.asked.set(f.memberships()); err != nil {
		return err
	}
	program := f.program()
	for _, q := range p.queues {
		if err := attachFilter(q.FD(), program); err != nil {
			return err
		}
	}
	p.filter = f
	return nil
}

func (p *packetPort) Name() string { return p.nic }

func (p *packetPort) Queues() []Queue { return asQueues(p.queues) }

func (p *packetPort) SetMAC(mac net.HardwareAddr) error {
	return p.do(fmt.Sprintf("setting MAC address %v", mac), func() error {
		if err := errors.Join(checkMAC(mac), p.checkOwn(mac)); err != nil {
			return err
		}
		f := p.filter
		f.mac = slices.Clone(mac)
		if err := p.applyFilter(f); err != nil {
			return err
		}
		p.mac = f.mac
		return nil
	})
}

func (p *packetPort) Watch(ctx context.Context, fn func(LinkState)) error {
	return p.watch(ctx, 0, nil, fn)
}

// SetOffloads implements Interface. Super-frames that need an offload that the host does not
// have are dropped and counted.
func (p *packetPort) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) {
	o = o.Closure()
	err := p.do("setting offloads", func() error {
		if lacks := packetRequires &^ o; lacks != 0 {
			return fmt.Errorf("%w: packet sockets hand out frames that need %v at the host; use macvtap:%s", ErrUnsupported,
				lacks, p.nic)
		}
		for _, q := range p.queues {
			q.offloads.Store(uint32(o))
		}
		p.offloads = o
		return nil
	})
	if err != nil {
		return 0, err
	}
	return o, nil
}

func (p *packetPort) SetUp(up bool) error {
	return p.change(whatUp(up), func(f *receiveFilter) {
		for _, q := range p.queues {
			q.down.Store(!up)
		}
		f.down = !up
	})
}

func (p *packetPort) SetAllMulti(on bool) error {
	return p.change(fmt.Sprintf("setting all-multicast to %t", on), func(f *receiveFilter) { f.allMulti = on })
}

func (p *packetPort) SetMulticast(groups []net.HardwareAddr) error {
	if err := checkGroups(groups); err != nil {
		return err
	}
	return p.change("setting the groups", func(f *receiveFilter) { f.groups = cloneAddrs(groups) })
}

func (p *packetPort) Announce(frame []byte) error {
	if p.queues[0].down.Load() {
		return fmt.Errorf("announcing: %w", unix.ENETDOWN)
	}
	return p.do("announcing", func() error { return p.sendOut(frame) })
}

func (p *packetPort) Stats() Stats {
	var s Stats
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, q := range p.queues {
		if p.closed {
			s.add(q.counted())
		} else {
			s.add(q.stats())
		}
	}
	return s
}

func (p *packetPort) Close() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if !p.shut() {
		return nil
	}
	var errs []error
	for _, q := range p.queues {
		errs = append(errs, q.Close())
	}
	p.release()
	return errors.Join(errs...)
}
