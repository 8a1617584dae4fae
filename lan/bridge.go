package lan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// TAP makes a TAP device that is a port of a bridge. Like a port of a switch, it gets frames to the
// addresses that the bridge has learned at the port, and frames that the bridge floods, whether or not
// the host is promiscuous. A host that bridges virtual machines into its device needs this kind.
const TAP Kind = "tap"

var tapKind = kind{
	Facts: Facts{
		Name: TAP, Argument: "BRIDGE", Noun: "bridge", Example: "br0",
		When: "the hosts are ports of a bridge, which learns the addresses of machines behind them. The " +
			"[policy](policy.md) has to allow these addresses (`macs`); with the other kinds of LAN it has to allow " +
			"promiscuous mode too",
		Latency:      true,
		Needs:        Capability{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN},
		Capabilities: []int{unix.CAP_BPF},
	},
	at: onNetdevice(openTAP),
	suits: func(i *Info) error {
		if i.Type != "bridge" {
			return notBridge(i.Name, i.Type)
		}
		return nil
	},
}

// notBridge returns the error for a card of type kind where a bridge is needed.
func notBridge(nic, kind string) error {
	return fmt.Errorf("%s is a %s and not a bridge; use macvtap:%s or packet:%s", nic, kind, nic, nic)
}

// bridgePort is a port that is a TAP device in a bridge.
type bridgePort struct {
	*card
	learned
	dev *tap.Device
}

var _ Interface = (*bridgePort)(nil)

// openTAP makes a TAP device in bridge c. It takes ownership of c, also if it fails.
func openTAP(c *card, bridge netlink.Link, cfg Config) (Interface, error) {
	p := &bridgePort{card: c, learned: learned{&c.port}}
	err := p.create(bridge, cfg)
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *bridgePort) create(bridge netlink.Link, cfg Config) (err error) {
	if bridge.Type() != "bridge" {
		return notBridge(p.nic, bridge.Type())
	}
	derived := cfg.Name == ""
	if derived {
		cfg.Name = deriveName(cfg.MAC)
	}
	// The device must not have the host's address: a bridge delivers frames to the addresses
	// of its ports locally. The first byte is high because a bridge takes the lowest of these
	// addresses as its own.
	own := slices.Clone(cfg.MAC)
	own[0] = 0xfe
	if cfg.MAC[0] == 0xfe {
		own[0] = 0xfa
	}
	tcfg := tap.Config{
		Name: cfg.Name, NetNS: cfg.NetNS, Queues: cfg.Queues, Offloads: cfg.Offloads,
		MAC: own, MTU: bridge.Attrs().MTU, TxQueueLen: txQueueLen, NoRing: cfg.NoRing, NoDiscard: cfg.NoDiscard,
	}
	p.dev, err = tap.Open(tcfg)
	if errors.Is(err, tap.ErrExists) && derived {
		// The name belongs to the device of a host that has changed its address since.
		tcfg.Name = deriveName(randomMAC())
		p.dev, err = tap.Open(tcfg)
	}
	if err != nil {
		return err
	}
	p.offloads = p.dev.Offloads()
	if cfg.Latency != nil {
		if err := p.dev.Steer(cfg.Latency); err != nil {
			return err
		}
	}
	// In this order the kernel's link watch reacts at once. If the carrier came before the
	// device is up, it would wait for the next run of the link watch, up to one second.
	if err := p.dev.Up(); err != nil {
		return err
	}
	if err := p.dev.SetCarrier(true); err != nil {
		return err
	}
	return p.dev.Enslave(p.index)
}

func (p *bridgePort) Name() string { return p.dev.Name() }

func (p *bridgePort) Queues() []Queue { return asQueues(p.dev.Queues()) }

func (p *bridgePort) EarlyDiscard() discard.Status { return p.dev.EarlyDiscard() }

func (p *bridgePort) Watch(ctx context.Context, fn func(LinkState)) error {
	return p.watch(ctx, 0, func(s LinkState) error { return p.followMTU(p.dev.Name(), p.dev.Index(), s) }, fn)
}

func (p *bridgePort) SetOffloads(o vnet.Offloads) (got vnet.Offloads, err error) {
	err = p.do("setting offloads", func() error {
		got, err = p.dev.SetOffloads(o)
		if err == nil {
			p.offloads = got
		}
		return err
	})
	return got, err
}

func (p *bridgePort) SetUp(up bool) error {
	return p.setUp(device(p.dev.Name(), p.dev.Index()), up)
}

func (p *bridgePort) Floods() bool { return true }

// Announce implements Interface. The frame enters the bridge at the port, so that the bridge
// learns the host's address.
func (p *bridgePort) Announce(frame []byte) error {
	return p.announce(p.dev.Queues()[0].FD(), frame)
}

func (p *bridgePort) Stats() Stats {
	return tapStats(p.card, p.dev.Index(), p.dev.Queues(), func(s *netlink.LinkStatistics) uint64 { return s.TxDropped })
}

func (p *bridgePort) Close() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if !p.shut() {
		return nil
	}
	var err error
	if p.dev != nil {
		err = p.dev.Close()
	}
	p.release()
	return err
}
