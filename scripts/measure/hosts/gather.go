package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/splitnic/splitnic/internal/bench"
	"github.com/splitnic/splitnic/lan"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/scripts/measure/testbed"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/iounit"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/splitdrv/session"
	"github.com/splitnic/splitnic/vnet"
)

// Metrics with goals.
const (
	allIn   = "all in"
	silent  = "silent"
	crowded = "crowded"
	refused = "refused"
	busiest = "busiest"
	idling  = "processor while idle"
)

// The kinds of ports.
const (
	macvtapPorts = "macvtap"
	noPorts      = "none"
)

// load says how many hosts connect at once, and to which kind of ports.
type load struct {
	hosts  int
	ports  string
	stay   time.Duration // how long the hosts stay after all have connected
	flood  time.Duration // how long all of them send frames as fast as they can after that
	within time.Duration // limit for all hosts to connect
}

// gathering is an I/O unit and the hosts that connect to it.
type gathering struct {
	*testbed.Bed
	load
	unit  *iounit.Unit
	hosts []*host.Host
	nets  []netdev
	quiet silences // of the I/O unit, that hosts have logged

	mu     sync.Mutex
	ports  []port // that cost nothing, in the order in which they were opened
	in     int    // number of connected hosts
	enough sync.Once
	all    chan struct{} // closed by enough, when all hosts are connected
}

// gather starts an I/O unit, makes the hosts connect to it, and records what happened.
func gather(ctx context.Context, c load, sink results.Sink) (err error) {
	b, ctx, err := testbed.New(ctx, "hosts")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	m := &gathering{Bed: b, load: c, all: make(chan struct{})}
	keys := make([]*session.Key, c.hosts+1) // the last one is the I/O unit's
	var trusted []string
	for i := range keys {
		if keys[i], err = session.GenerateKey(); err != nil {
			return err
		}
		trusted = append(trusted, fmt.Sprintf("h%d=%v", i, keys[i].Fingerprint()))
	}
	own := keys[c.hosts]
	at, err := m.serve(ctx, own, trusted)
	if err != nil {
		return err
	}
	begin, used := time.Now(), bench.CPU()
	for i := range c.hosts {
		if err := m.host(ctx, i, keys[i], own.Fingerprint(), at); err != nil {
			return err
		}
	}
	late := time.NewTimer(c.within)
	defer late.Stop()
	select {
	case <-m.all:
		sink.Add(allIn, "s", time.Since(begin).Seconds())
		sink.Add("processor", "s", (bench.CPU() - used).Seconds())
		err = m.idle(ctx, sink)
		if err == nil && c.flood > 0 {
			err = m.flooded(ctx, sink)
		}
	case <-late.C:
		fmt.Fprintf(os.Stderr, "not all of %d hosts were connected within %v\n", c.hosts, c.within)
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.count(sink)
	return err
}

// serve starts the I/O unit, and returns the TCP port on which it listens.
func (m *gathering) serve(ctx context.Context, own *session.Key, trusted []string) (string, error) {
	security, err := testbed.Trusting(own, trusted...)
	if err != nil {
		return "", err
	}
	c, port, ns := iounit.Config{Name: "unit", MaxHosts: m.load.hosts}, "", ""
	if m.load.ports == macvtapPorts {
		port = "macvtap:eth1"
		if ns, err = m.NetNS("card"); err == nil {
			err = testbed.Pair(ns, "eth1", ns, "lan0")
		}
	} else {
		c.OpenLAN = m.open
		c.LinkState = func() (lan.LinkState, error) { return steady, nil }
	}
	if err != nil {
		return "", err
	}
	var address string
	m.unit, address, err = m.Unit(ctx, c, port, ns, security, func(c session.ServerConfig) (*session.Listener, error) {
		tcp, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			return nil, err
		}
		// As in the command.
		c.MaxHandshakes = max(session.DefaultMaxHandshakes, m.load.hosts)
		return session.NewListener(apart{tcp}, c)
	})
	if err != nil {
		return "", err
	}
	// As many Ps as the command has with one queue.
	runtime.GOMAXPROCS(runtime.NumCPU() + 4)
	_, at, err := net.SplitHostPort(address)
	return at, err
}

// open opens a port that costs nothing.
func (m *gathering) open(mac net.HardwareAddr, _ int) (lan.Interface, error) {
	d, err := newDevice(mac)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ports = append(m.ports, port{d})
	return port{d}, nil
}

// apart makes connections to different local addresses look as if they came from different machines.
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

