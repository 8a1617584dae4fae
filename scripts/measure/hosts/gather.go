package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/splitnic/splitnic/fabric/fabrictest"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// load is how many hosts come at once, and to what.
type load struct {
	hosts  int
	ports  string
	stay   time.Duration // once all are in
	flood  time.Duration // after that, for which all of them send frames as fast as they can
	within time.Duration // bounds the wait for that
}

// The kinds of ports.
const (
	macvtapPorts = "macvtap"
	noPorts      = "none"
)

// result is what became of them.
type result struct {
	allIn     time.Duration // until all had a carrier at the same time; 0: they never had
	silent    int           // sessions that ended because one side did not hear the other
	crowded   uint64        // connections that the I/O unit closed because there were too many
	refused   int           // hosts that were refused once or more
	again     int           // hosts that were refused more than once
	ended     map[string]uint64
	refusals  map[string]uint64
	reasons   map[string]uint64
	processor time.Duration // of this process, until all were in
	idle      idle          // while they stayed
	flood     *flood        // nil: there was none
}

// gathering is an I/O unit and the hosts on their way to it.
type gathering struct {
	unit    *iounit.Unit
	network *fabrictest.Network
	hosts   []*host.Host
	netdevs []*netdev
	lan     sinks
	said    tally // by the hosts
	log     *slog.Logger
	tasks   testbed.Tasks

	mu  sync.Mutex
	in  int           // hosts that are connected
	all chan struct{} // closed when all are
}

// gather has the hosts connect.
func gather(ctx context.Context, c load) (_ result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	m := &gathering{network: fabrictest.New(), all: make(chan struct{}), log: log}
	port, free, err := portsOf(c.ports, &m.lan)
	if err != nil {
		cancel()
		return result{}, err
	}
	defer func() { err = errors.Join(err, free()) }()
	defer func() {
		cancel()
		err = errors.Join(err, m.tasks.Wait())
		for _, d := range m.netdevs {
			err = errors.Join(err, d.port.Close())
		}
	}()
	keys := make([]*session.Key, c.hosts+1) // the last one is the I/O unit's
	trust := &session.Trust{}
	for i := range keys {
		if keys[i], err = session.GenerateKey(); err != nil {
			return result{}, err
		}
		if err := trust.Add(fmt.Sprintf("h%d=%v", i, keys[i].Fingerprint())); err != nil {
			return result{}, err
		}
	}
	own := keys[c.hosts]
	address, err := m.serve(ctx, c.hosts, own, trust, port)
	if err != nil {
		return result{}, err
	}
	for i := range c.hosts {
		if err := m.host(i, keys[i], own.Fingerprint(), address); err != nil {
			return result{}, err
		}
	}
	began, before := time.Now(), used()
	for _, h := range m.hosts {
		m.tasks.Go(func() error { return h.Run(ctx) })
	}
	var r result
	late := time.NewTimer(c.within)
	defer late.Stop()
	select {
	case <-m.all:
		r.allIn = time.Since(began)
		r.processor = used() - before
		err = results.Pause(ctx, settle) // what it took to connect is collected
		end := beginIdle(c.hosts)
		late.Reset(c.stay)
		select {
		case <-late.C:
			if err == nil {
				r.idle, err = end()
				r.idle.registered = m.registered()
			}
			if err == nil && c.flood > 0 {
				r.flood, err = m.flood(ctx, c.flood)
			}
		case <-ctx.Done():
		}
	case <-late.C:
		r.processor = used() - before
	case <-ctx.Done():
	}
	m.count(&r)
	return r, errors.Join(err, ctx.Err())
}

// serve starts the I/O unit and returns the port that it listens on.
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
		// As the command has it.
		c.MaxHandshakes = max(session.DefaultMaxHandshakes, hosts)
		return session.NewListener(apart{tcp}, c)
	})
	if err != nil {
		return "", err
	}
	// As many as the command has for one queue.
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

// host makes host i, with an address of its own in 127.0.0.0/8.
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

// changed counts a host that has come or gone.
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

// count counts what became of the hosts.
func (m *gathering) count(r *result) {
	s := m.unit.Status()
	r.ended, r.refusals = s.Ended, s.Refusals
	r.silent = int(s.Ended["silent"])
	r.crowded = s.Refusals["too-many-handshakes"] + s.Refusals["too-many-handshakes-address"]
	m.said.mu.Lock()
	defer m.said.mu.Unlock()
	r.silent += m.said.silent
	r.reasons = maps.Clone(m.said.reasons)
	for _, h := range m.hosts {
		hs := h.Status()
		hs.Attempts -= max(hs.Sessions-1, 0)
		if hs.Attempts > 0 {
			r.refused++
		}
		if hs.Attempts > 1 {
			r.again++
		}
	}
}

// used is what this process has used of processors.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for a bad argument only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// ports are how the I/O unit sees its network card.
type ports struct {
	open  func(mac net.HardwareAddr, queues int) (lan.Interface, error)
	state func() (lan.LinkState, error)
}
