package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMACNI has a container runtime give a container a card of the agent, by the CNI
// plugin, and take it back. Addresses are the test's: there is no IPAM plugin.
func TestRDMACNI(t *testing.T) {
	r := newFixture(t, "macvtap", "--handshake-timeout", patience.String())
	a := r.newAgent(t)
	list, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "lan", "plugins": [
		{"type": "splitnic-cni", "socket": %q, "timeout": %q}]}`, a.sock, patience))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(a.bin), "splitnic-cni")); err != nil {
		testenv.Missing(t, "splitnic", "the CNI plugin is missing beside splitnic: %v; make build", err)
	}
	plugins := libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(a.bin)}, t.TempDir(), nil)
	ns := testenv.NetNS(t)
	pod := &libcni.RuntimeConf{ContainerID: "0123456789abcdef", NetNS: netns.Path(ns), IfName: "eth0"}
	if err := plugins.GetStatusNetworkList(t.Context(), list); err != nil {
		t.Error(err)
	}
	got, err := plugins.AddNetworkList(t.Context(), list, pod)
	if err != nil {
		t.Fatal(err)
	}
	result, err := current.NewResultFromResult(got)
	if err != nil {
		t.Fatal(err)
	}
	mac := testenv.Link(t, ns, "eth0").Attrs().HardwareAddr.String()
	if len(result.Interfaces) != 1 || result.Interfaces[0].Mac != mac || len(result.IPs) > 0 {
		t.Errorf("ADD answers %+v for a netdevice with the address %s", result, mac)
	}
	testenv.Address(t, ns, "eth0", addr(1)+"/24")
	ping(t, ns, addr(0), 2, 56)
	if err := plugins.CheckNetworkList(t.Context(), list, pod); err != nil {
		t.Error(err)
	}
	if err := plugins.DelNetworkList(t.Context(), list, pod); err != nil {
		t.Error(err)
	}
	if out := a.card("list"); out != "" {
		t.Errorf("there are still cards:\n%s", out)
	}
	if links := testenv.Links(t, ns); !slices.Equal(links, []string{"lo"}) {
		t.Errorf("%v is left", links)
	}
	eventually(t, func() bool { return len(r.unit.unitStatus().Hosts) == 0 }, "an I/O unit without hosts")
}
