package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/splitnic/splitnic/internal/netns"
	"github.com/splitnic/splitnic/internal/testenv"
)

// TestRDMAPodAgent runs the agent's pod of deploy/kubernetes, and adds a container with the CNI
// plugin on the node after the start of the pod. Then it replaces the pod: the container's interface
// has to stay, with its address.
func TestRDMAPodAgent(t *testing.T) {
	r := newFixture(t, "macvtap", "--advanced.handshake-timeout", patience.String())
	p := newPod(t, r, "agent", "agent.sock", "  handshake-timeout: "+patience.String()+"\n")
	log := filepath.Join(r.dir, "pod.log")
	p.start(t, log)

	ns := testenv.NetNS(t)
	list, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion": "1.1.0", "name": "lan", "plugins": [
		{"type": "splitnic-cni", "timeout": "` + patience.String() + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	plugins := libcni.NewCNIConfigWithCacheDir([]string{filepath.Dir(r.bin)}, t.TempDir(), nil)
	container := &libcni.RuntimeConf{ContainerID: "0123456789abcdef", NetNS: netns.Path(ns), IfName: "eth0"}
	if _, err := plugins.AddNetworkList(t.Context(), list, container); err != nil {
		t.Fatal(err)
	}
	testenv.Address(t, ns, "eth0", addr(1)+"/24")
	ping(t, ns, addr(0), 2, 1472)
	index := testenv.Link(t, ns, "eth0").Attrs().Index

	p.stop()
	eventually(t, func() bool { return !carrier(t, ns, "eth0") }, "eth0 losing its carrier with the agent's pod")
	p.start(t, log)
	eventually(t, func() bool { return carrier(t, ns, "eth0") }, "carrier of eth0")
	ping(t, ns, addr(0), 2, 1472)
	if got := testenv.Link(t, ns, "eth0").Attrs().Index; got != index {
		t.Errorf("eth0 was device %d and is %d", index, got)
	}
	if err := plugins.DelNetworkList(t.Context(), list, container); err != nil {
		t.Error(err)
	}
	if links := testenv.Links(t, ns); !slices.Equal(links, []string{"lo"}) {
		t.Errorf("%v is left", links)
	}
	state := filepath.Join(p.volumes["state"], "cards")
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("%s has %v (%v)", state, left, err)
	}
}
