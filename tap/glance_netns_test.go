package tap_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/tap"
)

// TestNetnsGlance changes each property that the kernel does not announce, one after the other, and
// changes the property back. It expects a glance to find these changes and no others, without
// allocations.
func TestNetnsGlance(t *testing.T) {
	testenv.NeedTUN(t)
	testenv.NeedTools(t, "ip", "bridge")
	d, ns := device(t, tap.Open, nil, tap.Config{MAC: testMAC})
	testenv.Bridge(t, ns, "br0")
	index := testenv.Link(t, ns, "sn0").Attrs().Index
	var allmulti int
	run := func(name string, args ...string) func() {
		return func() { testenv.Run(t, ns, name, args...) }
	}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"all groups", func() {
			err := netns.Do(ns, func() (err error) {
				allmulti, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
				return err
			})
			if err == nil {
				err = unix.SetsockoptPacketMreq(allmulti, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
					&unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI})
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"no more all groups", func() { unix.Close(allmulti) }},
		{"a group", run("ip", "maddr", "add", "01:00:5e:01:02:03", "dev", "sn0")},
		{"no group", run("ip", "maddr", "del", "01:00:5e:01:02:03", "dev", "sn0")},
		{"an address", run("bridge", "fdb", "add", "02:00:00:00:00:99", "dev", "sn0", "self")},
		{"two addresses", run("bridge", "fdb", "add", "02:00:00:00:00:98", "dev", "sn0", "self")},
		{"one address", run("bridge", "fdb", "del", "02:00:00:00:00:99", "dev", "sn0", "self")},
		{"another one", func() {
			run("bridge", "fdb", "add", "02:00:00:00:00:97", "dev", "sn0", "self")()
			run("bridge", "fdb", "del", "02:00:00:00:00:98", "dev", "sn0", "self")()
		}},
		{"promiscuous", run("ip", "link", "set", "sn0", "promisc", "on")},
		{"a port of a bridge", run("ip", "link", "set", "sn0", "master", "br0")},
		{"a group of a port", run("ip", "maddr", "add", "01:00:5e:01:02:04", "dev", "sn0")},
	} {
		same, err := d.Glance()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if !same() {
				t.Fatalf("before %s: a glance finds what is not", step.what)
			}
		}
		if n := testing.AllocsPerRun(10, func() { same() }); n != 0 {
			t.Errorf("before %s: a glance allocates %v times", step.what, n)
		}
		step.do()
		for range 3 {
			if same() {
				t.Fatalf("%s: a glance does not find it", step.what)
			}
		}
	}
	same, err := d.Glance()
	if err != nil || !same() {
		t.Errorf("a glance after all: %v", err)
	}
	testenv.Run(t, ns, "ip", "link", "delete", "sn0")
	if same() {
		t.Error("a glance does not find that the device was deleted")
	}
}
