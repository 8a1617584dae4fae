package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/statussock"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/scripts/measure/results"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/host/uplink"
)

// secondAddress is the address at which the second I/O unit listens.
const secondAddress = unitAddress + ":7581"

// pair is two I/O units on one LAN, each with its own network card, and a host that can use either
// I/O unit.
type pair struct {
	*fixture
	card2 string // network namespace of the second I/O unit's card
	units [2]*daemon
	host  *node
}

func newPair(t testing.TB, hostFlags ...string) *pair {
	t.Helper()
	r := makeFixture(t, "macvtap")
	r.startUnit()
	return r.pair(t, hostFlags...)
}

// pair adds a second I/O unit and a host to an I/O unit.
func (r *fixture) pair(t testing.TB, hostFlags ...string) *pair {
	t.Helper()
	p := &pair{fixture: r}
	p.card2 = testenv.NetNS(t)
	testenv.Veth(t, p.card2, "eth1", p.lan, "lan1")
	run(t, "ip", "-n", p.lan, "addr", "flush", "dev", "lan0")
	testenv.Bridge(t, p.lan, "br0", "lan0", "lan1")
	testenv.Address(t, p.lan, "br0", addr(0)+"/24")
	p.units[0] = p.fixture.unit
	p.host = p.fixture.host(t, append([]string{"--iounit", secondAddress}, hostFlags...)...)
	// The second I/O unit starts when the host has a session with the first, however long that takes.
	eventually(t, func() bool { return p.status().State == host.Connected }, "a session with the first I/O unit")
	p.startSecond()
	return p
}

func (p *pair) startSecond() {
	p.t.Helper()
	args := []string{
		"iounit", "--device", unitDevice, "--listen", secondAddress, "--lan", "macvtap:eth1", "--netns", p.card2,
		"--name", "second", "--peer-timeout", "10s", "--policy", p.policy,
	}
	args = append(args, security(false, p.keys.unit, "hosts="+p.keys.hostPrint)...)
	p.units[1] = startAs(p.t, p.prepare, p.bin, filepath.Join(p.dir, "second.sock"), filepath.Join(p.dir, "second.log"),
		args...)
	p.units[1].unitStatus()
}

// restart starts I/O unit i after it has ended.
func (p *pair) restart(i int) {
	p.t.Helper()
	if i == 0 {
		p.startUnit()
		p.units[0] = p.fixture.unit
		return
	}
	p.startSecond()
}

// serving returns the index of the I/O unit that the host uses.
func (p *pair) serving() int {
	if p.status().IOUnit.Address == secondAddress {
		return 1
	}
	return 0
}

// status reads the host's status from the socket. It starts no process, which would take processor
// time from the processes that are measured.
func (p *pair) status() (s host.Status) {
	p.t.Helper()
	raw, err := statussock.Read(p.t.Context(), p.host.sock)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// arrive waits until the host uses I/O unit i or, if standby is true, has a standby session with
// it. It returns the host's failover status.
func (p *pair) arrive(t testing.TB, i int, standby bool) uplink.FailoverStatus {
	t.Helper()
	want := []string{unitAddress, secondAddress}[i]
	var s host.Status
	eventually(t, func() bool {
		s = p.status()
		if standby {
			return s.Failovers.Standby == want
		}
		last := s.Failovers.Last // set a moment after the session is established
		return s.State == host.Connected && s.IOUnit.Address == want && last != nil && last.To == want
	}, "session with %s (standby %t)", want, standby)
	return s.Failovers
}

// TestRDMAFailover kills the I/O unit in use, without and with a standby session. The host has to
// move to the other I/O unit, with the same MAC address and without data loss on a TCP connection.
// A failover by command back to the first I/O unit must not change the carrier.
func TestRDMAFailover(t *testing.T) {
	for name, flags := range map[string][]string{"cold": nil, "standby": {"--standby"}} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, flags...)
			if flags != nil {
				p.arrive(t, 1, true)
			}
			k := hold(t, p.fixture, p.host)
			mac := p.host.mac()
			watch := watchCarrier(t, p.host.ns)
			killed := time.Now()
			p.units[0].kill()
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				k.send(t)
			}()
			f := p.arrive(t, 1, false)
			if f.Count[uplink.ReasonDied] != 1 || f.Last == nil || f.Last.From != unitAddress || f.Last.To != secondAddress {
				t.Errorf("the status counts %+v", f)
			}
			p.host.waitCarrier(true)
			t.Logf("carrier lost %v after the kill; %+v", watch.lost(killed), f.Last)
			<-sent
			k.send(t)
			if now := p.host.mac(); now != mac {
				t.Errorf("the MAC address changed from %s to %s", mac, now)
			}
			// The data may still be in the socket, so that the bridge has seen no frame yet.
			eventually(t, func() bool {
				return strings.Contains(run(t, "bridge", "-n", p.lan, "fdb", "show", "br", "br0"), mac+" dev lan1")
			}, "the bridge learns that %s is behind lan1", mac)

			p.restart(0)
			before := watch.changes.Load()
			out := run(t, p.bin, "host", "failover", p.host.sock, "--to", unitAddress)
			t.Logf("%s", out)
			p.arrive(t, 0, false)
			k.send(t)
			if n := watch.changes.Load(); n != before {
				t.Errorf("the carrier changed %d times on command", n-before)
			}
			k.check(t)
		})
	}
}

