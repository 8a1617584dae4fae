package hosts

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// gathering is an I/O unit and the hosts that connect to it.
type gathering struct {
	unit    *iounit.Unit
	network *fabrictest.Network
	hosts   []*host.Host
	netdevs []*netdev
	lan     sinks
	said    tally // the log of the hosts
	log     *slog.Logger
	tasks   testbed.Tasks

	mu  sync.Mutex
	in  int           // number of connected hosts
	all chan struct{} // closed when all hosts are connected
}

// serve starts the I/O unit, and returns the TCP port on which it listens.
func (m *gathering) serve(
	ctx context.Context, hosts int, own *session.Key, trust *session.Trust, p ports,
) (string, error) {
	security, err := session.NewSecurity(own, "", trust)
	if err != nil {
		return "", err
	}
	var address string
	m.unit, address, err = testbed.Serve(ctx, &m.tasks, iounit.Config{
		Name: "unit", Software: "measure", Device: m.network.Device("unit"), Log: m.log, MaxHosts: hosts,
		OpenLAN: p.open, LinkState: p.state,
	}, security, func(c session.ServerConfig) (*session.Listener, error) {
		tcp, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			return nil, err
		}
		// As in the command.
		c.MaxHandshakes = max(session.DefaultMaxHandshakes, hosts)
		return session.NewListener(apart{tcp}, c)
	})
	if err != nil {
		return "", err
	}
	// As many Ps as the command has with one queue.
	runtime.GOMAXPROCS(runtime.NumCPU() + 4)
	_, port, err := net.SplitHostPort(address)
	return port, err
}

// apart makes connections to different local addresses look as if they came from
// different machines.
type apart struct{ net.Listener }

func (l apart) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return from{c}, nil
}

type from struct{ net.Conn }

func (c from) RemoteAddr() net.Addr {
	at := *c.Conn.RemoteAddr().(*net.TCPAddr)
	at.IP = c.Conn.LocalAddr().(*net.TCPAddr).IP
	return &at
}

// host makes host i. The host connects to a separate address in 127.0.0.0/8, which apart makes
// the address of the host.
func (m *gathering) host(i int, own *session.Key, unit session.Fingerprint, port string) error {
	trust := &session.Trust{}
	if err := trust.Add(unit.String()); err != nil {
		return err
	}
	security, err := session.NewSecurity(own, "", trust)
	if err != nil {
		return err
	}
	netdev, err := newNetdev()
	if err != nil {
		return err
	}
	m.netdevs = append(m.netdevs, netdev)
	name := fmt.Sprintf("h%d", i)
	connected := false // OnState is called by one goroutine at a time
	h, err := host.New(host.Config{
		Name: name, Software: "measure", Security: security,
		Device: m.network.Device(name), Netdev: netdev, Offloads: vnet.AllOffloads,
		IOUnits: []string{fmt.Sprintf("127.1.%d.%d:%s", i/250, 1+i%250, port)}, Log: slog.New(&m.said),
		OnState: func(s host.State) {
			if is := s == host.Connected; is != connected {
				connected = is
				m.changed(is)
			}
		},
	})
	m.hosts = append(m.hosts, h)
	return err
}

// changed counts a host that has connected, if in is set, or disconnected.
func (m *gathering) changed(in bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !in {
		m.in--
		return
	}
	if m.in++; m.in == len(m.hosts) {
		select {
		case <-m.all:
		default:
			close(m.all)
		}
	}
}

// registered returns how many bytes both endpoints of a host have registered, on average.
func (m *gathering) registered() float64 {
	sum := int64(0)
	for _, h := range m.unit.Status().Hosts {
		sum += h.Memory
	}
	for _, h := range m.hosts {
		if t := h.Status().Traffic; t != nil {
			sum += int64(t.MemoryPinned)
		}
	}
	return float64(sum) / float64(len(m.hosts))
}
