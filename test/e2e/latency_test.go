package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
)

// efUDP opens a UDP socket in ns whose datagrams have the DSCP EF.
func efUDP(ns, at string) (c *net.UDPConn, err error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		e := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 46<<2) })
		return errors.Join(e, err)
	}}
	err = netns.Do(ns, func() error {
		p, err := lc.ListenPacket(context.Background(), "udp4", at)
		if err == nil {
			c = p.(*net.UDPConn)
		}
		return err
	})
	return c, err
}

// echoEF sends n datagrams with the DSCP EF from network namespace from to address at in network
// namespace to, where they are echoed. Each is sent after the previous one has come back.
func echoEF(from, to, at string, n int) error {
	server, err := efUDP(to, at+":0")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, peer, err := server.ReadFromUDP(buf)
			if err != nil {
				return // the socket is closed
			}
			if _, err := server.WriteToUDP(buf[:n], peer); err != nil {
				return // the client's read fails
			}
		}
	})
	defer wg.Wait()
	defer server.Close()
	client, err := efUDP(from, ":0")
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		return err
	}
	buf := make([]byte, 2048)
	for i := range n {
		out := bytes.Repeat([]byte{byte(i)}, 100+i)
		if _, err := client.WriteToUDP(out, server.LocalAddr().(*net.UDPAddr)); err != nil {
			return err
		}
		got, _, err := client.ReadFromUDP(buf)
		if err != nil {
			return fmt.Errorf("datagram %d: %w", i, err)
		}
		if !bytes.Equal(buf[:got], out) {
			return fmt.Errorf("datagram %d came back as another one", i)
		}
	}
	return nil
}

// TestRDMALatencyQueue exchanges datagrams with the DSCP EF while TCP connections use the ordinary
// channel. The datagrams, and nothing else, have to pass on the latency channel. Its packets have to
// have their own traffic class on the fabric.
func TestRDMALatencyQueue(t *testing.T) {
	const bulk, low, datagrams = 0x28, 0xb8, 60
	marking := []string{"--traffic-class", fmt.Sprint(bulk), "--advanced.latency-traffic-class", fmt.Sprint(low)}
	for _, kind := range []string{"macvtap", "packet"} {
		t.Run(kind, func(t *testing.T) {
			r := newFixture(t, kind, append(marking, "--queues", "1")...)
			seen := map[netip.Addr]map[byte]int{}
			capture := startCapture(t, fabricNS, fabricPort, func(c captured) {
				if from, m, ok := marksOf(c.frame); ok {
					if seen[from] == nil {
						seen[from] = map[byte]int{}
					}
					seen[from][m.class]++
				}
			})
			h := r.host(t, append(marking, "--latency-queue")...)
			var wg sync.WaitGroup
			wg.Go(func() { manyConnections(t, h.ns, echoTCP(t, r.lan, addr(0)), 2, 1<<20) })
			wg.Go(func() {
				if err := echoEF(h.ns, r.lan, addr(0), datagrams); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			capture.close()

			hs, us := h.hostStatus(), r.unit.unitStatus()
			if hs.Latency == nil || !hs.Latency.On || us.Hosts[0].Latency == nil || !us.Hosts[0].Latency.On {
				t.Fatalf("the host says %+v, the I/O unit %+v", hs.Latency, us.Hosts[0].Latency)
			}
			for name, got := range map[string]*traffic{"host": hs.Traffic, "I/O unit": us.Hosts[0].Traffic} {
				if len(got.Channels) != 2 || got.Channels[0].Latency || !got.Channels[1].Latency {
					t.Fatalf("%s: %d data channels: %+v", name, len(got.Channels), got.Channels)
				}
				ordinary, c := got.Channels[0], got.Channels[1]
				if c.TxFrames < datagrams || c.RxFrames < datagrams || c.TxFrames > 2*datagrams || c.TxTooLong != 0 {
					t.Errorf("%s: latency channel: %d frames sent, %d received, %d too long", name, c.TxFrames, c.RxFrames,
						c.TxTooLong)
				}
				if c.TxBytes > c.TxFrames*400 || ordinary.TxBytes < 2<<20 {
					t.Errorf("%s: %d bytes on the latency channel, %d on the other", name, c.TxBytes, ordinary.TxBytes)
				}
			}
			if len(seen) != 2 {
				t.Errorf("packets of %d addresses", len(seen))
			}
			for from, classes := range seen {
				if classes[bulk] < 100 || classes[low] < datagrams || len(classes) != 2 {
					t.Errorf("packets from %v by traffic class: %v", from, classes)
				}
			}
		})
	}
}

// TestRDMALatencyQueueDeclined requests a latency queue from an I/O unit that does not offer one. The
// host has to work without it and report the reason.
func TestRDMALatencyQueueDeclined(t *testing.T) {
	r := newFixture(t, "macvtap", "--latency-queue=false")
	h := r.host(t, "--latency-queue")
	ping(t, h.ns, addr(0), 3, 1000)
	if s := h.hostStatus(); s.Latency == nil || s.Latency.On || s.Latency.Reason == "" || s.Traffic.Channels[0].Latency {
		t.Errorf("%+v", s.Latency)
	}
}
