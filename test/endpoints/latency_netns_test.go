package endpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap/steer"
	"github.com/splitnic/splitnic/vnet"
)

// markedSocket opens a UDP socket in ns whose datagrams are marked EF.
func markedSocket(ns, addr string) (c *net.UDPConn, err error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		e := raw.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 46<<2); err == nil {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, 46<<2) // IPv6 only
			}
		})
		return errors.Join(e, err)
	}}
	err = netns.Do(ns, func() error {
		p, err := lc.ListenPacket(context.Background(), "udp", net.JoinHostPort(addr, "0"))
		if err == nil {
			c = p.(*net.UDPConn)
		}
		return err
	})
	return c, err
}

// echo sends n datagrams of size bytes from a host to the LAN and waits for the answer to each.
func echo(from, fromAddr, to, toAddr string, n, size int) error {
	server, err := markedSocket(to, toAddr)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, peer, err := server.ReadFromUDP(buf)
			if err == nil {
				_, err = server.WriteToUDP(buf[:n], peer)
			}
			if err != nil {
				served <- err
				return
			}
		}
	}()
	client, err := markedSocket(from, fromAddr)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	err = client.SetDeadline(time.Now().Add(testenv.Patience))
	buf := make([]byte, 1<<16)
	for i := 0; i < n && err == nil; i++ {
		out := bytes.Repeat([]byte{byte(i)}, size)
		var got int
		if _, err = client.WriteToUDP(out, server.LocalAddr().(*net.UDPAddr)); err != nil {
			break
		}
		if got, _, err = client.ReadFromUDP(buf); err == nil && !bytes.Equal(buf[:got], out) {
			err = fmt.Errorf("%d bytes came back that are not the %d sent", got, size)
		}
	}
	err = errors.Join(err, client.Close(), server.Close())
	<-served
	return err
}

// channels returns the counters of both endpoints of the only session.
func (s *testbed) channels(t *testing.T) (host, unit []messaging.ChannelStats) {
	t.Helper()
	us := s.unit.Status().Hosts
	if len(us) != 1 {
		t.Fatalf("%d hosts", len(us))
	}
	return s.host.Status().Traffic.Channels, us[0].Traffic.Channels
}

// TestNetnsLatencyChannel floods a host and the LAN with streams in both directions, and sends
// marked datagrams back and forth meanwhile. The datagrams have to cross on the latency channel,
// and no frame of the streams may.
func TestNetnsLatencyChannel(t *testing.T) {
	const echoes = 300
	classes := steer.DefaultClasses()
	for _, kind := range []string{"macvtap", "packet", "tap"} {
		for _, queues := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s %d queues", kind, queues), func(t *testing.T) {
				s := newSteeredTestbed(t, kind, 1500, queues, 4, &classes)
				if l := s.host.Status().Latency; l == nil || !l.On {
					t.Fatalf("host: %+v", l)
				}
				if l := s.unit.Status().Hosts[0].Latency; l == nil || !l.On {
					t.Fatalf("I/O unit: %+v", l)
				}
				beforeHost, beforeUnit := s.channels(t)
				var wg sync.WaitGroup
				for i, way := range [][3]string{
					{s.hostNS, s.lanNS, lanAddr}, {s.lanNS, s.hostNS, "10.78.0.2"},
					{s.hostNS, s.lanNS, lanAddr6}, {s.lanNS, s.hostNS, "fd78::2"},
				} {
					wg.Go(func() {
						if err := transfer(way[0], way[1], way[2], uint64(i), 32<<20); err != nil {
							t.Errorf("to %s: %v", way[2], err)
						}
					})
				}
				for _, addr := range [][2]string{{"10.78.0.2", lanAddr}, {"fd78::2", lanAddr6}} {
					for _, size := range []int{40, 1400} {
						wg.Go(func() {
							if err := echo(s.hostNS, addr[0], s.lanNS, addr[1], echoes/4, size); err != nil {
								t.Errorf("%d bytes to %s: %v", size, addr[1], err)
							}
						})
					}
				}
				wg.Wait()
				host, unit := s.channels(t)
				last := queues - 1
				for name, c := range map[string][2]messaging.ChannelStats{"host": {beforeHost[last], host[last]},
					"I/O unit": {beforeUnit[last], unit[last]}} {
					tx, rx := c[1].TxFrames-c[0].TxFrames, c[1].RxFrames-c[0].RxFrames
					if tx < echoes || rx < echoes || tx > 2*echoes || rx > 2*echoes {
						t.Errorf("%s: %d frames sent and %d received on the latency channel, for %d datagrams", name, tx, rx, echoes)
					}
					if c[1].TxTooLong != 0 || c[1].TxBytes > c[1].TxFrames*(1500+vnet.HdrLen+vnet.EthLen) {
						t.Errorf("%s: %d bytes in %d frames, and %d that were too long", name, c[1].TxBytes, c[1].TxFrames,
							c[1].TxTooLong)
					}
				}
				for i := range last {
					if c := host[i]; c.TxBytes+c.RxBytes < 8<<20 && queues == 2 {
						t.Errorf("data channel %d carried %d bytes", i+1, c.TxBytes+c.RxBytes)
					}
				}
			})
		}
	}
}

// TestNetnsNoLatencyChannel has a host without a latency channel, and expects its marked datagrams
// to cross with other frames.
func TestNetnsNoLatencyChannel(t *testing.T) {
	s := newQueuedTestbed(t, "macvtap", 1500, 2, 4)
	if err := echo(s.hostNS, "10.78.0.2", s.lanNS, lanAddr, 50, 100); err != nil {
		t.Error(err)
	}
	host, unit := s.channels(t)
	for i := range host {
		if host[i].Latency || unit[i].Latency {
			t.Errorf("data channel %d is a latency channel", i+1)
		}
	}
	if l := s.host.Status().Latency; l != nil {
		t.Errorf("the host's status: %+v", l)
	}
}
