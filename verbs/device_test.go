//go:build cgo

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/fabric"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/verbs"
)

func TestRDMADevices(t *testing.T) {
	names := testenv.NeedRDMA(t, 1)
	devs := must(verbs.Devices())(t)
	var got []string
	for _, d := range devs {
		got = append(got, d.Name)
		if d.Driver == "" {
			t.Errorf("device %+v", d)
		}
		for _, n := range must(verbs.NetdevOf(d.Name))(t) {
			if dev := must(verbs.DeviceOf(n))(t); dev != d.Name {
				t.Errorf("netdevice %s belongs to %s, want %s", n, dev, d.Name)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("devices %q, want %q", got, names)
	}
}

func TestRDMAOpenUnknownDevice(t *testing.T) {
	testenv.NeedRDMA(t, 1)
	_, err := verbs.Open("no-such-device")
	var op *verbs.OpError
	if !errors.As(err, &op) || op.Device != "no-such-device" || op.Hint == "" || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("error %v", err)
	}
	if _, err := verbs.DeviceOf("no-such-netdev"); err == nil {
		t.Error("an unknown netdevice has a device")
	}
}

func TestRDMADeviceFacts(t *testing.T) {
	c := openDevice(t, 0)
	l, a := c.Limits(), c.Attr()
	if l.MaxQPWR < 64 || l.MaxCQE < 64 || l.CompVectors < 1 || l.MaxMsg < 1<<16 || a.Ports < 1 {
		t.Errorf("limits %+v, attributes %+v", l, a)
	}
	if rxe := c.Driver() == "rdma_rxe"; l.WindowBounds == rxe {
		t.Errorf("driver %q, WindowBounds %v", c.Driver(), l.WindowBounds)
	}
	if strings.HasPrefix(c.Name(), "rxe") && (c.Driver() != "rdma_rxe" || !l.Windows) {
		t.Errorf("driver %q, windows %v", c.Driver(), l.Windows)
	}
	for _, p := range must(c.Ports())(t) {
		if p.State == verbs.PortActive && (p.ActiveMTU < 256 || p.ActiveMTU > p.MaxMTU || p.LinkLayer == 0) {
			t.Errorf("%v", p)
		}
	}
	if _, err := c.Port(0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("port 0: %v", err)
	}
	e, why, err := c.ChooseGID()
	check(t, err)
	if !slices.Contains(must(c.QueryGIDTable())(t), e) || why == "" {
		t.Errorf("chose %v, %s", e, why)
	}
	t.Log(why)

	d := must(verbs.Open(c.Name(), verbs.WithGIDIndex(e.Index), verbs.WithGIDHint(verbs.GIDHint{Netdev: "ignored"})))(t)
	defer d.Close()
	if f, _, err := d.ChooseGID(); err != nil || f != e {
		t.Errorf("asked for %v, got %v, %v", e, f, err)
	}
	for _, index := range []int{255, 256} {
		d := must(verbs.Open(c.Name(), verbs.WithGIDIndex(index)))(t)
		if _, _, err := d.ChooseGID(); err == nil {
			t.Errorf("index %d is taken", index)
		}
		check(t, d.Close())
	}
	if _, err := verbs.Open(c.Name(), verbs.WithPort(99)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("port 99: %v", err)
	}
}

// TestRDMAPartitionKeys looks up the keys of the port's partition key table, and transfers data
// between queue pairs of each partition that both devices have. For a key that is not in the table
// it expects ErrNoPKey, also when a queue pair is made.
func TestRDMAPartitionKeys(t *testing.T) {
	c := openDevice(t, 0)
	table, other := must(c.PKeys(1))(t), must(openDevice(t, 1).PKeys(1))(t)
	connected := 0
	for i, key := range table {
		if key&0x7fff == 0 {
			continue
		}
		d := must(verbs.Open(c.Name(), verbs.WithPKey(key)))(t)
		if got, err := d.ChoosePKey(); err != nil || table[got] != key || got > i {
			t.Errorf("key %#04x, at %d, is found at %d: %v", key, i, got, err)
		}
		check(t, d.Close())
		if !slices.Contains(other, key) {
			continue
		}
		a, b := newEnd(t, 0, fabric.RC, verbs.WithPKey(key)), newEnd(t, 1, fabric.RC, verbs.WithPKey(key))
		connect(t, a.qp, b.qp)
		postRecv(t, b.qp, fabric.RecvWR{})
		postSend(t, a.qp, writeImm(a, b, fabric.Signaled))
		pollOK(t, a.sendCQ, 1)
		pollOK(t, b.recvCQ, 1)
		connected++
	}
	if connected == 0 {
		t.Errorf("the devices have no partition in common: %#04x and %#04x", table, other)
	}
	missing := uint16(0x8001)
	for slices.Contains(table, missing) {
		missing++
	}
	d := must(verbs.Open(c.Name(), verbs.WithPKey(missing)))(t)
	defer d.Close()
	if _, err := d.ChoosePKey(); !errors.Is(err, verbs.ErrNoPKey) {
		t.Errorf("key %#04x: %v", missing, err)
	}
	pd := must(d.NewDomain())(t)
	cq := must(pd.NewCQ(4, 0))(t)
	q, err := pd.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	if !errors.Is(err, verbs.ErrNoPKey) {
		t.Errorf("a queue pair in partition %#04x: %v, %v", missing, q, err)
	}
}

// TestRDMAAsyncEvent expects an asynchronous event when a completion queue overflows.
func TestRDMAAsyncEvent(t *testing.T) {
	a, b := newEnd(t, 0, fabric.RC), newEnd(t, 1, fabric.RC)
	soon, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	if ev, err := b.ctx.WaitEvent(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("event %v, %v", ev, err)
	}
	small := must(b.dom.NewCQ(4, 0))(t).(*verbs.CQ)
	b.qp = must(b.dom.NewQP(fabric.QPConfig{
		Transport: fabric.RC, SendCQ: b.sendCQ, RecvCQ: small, MaxSend: 1, MaxRecv: maxWR,
	}))(t).(*verbs.QP)
	connect(t, a.qp, b.qp)
	postRecv(t, b.qp, make([]fabric.RecvWR, 2*small.Depth()+2)...)
	for range 2*small.Depth() + 2 {
		if _, err := a.qp.PostSend([]fabric.SendWR{writeImm(a, b, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		ev := must(b.ctx.WaitEvent(testContext(t)))(t)
		if ev.Type == fabric.EventCQErr {
			if ev.CQ != small.Handle() {
				t.Errorf("event %v, want completion queue %d", ev, small.Handle())
			}
			return
		}
	}
}

// TestRDMAUnreachablePeer connects to a peer that does not exist, and expects an error with the
// peer's address.
func TestRDMAUnreachablePeer(t *testing.T) {
	a := newEnd(t, 0, fabric.RC)
	if !a.qp.GID().GID.Addr().Is4() {
		testenv.Missing(t, "rdma", "the device has no IPv4 address")
	}
	remote := a.qp.Address()
	remote.GID[15] ^= 0x55
	err := a.qp.Connect(remote, fabric.Timing{})
	var op *verbs.OpError
	if !errors.As(err, &op) || op.QPN != a.qp.Num() || op.Device != a.ctx.Name() ||
		!strings.Contains(op.Hint, verbs.GID(remote.GID).String()) {
		t.Errorf("error %v", err)
	}
}

// TestRDMAGIDOfPeersSubnet adds an address to the netdevice. It expects an event and an
// entry in the GID table. Domains without a queue pair have to choose this entry for a
// peer in the subnet of the address.
func TestRDMAGIDOfPeersSubnet(t *testing.T) {
	c := openDevice(t, 0)
	testenv.NeedRoot(t)
	netdevs := must(verbs.NetdevOf(c.Name()))(t)
	if len(netdevs) == 0 {
		testenv.Missing(t, "rdma", "%s has no netdevice", c.Name())
	}
	peer := netip.MustParseAddr("198.51.100.77")
	near := must(verbs.Open(c.Name(), verbs.WithGIDHint(verbs.GIDHint{Netdev: netdevs[0], Peer: peer})))(t)
	defer near.Close()
	gid := func(d fabric.Domain) verbs.GIDEntry {
		cq := must(d.NewCQ(8, 0))(t)
		return must(d.NewQP(fabric.QPConfig{Transport: fabric.RC, SendCQ: cq, RecvCQ: cq, MaxSend: 1,
			MaxRecv: 1}))(t).(*verbs.QP).GID()
	}
	old := must(near.NewDomain())(t)
	first := gid(old)

	link := must(netlink.LinkByName(netdevs[0]))(t)
	addr := must(netlink.ParseAddr("198.51.100.9/24"))(t)
	check(t, netlink.AddrAdd(link, addr))
	t.Cleanup(func() { check(t, netlink.AddrDel(link, addr)) })
	for {
		ev := must(c.WaitEvent(testContext(t)))(t)
		if ev.Type == fabric.EventGIDChange && ev.Port == 1 {
			break
		}
	}
	var e verbs.GIDEntry
	var why string
	testenv.Eventually(t, func() bool {
		var err error
		e, why, err = near.ChooseGID()
		return err == nil && e.GID.Addr() == netip.MustParseAddr("198.51.100.9")
	}, "the new address is chosen for %v", peer)
	if !strings.Contains(why, "same subnet") || e.Netdev != netdevs[0] ||
		e.NetdevPrefix != netip.MustParsePrefix("198.51.100.0/24") {
		t.Errorf("chose %+v: %s", e, why)
	}
	if other, _, err := c.ChooseGID(); err != nil || other == e {
		t.Errorf("without a hint: %v, %v", other, err)
	}
	if got := gid(old); got != first || got == e {
		t.Errorf("a domain whose first queue pair uses %v has another one that uses %v", first, got)
	}
	if got := gid(must(near.NewDomain())(t)); got != e {
		t.Errorf("the queue pairs of a new domain use %v instead of %v", got, e)
	}
}

// TestRDMAMemlockHint registers more memory than may be locked. It expects an error with
// the limit and the size.
func TestRDMAMemlockHint(t *testing.T) {
	mem := dmaMem(t, 1<<20)
	c := openDevice(t, 0)
	testenv.NeedRoot(t)
	d := must(c.NewDomain())(t)

	var old unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	check(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: old.Max}))
	t.Cleanup(func() { check(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)) })
	done := make(chan error)
	go func() {
		// The thread, which loses the capability, stays locked and so ends with this goroutine.
		runtime.LockOSThread()
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&hdr, &caps[0])
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err == nil {
			err = unix.Capset(&hdr, &caps[0])
		}
		if err != nil {
			done <- fmt.Errorf("dropping CAP_IPC_LOCK: %w", err)
			return
		}
		_, err = d.Register(mem, fabric.LocalWrite)
		done <- err
	}()
	err := <-done
	if !errors.Is(err, syscall.ENOMEM) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK is 64KiB and 1MiB") {
		t.Errorf("error %v", err)
	}
	check(t, must(d.Register(mem, fabric.LocalWrite))(t).Close())
}
