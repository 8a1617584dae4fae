package paths

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/epoll"
	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// TestNetnsPaths has two TAP devices exchange datagrams and a stream. The path between them changes
// many times during the datagrams, and the kernel at the other end has to get every datagram once
// and in order.
func TestNetnsPaths(t *testing.T) {
	testenv.NeedTUN(t)
	const queues, datagrams, changes = 2, 3000, 20
	macs := [2]protocol.MAC{own, peer}
	addrs := [2]string{"10.9.0.1", "10.9.0.2"}
	var ns [2]string
	var hosts [2]*liveHost
	for i := range ns {
		ns[i] = testenv.NetNS(t)
		testenv.DisableIPv6(t, ns[i])
		d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns[i], Queues: queues, MAC: macs[i][:], MTU: 1500,
			Offloads: vnet.AllOffloads})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		var ports []messaging.Port
		for _, q := range d.Queues() {
			ports = append(ports, q)
		}
		s, err := New(ports, Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := d.SetCarrier(true); err != nil {
			t.Fatal(err)
		}
		testenv.Address(t, ns[i], "sn0", addrs[i]+"/24")
		testenv.Up(t, ns[i], "sn0")
		hosts[i] = &liveHost{t: t, split: s}
	}
	over, err := epoll.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { over.Close() })
	var unit sync.WaitGroup
	for i, h := range hosts {
		ports := hosts[1-i].split.Uplink()
		for q, from := range h.split.Uplink() {
			unit.Go(func() {
				carry(t, from, over, func(frames [][]byte) {
					for range 20 {
						runtime.Gosched() // the path through the I/O unit is slower
					}
					for _, f := range frames {
						to := ports[q:][:1]
						if protocol.IsMarker(f) {
							to = ports
						}
						for _, p := range to {
							p.WriteFrames([]vnet.WriteOp{{Head: f}})
						}
					}
				})
			})
		}
	}
	testenv.Ping(t, ns[0], addrs[1])
	var busy atomic.Bool
	busy.Store(true)
	done := make(chan error, 1)
	go func() {
		done <- datagramsInOrder(ns, addrs[1], datagrams)
		busy.Store(false)
	}()
	direct, n := uint64(0), 0
	for ; busy.Load() || n < changes; n++ {
		direct += directly(t, hosts, macs, byte(n))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	testenv.Exchange(t, ns[1], addrs[1], ns[0], 4<<20)
	over.Set()
	unit.Wait()
	t.Logf("%d paths; %d frames went directly", n, direct)
	if direct == 0 {
		t.Error("no frame went directly")
	}
	for i, h := range hosts {
		if c := h.split.Counts(); c.UplinkFull > 0 {
			t.Errorf("host %d: %+v", i, c)
		}
	}
}

// datagramsInOrder sends n datagrams, with few in flight at a time, which are answered. It returns
// an error if a datagram arrives out of order or never.
func datagramsInOrder(ns [2]string, to string, n int) error {
	var client net.Conn
	var pc net.PacketConn
	if err := netns.Do(ns[1], func() (err error) {
		pc, err = net.ListenPacket("udp", to+":0")
		return err
	}); err != nil {
		return err
	}
	defer pc.Close()
	if err := netns.Do(ns[0], func() (err error) {
		client, err = net.Dial("udp", pc.LocalAddr().String())
		return err
	}); err != nil {
		return err
	}
	defer client.Close()
	deadline := time.Now().Add(3 * time.Minute)
	errs := errors.Join(pc.SetDeadline(deadline), client.SetDeadline(deadline))
	if errs != nil {
		return errs
	}
	ended := make(chan error, 1)
	go func() {
		ended <- func() error {
			buf := make([]byte, 2000)
			for want := range uint32(n) {
				_, from, err := pc.ReadFrom(buf)
				if err != nil {
					return fmt.Errorf("datagram %d: %w", want, err)
				}
				if got := binary.BigEndian.Uint32(buf); got != want {
					return fmt.Errorf("datagram %d instead of %d", got, want)
				}
				if _, err := pc.WriteTo(buf[:4], from); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	buf := make([]byte, 1000)
	answered := uint32(0)
	for i := range uint32(n) {
		binary.BigEndian.PutUint32(buf, i)
		if _, err := client.Write(buf[:4+i%900]); err != nil {
			return err
		}
		for i-answered >= 32 || i == uint32(n)-1 && answered < i {
			if _, err := client.Read(buf); err != nil {
				return fmt.Errorf("answer %d: %w; %w", answered, err, <-ended)
			}
			if got := binary.BigEndian.Uint32(buf); got != answered {
				return fmt.Errorf("answer %d instead of %d", got, answered)
			}
			answered++
		}
	}
	return <-ended
}
