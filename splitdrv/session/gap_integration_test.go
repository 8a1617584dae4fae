package session

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsShortGap cuts the network for more than a third of the peer time-out, just before a
// heartbeat is sent. The session has to survive, also where the kernel retransmits rarely because
// the network is slow: after the gap there must be a retransmission before the kernel gives up.
// With exponential back-off there would be none.
func TestNetnsShortGap(t *testing.T) {
	const (
		peerTimeout = 6 * time.Second
		// The kernel gives up 3.6 or 4.2 s after a packet. With back-off, it retransmits 0.6,
		// 1.2 and 2.4 s after it, or, without a tail loss probe, 0.6 and 1.8 s.
		retransmission = 600 * time.Millisecond
		gap            = 2700 * time.Millisecond
		longest        = gap + retransmission/2 // longer ones, of a busy machine, show nothing
	)
	for _, side := range []role{roleHost, roleUnit} {
		t.Run(side.String(), func(t *testing.T) {
			t.Parallel()
			for {
				m := newMachines(t, ServerConfig{PeerTimeout: peerTimeout})
				retransmitAfter(t, m.hostNS, "host0", retransmission)
				retransmitAfter(t, m.unitNS, "unit0", retransmission)
				c := m.dial(t, ClientConfig{PeerTimeout: peerTimeout})
				s := complete(t, m.ln, c)
				end := c.Conn
				if side == roleUnit {
					end = s.Conn
				}
				s.Vouch(true)
				c.Vouch(true)
				testenv.Eventually(t, func() bool { return acknowledged(t, end) }, "the handshake is not acknowledged")

				m.forward(t, false)
				began := time.Now()
				over := time.After(gap)
				end.Vouch(false) // sends a heartbeat
				testenv.Eventually(t, func() bool { return !acknowledged(t, end) }, "no heartbeat is sent")
				<-over
				m.forward(t, true)
				took := time.Since(began)
				testenv.Eventually(t, func() bool { return end.Err() != nil || acknowledged(t, end) },
					"nothing is acknowledged after the gap, and the connection does not end")
				err := end.Err()
				if err != nil && took > longest {
					t.Logf("the gap lasted for %v: once more", took)
					continue
				}
				if err != nil {
					t.Errorf("a gap of %v with a peer time-out of %v: %v", took, peerTimeout, err)
				}
				return
			}
		})
	}
}

// retransmitAfter sets the least time after which the kernel of ns retransmits a packet to the
// network of dev.
func retransmitAfter(t *testing.T, ns, dev string, d time.Duration) {
	t.Helper()
	link := testenv.Link(t, ns, dev)
	testenv.With(t, ns, func(h *netlink.Handle) error {
		routes, err := h.RouteList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, r := range routes {
			r.RtoMin, r.RtoMinLock = int(d.Milliseconds()), true
			if err := h.RouteReplace(&r); err != nil {
				return err
			}
		}
		return nil
	})
}

// acknowledged reports whether the TCP connection of c lasts and the peer's kernel has acknowledged
// all that was sent.
func acknowledged(t *testing.T, c *Conn) bool {
	t.Helper()
	raw, err := c.raw.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}) != nil {
		return false // closed
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.State == unix.BPF_TCP_ESTABLISHED && info.Unacked == 0
}
