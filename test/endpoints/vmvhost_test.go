package endpoints

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/splitdrv/messaging"
	"github.com/splitnic/splitnic/vhostuser"
	"github.com/splitnic/splitnic/vnet"
)

const (
	vhostMTU   = 9000
	vhostGuest = "10.78.0.2"
	// vhostMemory is more memory than a guest started by boot has.
	vhostMemory = 1 << 30
)

// vhostBed is a host with a vhost-user port, whose I/O unit is on a veth.
type vhostBed struct {
	t             *testing.T
	w             *world
	unitNS, lanNS string
	address       vhostuser.Address
	lends         bool // --vhost-zero-copy

	device *vhostuser.Device
	host   *host.Host
	run    *running
}

func newVhostBed(t *testing.T, lends, client bool) *vhostBed {
	t.Helper()
	testenv.NeedVM(t)
	b := &vhostBed{
		t: t, w: newWorld(t), unitNS: testenv.NetNS(t), lanNS: testenv.NetNS(t), lends: lends,
		address: vhostuser.Address{Path: filepath.Join(t.TempDir(), "s"), Client: client},
	}
	b.w.unitOnVeth(b.unitNS, b.lanNS, "macvtap", vhostMTU, 2)
	b.start()
	return b
}

// start starts the host.
func (b *vhostBed) start() {
	b.t.Helper()
	d, err := vhostuser.Open(vhostuser.Config{
		Address: b.address, Pairs: 2, Offloads: vnet.AllOffloads, Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { d.Close() })
	b.device = d
	_, b.host, b.run = b.w.host("alpha", func(c *host.Config) {
		c.Netdev = host.VhostUser("vm0", d)
		if b.lends {
			c.Messaging.ZeroCopy = messaging.NewBudget(vhostMemory)
		}
	})
	testenv.Eventually(b.t, func() bool { return b.host.Status().Netdevice.Carrier }, "a session")
}

// boot starts a guest at the port, whose card has these additional properties.
func (b *vhostBed) boot(properties ...string) *virtualMachine {
	b.t.Helper()
	socket := "socket,id=c,path=" + b.address.Path
	if b.address.Client {
		socket += ",server=on"
	}
	return boot(b.t, b.unitNS, os.DevNull,
		"-chardev", socket, "-netdev", "vhost-user,id=n,chardev=c,queues=2",
		// QEMU 7.2 without KVM crashes with a segmentation fault if MSI-X is used.
		"-device", strings.Join(append([]string{fmt.Sprintf("virtio-net-pci,netdev=n,mac=%s,mq=on,vectors=0,host_mtu=%d",
			b.host.Status().Netdevice.MAC, vhostMTU)}, properties...), ","))
}

// lent returns how many frames of the session were sent without a copy.
func (b *vhostBed) lent() (n uint64) {
	if t := b.host.Status().Traffic; t != nil {
		for i := range t.Channels {
			n += t.Channels[i].TxLent
		}
	}
	return n
}

// check expects the guest's card to work: pings up to packets of the full MTU, and TCP in both
// directions.
func (b *vhostBed) check(vm *virtualMachine) {
	b.t.Helper()
	vm.tell(fmt.Sprintf("up %s/24 %d", vhostGuest, vhostMTU))
	testenv.Ping(b.t, b.lanNS, vhostGuest)
	testenv.Ping(b.t, b.lanNS, vhostGuest, "-M", "do", "-s", fmt.Sprint(vhostMTU-28))
	before := b.lent()
	if err := exchange(b.lanNS, vhostGuest, 1, 4<<20); err != nil {
		b.t.Fatal(err)
	}
	if n := b.lent() - before; (n > 0) != b.lends {
		b.t.Errorf("%d frames were sent without a copy", n)
	}
}

// TestVMVhostUser uses a QEMU machine with Linux as the netdevice of a host whose I/O unit is on a
// veth. The test covers pings, TCP in both directions, packets of the card's full MTU and longer
// ones, which must not pass, a second pair of rings, and all of these again after the guest's
// driver was unbound from the card and bound again. It copies all frames, or sends the long ones
// without a copy.
func TestVMVhostUser(t *testing.T) {
	for name, lends := range map[string]bool{"copied": false, "lent": true} {
		t.Run(name, func(t *testing.T) {
			b := newVhostBed(t, lends, false)
			vm := b.boot()
			b.check(vm)
			if n := testenv.CsumErrors(t, b.lanNS); n != 0 {
				t.Errorf("%d segments with wrong checksums", n)
			}
			if s := b.device.Status(); s.MTU != vhostMTU || s.Rings != 4 {
				t.Errorf("%+v", s)
			}
			for _, n := range []int{1, 2} {
				vm.tell(fmt.Sprint("queues ", n))
				testenv.Eventually(t, func() bool { return b.device.Status().Rings == 2*n }, "%d pairs of rings", n)
				testenv.Ping(t, b.lanNS, vhostGuest)
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					if err := exchange(b.lanNS, vhostGuest, byte(i), 256<<10); err != nil {
						t.Errorf("connection %d: %v", i, err)
					}
				})
			}
			all.Wait()
			for i, c := range b.host.Status().Traffic.Channels {
				if c.TxFrames == 0 || c.RxFrames == 0 {
					t.Errorf("queue %d has carried %d frames out and %d in", i, c.TxFrames, c.RxFrames)
				}
			}
			vm.tell("rebind")
			b.check(vm)
			if s := b.device.Status(); s.LastError != "" || s.Connections != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestVMVhostUserRings makes Linux use other kinds of rings than usual, and complete its checksums
// itself. The card has to work, and again after the driver was unbound from it.
func TestVMVhostUserRings(t *testing.T) {
	for name, c := range map[string]struct {
		properties string
		has, lacks string // a feature
	}{
		"packed":                     {"packed=on", "packed", ""},
		"packed without event index": {"packed=on,event_idx=off,indirect_desc=off", "packed", "event-idx"},
		"without merging":            {"mrg_rxbuf=off,event_idx=off,indirect_desc=off", "csum", "mrg-rxbuf"},
		"packed without offloads":    {"packed=on,mrg_rxbuf=off,csum=off,guest_csum=off", "packed", "csum"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newVhostBed(t, false, false)
			vm := b.boot(c.properties)
			b.check(vm)
			vm.tell("rebind")
			b.check(vm)
			s := b.device.Status()
			if !slices.Contains(s.Features, c.has) || slices.Contains(s.Features, c.lacks) {
				t.Errorf("features %q", s.Features)
			}
			if s.LastError != "" || s.Connections != 1 {
				t.Errorf("%+v", s)
			}
			if n := testenv.CsumErrors(t, b.lanNS); n != 0 {
				t.Errorf("%d segments with wrong checksums", n)
			}
		})
	}
}

// TestVMLentAndGone sends a guest's frames without a copy while its driver is unbound from the card
// and bound again, while the host is restarted, and until the emulator is killed. All data has to
// arrive unchanged, and no memory of a killed machine may stay registered. Another machine has to
// work after it.
func TestVMLentAndGone(t *testing.T) {
	b := newVhostBed(t, true, true)
	vm := b.boot()
	b.check(vm)
	// while calls what in the middle of the bytes of a connection.
	while := func(what func()) {
		t.Helper()
		before := b.lent()
		over := make(chan error, 1)
		go func() { over <- exchange(b.lanNS, vhostGuest, 2, 32<<20) }()
		testenv.Eventually(t, func() bool { return b.lent() > before+50 }, "frames without a copy")
		select {
		case err := <-over:
			t.Fatal("it was over before", err)
		default:
		}
		what()
		if err := <-over; err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		while(func() {
			vm.tell("rebind")
			vm.tell(fmt.Sprintf("up %s/24 %d", vhostGuest, vhostMTU))
		})
	}
	while(func() {
		if err := b.run.stop(); err != nil {
			t.Error(err)
		}
		b.device.Close()
		b.start()
	})
	registered := func() int64 { return b.device.Status().Registered }
	if registered() == 0 || b.lent() == 0 {
		t.Errorf("%d bytes are registered, and %d frames were sent without a copy", registered(), b.lent())
	}

	ended := make(chan error, 1)
	before := b.lent()
	go func() { ended <- exchange(b.lanNS, vhostGuest, 3, 1<<30) }()
	testenv.Eventually(t, func() bool { return b.lent() > before+50 }, "frames without a copy")
	vm.kill()
	testenv.Eventually(t, func() bool { return registered() == 0 }, "memory of a machine that is gone is registered")
	b.check(b.boot())
	if err := <-ended; err == nil {
		t.Error("a machine that was killed has answered")
	}
	if s := b.device.Status(); s.Registered == 0 || s.NotRegistered != "" || s.Connections != 2 {
		t.Errorf("%+v", s)
	}
}
