package daemon

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestNetnsCNIWithoutAgent removes a container while no agent runs, for a runtime that does not
// repeat DEL. It expects the address to be free, and the next agent to remove the card when the
// network namespace does not exist any more.
func TestNetnsCNIWithoutAgent(t *testing.T) {
	r := newCNI(t)
	list := r.network("pods", podAddresses, nil)
	gone := fmt.Sprintf("sntest-cni-alone-%d", os.Getpid())
	if err := netns.New(gone); err != nil {
		t.Fatal(err)
	}
	pod := podIn("c1", gone)
	r.add(list, pod)
	r.stop()
	// A service manager would keep this netdevice.
	left := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netns.Do(gone, func() error { return netlink.LinkAdd(left) }); err != nil {
		t.Fatal(err)
	}
	failed(t, r.libs.DelNetworkList(t.Context(), list, pod), types.ErrTryAgainLater, "network pods", "c1")
	if ips := r.leased("pods"); len(ips) > 0 {
		t.Errorf("%q is not free", ips)
	}
	if links := testenv.Links(t, gone); !slices.Equal(links, []string{"lo"}) {
		t.Errorf("%v is left", links)
	}
	if err := netns.Delete(gone); err != nil {
		t.Fatal(err)
	}
	r.start()
	testenv.Eventually(t, func() bool { return len(r.owners()) == 0 }, "no card of a namespace that is gone")
	r.nothingLeft("pods")
}

// TestNetnsCNIForeign has an interface that is no card in the place of the card's netdevice, and
// runs DEL without an agent. It expects the interface and the address to stay.
func TestNetnsCNIForeign(t *testing.T) {
	r := newCNI(t)
	list, pod := r.network("pods", podAddresses, nil), r.pod("c1")
	r.add(list, pod)
	r.stop()
	testenv.With(t, pod.NetNS, func(h *netlink.Handle) error {
		return h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}})
	})
	err := r.libs.DelNetworkList(t.Context(), list, pod)
	failed(t, err, types.ErrTryAgainLater, "eth0 is a bridge device, and no card")
	if links := testenv.Links(t, pod.NetNS); !slices.Contains(links, "eth0") {
		t.Error("somebody else's eth0 is gone")
	}
	if ips := r.leased("pods"); len(ips) != 1 {
		t.Errorf("the addresses in use are %q", ips)
	}
	testenv.With(t, pod.NetNS, func(h *netlink.Handle) error { return h.LinkDel(testenv.Link(t, pod.NetNS, "eth0")) })
	r.start()
	if err := r.libs.DelNetworkList(t.Context(), list, pod); err != nil {
		t.Error(err)
	}
	r.nothingLeft("pods", pod)
}

// TestNetnsCNIAgain starts a container again in another network namespace, after a DEL that was
// lost. It expects the first card to be removed.
func TestNetnsCNIAgain(t *testing.T) {
	r := newCNI(t)
	list := r.network("pods", podAddresses, map[string]any{"ipam": map[string]any{}})
	first := r.pod("c1")
	r.add(list, first)
	second := &libcni.RuntimeConf{ContainerID: "c1", NetNS: r.pod("c1").NetNS, IfName: "eth0"}
	r.add(list, second)
	if links := testenv.Links(t, first.NetNS); !slices.Equal(links, []string{"lo"}) {
		t.Errorf("%v is left", links)
	}
	if owners := r.owners(); len(owners) != 1 {
		t.Errorf("there are cards of %q", owners)
	}
}