// host starts host i. The host connects to a separate address in 127.0.0.0/8, which apart makes
// the address of the host.
func (m *gathering) host(ctx context.Context, i int, own *session.Key, unit session.Fingerprint, at string) error {
	security, err := testbed.Trusting(own, unit.String())
	if err != nil {
		return err
	}
	d, err := newDevice(nil)
	if err != nil {
		return err
	}
	m.Later(d.Close)
	m.nets = append(m.nets, netdev{d})
	connected := false // OnState is called by one goroutine at a time
	h, err := m.Host(ctx, host.Config{
		Name: fmt.Sprintf("h%d", i), Security: security, Netdev: netdev{d}, Offloads: vnet.AllOffloads,
		Log:     slog.New(&m.quiet),
		IOUnits: []string{fmt.Sprintf("127.1.%d.%d:%s", i/250, 1+i%250, at)},
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
	if m.in++; m.in == m.load.hosts {
		m.enough.Do(func() { close(m.all) })
	}
}

// count records what happened to the hosts.
func (m *gathering) count(sink results.Sink) {
	s := m.unit.Status()
	failed, again := 0, 0
	for _, h := range m.hosts {
		hs := h.Status()
		hs.Attempts -= max(hs.Sessions-1, 0)
		failed += min(hs.Attempts, 1)
		again += min(max(hs.Attempts-1, 0), 1)
	}
	sink.Add(silent, "sessions", float64(s.Ended["silent"]+m.quiet.n.Load()))
	sink.Add(crowded, "connections",
		float64(s.Refusals["too-many-handshakes"]+s.Refusals["too-many-handshakes-address"]))
	sink.Add(refused, "hosts", float64(failed))
	sink.Add("refused more than once", "hosts", float64(again))
}

// silences is a log handler that counts the sessions that ended because a host received nothing.
type silences struct{ n atomic.Uint64 }

// Enabled implements slog.Handler.
func (s *silences) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (s *silences) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s *silences) WithGroup(string) slog.Handler { return s }

// Handle implements slog.Handler.
func (s *silences) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && errors.Is(err, messaging.ErrPeerSilent) {
			s.n.Add(1)
		}
		return true
	})
	return nil
}

// idle records what the hosts and the I/O unit use while no frames pass. All values but processor
// are per host, for both endpoints.
func (m *gathering) idle(ctx context.Context, sink results.Sink) error {
	if err := results.Pause(ctx, settle); err != nil { // meanwhile garbage of connecting is collected
		return err
	}
	begin, used, woken := time.Now(), bench.CPU(), wakeups()
	if err := results.Pause(ctx, m.stay); err != nil {
		return err
	}
	took, n := time.Since(begin).Seconds(), float64(m.load.hosts)
	sink.Add(idling, "%", 100*(bench.CPU()-used).Seconds()/took)
	sink.Add("wake-ups while idle", "/s/host", (wakeups()-woken)/took/n)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	touched, err := resident()
	sink.Add("goroutines", "/host", float64(runtime.NumGoroutine())/n)
	sink.Add("descriptors", "/host", float64(len(open))/n)
	sink.Add("resident memory", "MB/host", float64(touched)/1e6/n)
	sink.Add("registered memory", "MB/host", m.registered()/1e6)
	return err
}

const (
	// settle is the shortest time for which hosts flood before the measurement. Hosts flood
	// until the memory that they have touched grows by a hundredth at most within settle, but
	// not longer than maxSettles times settle. Each host gets its pools in this time, and with
	// 512 hosts the kernel has gigabytes to clear. Devices touch all memory when it is
	// registered.
	settle     = time.Second
	maxSettles = 60
)

// settled waits until the hosts have touched their memory. resident returns the number of bytes
// touched.
func settled(ctx context.Context, resident func() (uint64, error)) error {
	before := uint64(0)
	for range maxSettles {
		if err := results.Pause(ctx, settle); err != nil {
			return err
		}
		now, err := resident()
		if err != nil || now-min(before, now) <= now/100 {
			return err
		}
		before = now
	}
	return nil
}

// flooded makes all hosts send frames to the LAN, and records what they share.
func (m *gathering) flooded(ctx context.Context, sink results.Sink) error {
	for _, n := range m.nets {
		n.Flood(testbed.Frame(net.HardwareAddr{2, 0xff, 0, 0, 0, 1}, n.MAC(), 64)) // to nobody
	}
	if err := settled(ctx, resident); err != nil {
		return err
	}
	begin, used, before := time.Now(), bench.CPU(), m.taken()
	if err := results.Pause(ctx, m.flood); err != nil {
		return err
	}
	took, used, after := time.Since(begin), bench.CPU()-used, m.taken()
	sum := uint64(0)
	for i := range after {
		if i < len(before) { // a host whose session has ended meanwhile has another port
			after[i] -= before[i]
		}
		sum += after[i]
	}
	if sum == 0 {
		return errors.New("no frame came through")
	}
	mean := float64(sum) / float64(m.load.hosts)
	sink.Add("frames of 64 bytes", "/s", float64(sum)/took.Seconds())
	sink.Add("processor for a frame", "µs", 1e6*used.Seconds()/float64(sum))
	sink.Add(busiest, "of the mean", float64(slices.Max(after))/mean)
	sink.Add("least", "of the mean", float64(slices.Min(after))/mean)
	sink.Add("registered memory after the flood", "MB/host", m.registered()/1e6)
	return nil
}

// taken returns how many frames each port has accepted.
func (m *gathering) taken() (n []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.ports {
		n = append(n, p.Taken())
	}
	return n
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
	return float64(sum) / float64(m.load.hosts)
}

// wakeups returns how often goroutines of this process have been woken so far. The runtime measures
// the latency of one wake-up in eight.
func wakeups() (n float64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, count := range sample[0].Value.Float64Histogram().Counts {
		n += 8 * float64(count)
	}
	return n
}

// resident returns how many bytes of memory this process has touched.
func resident() (uint64, error) {
	p, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return uint64(stat.ResidentMemory()), err
}
