package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/netns"
)

// pingSizes has payload sizes of echo requests in bytes: none, too short for a time stamp, the
// usual size, full frames at both MTUs, one byte more than a full frame, and many fragments.
var pingSizes = []int{0, 1, 56, 1472, 1473, 8972, 20000, 65507}

// ping sends echo requests of size bytes, each after the answer to the previous one. Every request
// has to be answered with the same payload. ping(8) is not suitable: it waits for the last answer
// at most twice as long as the earlier ones took, even if the machine has become slower.
func ping(t testing.TB, ns, to string, count, size int) {
	t.Helper()
	if err := echo(ns, netip.MustParseAddr(to), count, size); err != nil {
		t.Errorf("ping %s with %d bytes: %v", to, size, err)
	}
}

func echo(ns string, to netip.Addr, count, size int) error {
	network, request, reply := "ip4:icmp", byte(8), byte(0)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", 128, 129
	}
	var c *net.IPConn
	err := netns.Do(ns, func() (err error) {
		c, err = net.DialIP(network, nil, &net.IPAddr{IP: to.AsSlice()})
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	id := uint16(echoID.Add(1))
	buf := make([]byte, 1<<17)
	for seq := range count {
		message := append(make([]byte, 8), pattern(size, seq)...)
		message[0] = request
		binary.BigEndian.PutUint16(message[4:], id)
		binary.BigEndian.PutUint16(message[6:], uint16(seq))
		if to.Is4() { // for ICMPv6 the kernel computes the checksum, and checks that of the answer
			binary.BigEndian.PutUint16(message[2:], ^uint16(onesSum(0, message)))
		}
		if _, err := c.Write(message); err != nil {
			return fmt.Errorf("request %d of %d: %w", seq+1, count, err)
		}
		for {
			n, _, err := c.ReadFromIP(buf)
			if err != nil {
				return fmt.Errorf("answer %d of %d: %w", seq+1, count, err)
			}
			got := buf[:n]
			if n < 8 || got[0] != reply || !bytes.Equal(got[4:8], message[4:8]) {
				continue // the answer to another request
			}
			if to.Is4() && onesSum(0, got) != 0xffff {
				return fmt.Errorf("the checksum of answer %d is wrong", seq+1)
			}
			if !bytes.Equal(got[8:], message[8:]) {
				return fmt.Errorf("answer %d, of %d bytes, is not what was sent", seq+1, n-8)
			}
			break
		}
	}
	return nil
}

// echoID is the last identifier that was used in echo requests.
var echoID atomic.Uint32

func TestRDMAPing(t *testing.T) {
	inEachMode(t, "macvtap", func(t *testing.T, r *fixture) {
		h := r.host(t)
		for _, mtu := range []int{1500, 9000} {
			t.Run(fmt.Sprint("MTU ", mtu), func(t *testing.T) {
				if h.mtu() != mtu {
					r.setMTU(mtu)
				}
				for _, size := range pingSizes {
					ping(t, h.ns, addr(0), 2, size)
					ping(t, h.ns, addr6(0), 2, size)
				}
				// The longest possible frames, also towards the host.
				ping(t, r.lan, h.addr(), 2, mtu-28)
				ping(t, r.lan, h.addr6(), 2, mtu-48)
			})
		}
	})
}