// carrierWatch polls the carrier. Notifications of the kernel do not suffice: they come up to a
// second after the loss, and not at all if the carrier is back by then.
type carrierWatch struct {
	changes atomic.Int64
	downAt  atomic.Int64 // nanoseconds since the epoch, of the last loss
}

func watchCarrier(t testing.TB, ns string) *carrierWatch {
	t.Helper()
	h, err := netns.Handle(ns)
	if err != nil {
		t.Fatal(err)
	}
	w := &carrierWatch{}
	over, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(over)
		<-ended
		h.Close()
	})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for up := true; ; {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			l, err := h.LinkByName("sn0")
			if err != nil {
				continue
			}
			if now := l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0; now != up {
				up = now
				w.changes.Add(1)
				if !now {
					w.downAt.Store(time.Now().UnixNano())
				}
			}
		}
	}()
	return w
}

// lost returns the time from since to the last loss of the carrier.
func (w *carrierWatch) lost(since time.Time) time.Duration {
	return time.Unix(0, w.downAt.Load()).Sub(since)
}

// answers sends a datagram about every millisecond and records the first answer after a mark.
type answers struct {
	c     *net.UDPConn
	first atomic.Int64 // ns since the epoch: first answer to a datagram sent after mark; 0 for none
	mark  atomic.Int64 // ns since the epoch; 0 before begin
}

