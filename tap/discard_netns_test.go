package tap_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/tap/discard"
	"github.com/splitnic/splitnic/vnet"
)

// discards opens a device with neighbours, to which the tests send datagrams of 45 frames.
func discards(t *testing.T, ns string, open func(tap.Config) (*tap.Device, error), cfg tap.Config) *tap.Device {
	t.Helper()
	testenv.DisableIPv6(t, ns)
	cfg.Name, cfg.NetNS, cfg.Offloads = "sn0", ns, vnet.AllOffloads
	d, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.Up(); err != nil {
		t.Fatal(err)
	}
	if err := d.SetCarrier(true); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, ns, "sysctl", "-qw", "net.ipv6.conf.sn0.disable_ipv6=0", "net.ipv6.conf.sn0.accept_dad=0")
	testenv.Address(t, ns, "sn0", "10.0.0.1/24")
	testenv.Address(t, ns, "sn0", "fd00::1/64")
	for _, addr := range []string{"10.0.0.2", "fd00::2"} {
		testenv.Run(t, ns, "ip", "neigh", "replace", addr, "lladdr", "02:00:00:00:00:02", "dev", "sn0", "nud", "permanent")
	}
	return d
}

// flooded calls Flood. It repeats the call if another process had the processor for so long that
// all frames passed.
func flooded(t *testing.T, q testenv.Port, send func()) testenv.Pieces {
	t.Helper()
	for range 100 {
		if p, longest := testenv.Flood(t, q, send); longest < discard.Patience {
			return p
		}
	}
	t.Fatal("the reader is kept from reading again and again")
	return testenv.Pieces{}
}

// TestNetnsWholeDatagrams sends many times more to a queue than is read from the queue. With early
// packet discard, it expects each datagram to be either received or dropped as a whole.
func TestNetnsWholeDatagrams(t *testing.T) {
	testenv.NeedTUN(t)
	for kind, open := range openers {
		for _, addr := range []string{"10.0.0.2", "fd00::2"} {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s to %s, early %t", kind, addr, early), func(t *testing.T) {
					testenv.NoLeaks(t)
					ns := testenv.NetNS(t)
					d := discards(t, ns, open, tap.Config{NoDiscard: !early})
					p := flooded(t, d.Queues()[0], testenv.LongDatagrams(t, ns, addr, 60000))
					// 1400 frames were read during the flood, 384 after it.
					if early && (p.Broken > 0 || p.Whole < 35) || !early && p.Broken < 2*p.Whole {
						t.Errorf("%d whole datagrams were read, and parts of %d", p.Whole, p.Broken)
					}
				})
			}
		}
	}
}

// TestNetnsDiscardPreempted fills a queue while the reader, on the same processor, finds the queue
// empty. The new frames must not be counted as read.
func TestNetnsDiscardPreempted(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NoLeaks(t)
	ns := testenv.NetNS(t)
	q := discards(t, ns, tap.Open, tap.Config{}).Queues()[0]
	send := testenv.LongDatagrams(t, ns, "10.0.0.2", 1)
	const bursts, each = 1000, 64
	var processors unix.CPUSet
	if err := unix.SchedGetaffinity(0, &processors); err != nil {
		t.Fatal(err)
	}
	here := unix.CPUSet{}
	for i := 0; here.Count() == 0; i++ {
		if processors.IsSet(i) {
			here.Set(i)
		}
	}
	// The goroutine does not unlock its thread, so the thread, with its affinity, ends with the
	// goroutine.
	alone := func(done chan<- error, run func()) {
		runtime.LockOSThread()
		err := unix.SchedSetaffinity(0, &here)
		if err == nil {
			run()
		}
		done <- err
	}
	sent, read := make(chan error, 1), make(chan error, 1)
	var over atomic.Bool
	go alone(sent, func() {
		for i := range bursts {
			// The sleep can end at any point of the reader's code.
			_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(1000 * (50 + i%97))}, nil)
			for range each {
				send()
			}
		}
		over.Store(true)
	})
	least := 0
	go alone(read, func() {
		slot := make([]byte, vnet.Headroom+vnet.MaxFrame+1)
		for {
			last := over.Load()
			_, err := q.ReadFrame(slot)
			if err == nil {
				least = min(least, q.Waiting())
			} else if last {
				return
			}
		}
	})
	if err := errors.Join(<-sent, <-read); err != nil {
		t.Fatal(err)
	}
	// A few frames may be counted before they are in the queue.
	if least < -4 {
		t.Errorf("%d frames were in the queue that were taken for read", -least)
	}
}

// TestNetnsDiscardStatus checks that devices report whether they have early packet discard, and why
// not.
func TestNetnsDiscardStatus(t *testing.T) {
	testenv.NeedTUN(t)
	for why, cfg := range map[string]tap.Config{
		"":                          {},
		"a queue of 100 frames":     {TxQueueLen: 100},
		discard.ErrUnwanted.Error(): {NoDiscard: true},
	} {
		cfg.NetNS = testenv.NetNS(t)
		d, err := tap.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if s := d.EarlyDiscard(); s.On != (why == "") || !strings.Contains(s.Reason, why) {
			t.Errorf("%q: %v", why, s)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNetnsDiscardTakenOver takes over a persistent device, with and without early packet discard.
// It expects early packet discard to count the reads of the present process, whichever process had
// the device before.
func TestNetnsDiscardTakenOver(t *testing.T) {
	testenv.NeedTUN(t)
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprint(early), func(t *testing.T) {
			testenv.NoLeaks(t)
			ns := testenv.NetNS(t)
			d := discards(t, ns, tap.Open, tap.Config{Persist: true})
			send := testenv.LongDatagrams(t, ns, "10.0.0.2", 60000)
			for range 20 {
				send() // no process reads the queue
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d, err := tap.Open(tap.Config{Name: "sn0", NetNS: ns, Persist: true, NoDiscard: !early})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				testenv.Run(t, ns, "ip", "link", "delete", "sn0")
				d.Close()
			}()
			if err := d.SetCarrier(true); err != nil {
				t.Fatal(err)
			}
			testenv.Eventually(t, func() bool { // the kernel handles the link event asynchronously
				send()
				_, err := d.Queues()[0].ReadFrame(make([]byte, vnet.MaxFrame+1))
				return err == nil
			}, "a frame")
			p := flooded(t, d.Queues()[0], send)
			if early && p.Broken > 0 || !early && p.Broken == 0 || p.Whole+p.Broken < 35 {
				t.Errorf("%d whole datagrams were read, and parts of %d", p.Whole, p.Broken)
			}
		})
	}
}
