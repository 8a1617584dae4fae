package lan

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

// VhostUser has a socket for each host in a directory, named after the host's address. It is a
// virtio-net device, and a switch in user space has the driver (DPDK's virtio_user). The switch decides
// to which port it sends a frame. The kernel's network stack is not involved.
const VhostUser Kind = "vhost-user"

var switchKind = kind{
	Facts: Facts{
		Name: VhostUser, Argument: "DIRECTORY", Noun: "directory", Example: "/run/splitnic/lan,client",
		Note: "the directory has a socket for each host, to which a user-space switch connects; " +
			"with vhost-user:DIRECTORY,client the switch listens there",
		When: "the LAN is a switch in user space with DPDK's `virtio_user`, with a port for each host " +
			"([details](vhost-user.md#a-switch-in-user-space-as-the-lan))",
		Outside: "the ports of a user-space switch",
	},
	at: func(arg, _ string) (site, error) { return parseSwitch(arg) },
	dirs: func(arg string) []string {
		s, err := parseSwitch(arg)
		if err != nil {
			return nil
		}
		return []string{s.dir}
	},
}

// userSwitch is a switch in user space, specified as vhost-user:DIRECTORY. The directory has
// a socket for each host.
type userSwitch struct {
	dir    string
	client bool // the switch listens
	mtu    int
}

const (
	minMTU     = 68
	defaultMTU = 1500
	// maxSwitchDir is the largest length of the directory's path. It leaves room for a slash
	// and a MAC address.
	maxSwitchDir = vhostuser.MaxPath - 18
)

// parseSwitch parses the part of a specification behind "vhost-user:".
func parseSwitch(text string) (*userSwitch, error) {
	words := strings.Split(text, ",")
	s := &userSwitch{dir: filepath.Clean(words[0]), mtu: defaultMTU}
	bad := fmt.Errorf("must be %s/DIRECTORY, with ,client or ,mtu=%d to %d behind it, or both",
		vhostuser.Prefix, minMTU, vnet.MaxPacket)
	if !filepath.IsAbs(words[0]) {
		return nil, bad
	}
	for _, w := range words[1:] {
		mtu, is := strings.CutPrefix(w, "mtu=")
		n, err := strconv.Atoi(cmp.Or(mtu, "0"))
		switch {
		case w == "client":
			s.client = true
		case is && err == nil && n >= minMTU && n <= vnet.MaxPacket:
			s.mtu = n
		default:
			return nil, bad
		}
	}
	if len(s.dir) > maxSwitchDir {
		return nil, fmt.Errorf("the path of its directory has at most %d bytes, and this one %d", maxSwitchDir, len(s.dir))
	}
	return s, nil
}

// Info implements site, and describes the switch as a whole. The state of a link is known to its port
// only.
func (s *userSwitch) Info() (Info, error) {
	st, err := os.Stat(s.dir)
	switch {
	case err != nil:
		return Info{}, fmt.Errorf("%w (the directory of the sockets has to be there: mkdir -p %s)", err, s.dir)
	case !st.IsDir():
		return Info{}, fmt.Errorf("%s is not a directory", s.dir)
	}
	return Info{Name: s.dir, Type: string(VhostUser), LinkState: LinkState{Up: true, MTU: s.mtu}}, nil
}

// socket returns the address of the socket for the port of the host with this MAC address.
func (s *userSwitch) socket(mac net.HardwareAddr) vhostuser.Address {
	name := strings.ReplaceAll(mac.String(), ":", "-")
	return vhostuser.Address{Path: filepath.Join(s.dir, name), Client: s.client}
}

// switchPort is a port of a switch in user space: a virtio-net device, for which the switch
// has the driver.
type switchPort struct {
	on   *userSwitch
	name string // path of the socket

	port
	learned
	dev    *vhostuser.Device
	queues []Queue
	last   Stats // as of the last call of Stats before the port was closed; guarded by port.lock
}

var _ Interface = (*switchPort)(nil)

// open implements site.
func (s *userSwitch) open(cfg Config) (Interface, error) {
	if cfg.Latency != nil {
		return nil, fmt.Errorf("%w: a switch in user space does not say which frames are latency-sensitive",
			steer.ErrUnavailable)
	}
	if _, err := s.Info(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	at := s.socket(cfg.MAC)
	d, err := vhostuser.Open(vhostuser.Config{Address: at, Pairs: cfg.Queues, Offloads: cfg.Offloads, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	p := &switchPort{on: s, name: at.Path, dev: d}
	p.port = port{label: "port " + at.Path, mac: slices.Clone(cfg.MAC), offloads: cfg.Offloads}
	p.learned = learned{&p.port}
	for _, q := range d.Queues() {
		p.queues = append(p.queues, switchQueue{q})
	}
	return p, nil
}

func (p *switchPort) Name() string { return p.name }

func (p *switchPort) Queues() []Queue { return p.queues }

func (p *switchPort) State() (s LinkState, err error) {
	err = p.do("reading the link state", func() error {
		s, _ = p.state()
		return nil
	})
	return s, err
}

// state returns the state of the link, and a channel that is closed when the state may have
// changed. The port has to be open.
func (p *switchPort) state() (LinkState, <-chan struct{}) {
	up, changed := p.dev.Up()
	return LinkState{Up: up, MTU: p.on.mtu}, changed
}

// Watch implements Interface. The link is up while the switch receives from the port.
func (p *switchPort) Watch(ctx context.Context, fn func(LinkState)) error {
	for first, last := true, (LinkState{}); ; first = false {
		var now LinkState
		var changed <-chan struct{}
		err := p.do("watching", func() error {
			now, changed = p.state()
			return nil
		})
		if err != nil {
			return err
		}
		if first || now != last {
			fn(now)
		}
		last = now
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// SetOffloads implements Interface. If frames of the switch need other offloads, the work is
// done in software.
func (p *switchPort) SetOffloads(o vnet.Offloads) (vnet.Offloads, error) {
	err := p.do("setting offloads", func() error {
		p.dev.SetOffloads(o)
		p.offloads = o
		return nil
	})
	return o, err
}

func (p *switchPort) SetUp(up bool) error {
	return p.do(whatUp(up), func() error { return p.dev.SetUp(up) })
}

func (p *switchPort) Floods() bool { return true }

func (p *switchPort) EarlyDiscard() discard.Status {
	return discard.Status{Reason: "a vhost-user port has no queue of the kernel's"}
}

func (p *switchPort) Announce(frame []byte) error {
	return p.do("announcing", func() error { return p.dev.Announce(frame) })
}

// Stats implements Interface. Frames that the switch drops because a ring is full are counted
// by the switch.
func (p *switchPort) Stats() Stats {
	p.lock.Lock()
	defer p.lock.Unlock()
	if !p.closed {
		p.last = Stats{Invalid: p.dev.Status().Refused}
	}
	return p.last
}

func (p *switchPort) Close() error {
	p.Stats()
	p.lock.Lock()
	open := p.shut()
	p.lock.Unlock()
	if !open {
		return nil
	}
	return p.dev.Close()
}

// switchQueue is one queue of a switchPort.
type switchQueue struct{ *vhostuser.Queue }

// Close implements Queue and does nothing: the port's Close closes its queues.
func (q switchQueue) Close() error { return nil }