func newAnswers(t testing.TB, p *pair) *answers {
	t.Helper()
	server, c := udpPair(t, p.lan, addr(0), p.host.ns)
	for _, x := range []*net.UDPConn{server, c} {
		if err := x.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	e := &answers{c: c}
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		b := make([]byte, 8)
		for {
			select {
			case now := <-tick.C:
				binary.BigEndian.PutUint64(b, uint64(now.UnixNano()))
				_, _ = c.Write(b) // fails while there is no carrier
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		b := make([]byte, 64)
		for {
			n, err := c.Read(b)
			if ctx.Err() != nil {
				return
			}
			if err != nil || n != 8 {
				continue
			}
			if sent, mark := int64(binary.BigEndian.Uint64(b)), e.mark.Load(); mark != 0 && sent > mark {
				e.first.CompareAndSwap(0, time.Now().UnixNano())
			}
		}
	}()
	return e
}

func (e *answers) begin(at time.Time) {
	e.first.Store(0)
	e.mark.Store(at.UnixNano())
}

// stream is a TCP connection on which blocks are sent, echoed and compared all the time. A broken
// connection is replaced.
type stream struct {
	bytes  atomic.Int64
	broken atomic.Int64
	wrong  atomic.Int64
}

func newStream(t testing.TB, p *pair) *stream {
	t.Helper()
	l := testenv.ListenTCP(t, p.lan, addr(0))
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	s := &stream{}
	var over atomic.Bool
	var conn atomic.Pointer[net.TCPConn]
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		block, got := pattern(64<<10, 7), make([]byte, 64<<10)
		for !over.Load() {
			c, err := dialTCP(p.host.ns, l.Addr().String())
			if err != nil {
				continue
			}
			_ = c.SetDeadline(time.Time{})
			conn.Store(c)
			for i := 0; !over.Load(); i++ {
				binary.BigEndian.PutUint64(block, uint64(i))
				_, err := c.Write(block)
				if err == nil {
					_, err = io.ReadFull(c, got)
				}
				if over.Load() {
					break
				}
				if err != nil {
					s.broken.Add(1)
					break
				}
				if !bytes.Equal(got, block) {
					s.wrong.Add(1)
				}
				s.bytes.Add(int64(len(got)))
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		over.Store(true)
		if c := conn.Load(); c != nil {
			c.Close()
		}
		<-ended
	})
	return s
}

// noticing is longer than the kernel delays the handling of a carrier change that follows another
// one.
const noticing = 1200 * time.Millisecond

// BenchmarkRDMAFailover kills the I/O unit in use repeatedly and measures the failovers: see
// `make bench-failover`. The environment variable ROUNDS is the number of kills, and
// SPLITNIC_SAMPLES is the file for the results.
func BenchmarkRDMAFailover(b *testing.B) {
	rounds, err := strconv.Atoi(os.Getenv("ROUNDS"))
	if err != nil || os.Getenv("SPLITNIC_SAMPLES") == "" {
		b.Skip("make bench-failover runs this")
	}
	rec := recorder(b)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	for _, way := range []string{"cold", "standby"} {
		var flags []string
		if way == "standby" {
			flags = append(flags, "--standby")
		}
		b.Run(way, func(b *testing.B) {
			p := newPair(b, flags...)
			watch, e, s := watchCarrier(b, p.host.ns), newAnswers(b, p), newStream(b, p)
			sink := rec.Of("failover", way, 1500)
			for range rounds {
				from := p.serving()
				if way == "standby" {
					p.arrive(b, 1-from, true)
				}
				before := s.bytes.Load()
				eventually(b, func() bool { return s.bytes.Load() > before }, "the TCP connection goes on")
				// The kernel handles a carrier change that follows another one up to a second
				// later. Without the pause it would keep its neighbour entries, which happens
				// only in this benchmark.
				time.Sleep(noticing)
				at := time.Now()
				e.begin(at)
				p.units[from].kill()
				f := p.arrive(b, 1-from, false)
				eventually(b, func() bool { return e.first.Load() != 0 }, "an answer through the other I/O unit")
				sink.Add("carrier lost", "ms", ms(watch.lost(at)))
				sink.Add("first answer", "ms", ms(time.Unix(0, e.first.Load()).Sub(at)))
				sink.Add("detected to established", "ms", ms(f.Last.Took))
				for _, st := range f.Last.Stages {
					sink.Add("stage: "+st.Name, "ms", ms(st.Took))
				}
				p.restart(from)
			}
			before := s.bytes.Load()
			eventually(b, func() bool { return s.bytes.Load() > before }, "the TCP connection goes on")
			sink.Add("bytes echoed", "bytes", float64(s.bytes.Load()))
			sink.Add("connections broken", "times", float64(s.broken.Load()))
			sink.Add("blocks wrong", "times", float64(s.wrong.Load()))
		})
	}
}

// recorder returns a recorder of results for the file that SPLITNIC_SAMPLES names. Without the
// variable the results are discarded.
func recorder(t testing.TB) *results.Recorder {
	t.Helper()
	path := os.Getenv("SPLITNIC_SAMPLES")
	if path == "" {
		return results.NewRecorder(io.Discard)
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	rec := results.NewRecorder(out)
	t.Cleanup(func() {
		if err := errors.Join(rec.Err(), out.Close()); err != nil {
			t.Error(err)
		}
	})
	return rec
}
