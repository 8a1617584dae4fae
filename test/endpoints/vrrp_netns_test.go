package endpoints

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/splitnic/splitnic/internal/testenv"
	"github.com/splitnic/splitnic/protocol"
	"github.com/splitnic/splitnic/splitdrv/host"
	"github.com/splitnic/splitnic/tap"
	"github.com/splitnic/splitnic/vnet"
)

// virtualMAC is the address of a virtual router (RFC 5798, section 7.3).
var virtualMAC = protocol.MAC{0, 0, 0x5e, 0, 1, 0x33}

// router is a host whose netdevice has a macvlan device with the address of a virtual router, as
// keepalived makes it with use_vmac, on the master and on the backup.
type router struct {
	t    *testing.T
	ns   string
	host *host.Host
	run  *running
}

// newRouters makes the two hosts, of which the first one asks for the virtual address first.
func newRouters(t *testing.T, s *shared) (a, b *router) {
	t.Helper()
	newRouter := func(name string) *router {
		r := &router{t: t, ns: testenv.NetNS(t)}
		testenv.DisableIPv6(t, r.ns)
		dev, err := tap.Open(tap.Config{Name: "sn0", NetNS: r.ns, Offloads: vnet.AllOffloads})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := dev.Up(); err != nil {
			t.Fatal(err)
		}
		_, r.host, r.run = s.world.host(name, func(c *host.Config) {
			// Whatever a test expects has to happen without a host that asks now and then.
			c.Netdev, c.AskAgain = host.TAP(dev), time.Hour
		})
		return r
	}
	a, b = newRouter("a"), newRouter("b")
	macvlan(t, a.ns, virtualMAC)
	a.eventually("the virtual address", a.has)
	macvlan(t, b.ns, virtualMAC)
	return a, b
}

// stop ends the process of a router.
func stop(r *router) {
	r.t.Helper()
	if err := r.run.stop(); err != nil {
		r.t.Error(err)
	}
}

func (r *router) eventually(what string, cond func() bool) {
	r.t.Helper()
	testenv.Eventually(r.t, cond, "%s: %+v", what, r.host.Status())
}

// has reports whether the I/O unit has granted the virtual address.
func (r *router) has() bool {
	f := r.host.Status().Filter
	return f != nil && slices.Contains(f.Unicast, virtualMAC)
}

func (r *router) refusal() string {
	if l := r.host.Status().LastRefusal; l != nil {
		return l.Reason
	}
	return ""
}

// TestNetnsVirtualAddressMoves has two hosts want the address of a virtual router. The second one reads
// whose it is, and gets it when the first one frees it, without asking now and then.
func TestNetnsVirtualAddressMoves(t *testing.T) {
	for name, free := range map[string]func(a *router){
		"its session ends": func(a *router) { stop(a) },
		"it removes it":    func(a *router) { testenv.Run(a.t, a.ns, "ip", "link", "del", "c5e000133") },
		"its device is new": func(a *router) {
			testenv.Run(a.t, a.ns, "ip", "link", "set", "c5e000133", "address", "02:00:00:00:07:07")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShared(t, "macvtap", "default: {macs: any}")
			a, b := newRouters(t, s)
			b.eventually("the reason", func() bool { return strings.Contains(b.refusal(), virtualMAC.String()+" is that of another host") })
			free(a)
			b.eventually("the virtual address", b.has)
			if r := b.refusal(); r != "" {
				t.Errorf("still refused: %s", r)
			}
			b.gets(s)
		})
	}
}

// gets sends a frame from the virtual address to the LAN, as a new master does, and expects one to it.
func (r *router) gets(s *shared) {
	r.t.Helper()
	out := testenv.ListenRaw(r.t, s.lanNS, "lan0")
	testenv.SendRaw(r.t, r.ns, "c5e000133", marked(station, virtualMAC, 'w', 0))
	out.Next(func(f []byte) bool {
		mark, ok := markOf(f)
		return ok && mark == 'w' && protocol.MAC(f[vnet.HdrLen+6:]) == virtualMAC
	})
	in := testenv.ListenAsIs(r.t, r.ns, "sn0")
	s.send(marked(virtualMAC, station, 'v', 0))
	in.Next(func(f []byte) bool {
		mark, ok := markOf(f)
		return ok && mark == 'v'
	})
}

// TestNetnsVirtualRouterRecipe follows the recipe of docs/policy.md: two routers share the address, and
// whoever is the master uses it, without any request when the master changes.
func TestNetnsVirtualRouterRecipe(t *testing.T) {
	const text = "default: {macs: [own, \"00:00:5e:00:01:*\"], share: vrrp}"
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := newShared(t, kind, text)
			a, b := newRouters(t, s)
			b.eventually("the virtual address", b.has)
			if r := b.refusal(); r != "" {
				t.Errorf("refused: %s", r)
			}
			for _, master := range []*router{a, b, a} {
				master.gets(s)
			}
			stop(a)
			b.gets(s)
		})
	}
}
